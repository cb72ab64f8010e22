"""The search box's small language: what each term means, and in which words it is refused."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, F, Func, Q
from django.db.models.functions import Left
from django.db.models.lookups import Exact
from django.db.models.sql.compiler import SQLCompiler
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue.admin import hiding
from jobqueue.texts import storable_text
from jobqueue.values import dumps

#: What a search may be at most: characters, terms, steps of a path into arguments.
MAX_LENGTH = 500
MAX_TERMS = 10
MAX_STEPS = 10

HELP = gettext_lazy(
    "A job's id, a task's path or its beginning, or task:path*, queue:name, worker:name, key:text,"
    ' error:"beginning", args.name.inner:value, attempt:>3. All of several terms must fit.'
)

_TERM = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*(?:"|$))+|\S+')
_NAMED = re.compile(r"([A-Za-z_]+)((?:\.[^.:\s\"]+)*):(.*)", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_COMPARISON = re.compile(r"(>=|<=|>|<|=|)\s*([0-9]{1,6})")
_OPERATORS = {">=": "gte", "<=": "lte", ">": "gt", "<": "lt", "=": "exact", "": "exact"}


@dataclass(frozen=True, slots=True)
class Condition:
    """Some of the jobs: which, in words for people, what index could lead to them ("id", "period",
    "queue"; none for most), and whether it is worth going far for it."""

    q: Q
    words: str
    index: str = ""
    far: bool = False


class Refused(Exception):
    """A term that means nothing, or that this person may not use; its text says why."""


def parse(
    text: str, *, see_args: bool, is_task: Callable[[str], bool]
) -> tuple[list[Condition], list[str]]:
    """The conditions that a search sets, and what is wrong with it. `is_task` says whether a bare word is the
    whole path of some task, rather than the beginning of one."""
    if len(text) > MAX_LENGTH:
        return [], [_("A search has at most %s characters.") % MAX_LENGTH]
    if "\0" in text:
        return [], [_("A search holds no character U+0000.")]
    words = _TERM.findall(text)
    if len(words) > MAX_TERMS:
        return [], [_("A search has at most %s terms.") % MAX_TERMS]
    conditions, problems = [], []
    for word in words:
        try:
            conditions.append(_term(word, see_args, is_task))
        except Refused as refused:
            problems.append(str(refused))
    return conditions, problems


def _term(word: str, see_args: bool, is_task: Callable[[str], bool]) -> Condition:
    if _ID.fullmatch(word):
        found = uuid.UUID(word)
        return Condition(Q(pk=found), _("id is %s") % found, "id")
    if (named := _NAMED.fullmatch(word)) is None:
        bare = _unquoted(word)
        if ":" in bare:
            raise Refused(_not_understood(word))
        if bare.isdigit():
            raise Refused(_("“%s” is no id: a job's id has 32 digits.") % _short(word))
        return _task(bare if is_task(bare) else bare.removesuffix("*") + "*")
    name, path, value = named.groups()
    if path and name in ("args", "kwargs"):
        return _argument(word, path[1:].split("."), value, see_args)
    simple = _SIMPLE.get(name)
    if path or simple is None:
        raise Refused(_not_understood(word))
    if not (value := _unquoted(value)):
        raise Refused(_("“%s” lacks a value.") % _short(word))
    return simple(value)


def _not_understood(word: str) -> str:
    return _("“%s” was not understood.") % _short(word)


def _short(word: str) -> str:
    return Truncator(word).chars(60)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    if '"' in value:
        raise Refused(_("“%s” has a quotation mark too few or too many.") % _short(value))
    return value


def _begins(field: str, text: str) -> Q:
    """Not LIKE, in which SQLite takes "a" for "A"."""
    return Q(Exact(Left(field, len(text)), text))


def _task(value: str) -> Condition:
    if value.endswith("*"):
        beginning = value[:-1]
        if not beginning:
            raise Refused(_("“%s” would find every task.") % _short(value))
        return Condition(
            _begins("task_path", beginning), _("task begins with %s") % _short(beginning)
        )
    return Condition(Q(task_path=value), _("task is %s") % value)


def queue(value: str) -> Condition:
    """The jobs of a queue."""
    return Condition(Q(queue_name=value), _("queue is %s") % value, "queue")


def task(value: str) -> Condition:
    """The jobs of a task."""
    return Condition(Q(task_path=value), _("task is %s") % value)


def _worker(value: str) -> Condition:
    """The name ends in the process's id and more: what comes before may stand alone."""
    return Condition(
        Q(worker=value) | _begins("worker", f"{value}:"), _("worker is %s") % _short(value)
    )


def _key(value: str) -> Condition:
    return Condition(Q(idempotency_key=value), _("key is %s") % _short(value))


def _error(value: str) -> Condition:
    if hiding.hide_in_text(value) != value:
        raise Refused(_("Values that are hidden cannot be searched for."))
    return Condition(_begins("error", value), _("error begins with “%s”") % _short(value))


def _attempt(value: str) -> Condition:
    if (found := _COMPARISON.fullmatch(value)) is None:
        raise Refused(_not_understood(f"attempt:{value}"))
    sign, number = found.groups()
    q = Q(**{f"attempt__{_OPERATORS[sign]}": int(number)})
    return Condition(q, _("attempt is %s") % f"{sign}{number}")


_SIMPLE: dict[str, Callable[[str], Condition]] = {
    "task": _task,
    "queue": queue,
    "worker": _worker,
    "key": _key,
    "error": _error,
    "attempt": _attempt,
}


# Arguments


def _argument(word: str, path: list[str], text: str, see_args: bool) -> Condition:
    if not see_args:
        raise Refused(
            _("You need the right to see jobs' arguments to search in them: “%s”.") % _short(word)
        )
    if len(path) > MAX_STEPS:
        raise Refused(_("“%s” goes too deep.") % _short(word))
    if hiding.names_secret(path):
        raise Refused(_("Values that are hidden cannot be searched for."))
    if not text:
        raise Refused(_("“%s” lacks a value.") % _short(word))
    value = _value(text)
    if isinstance(value, dict | list):
        # It might hold a value that is hidden.
        raise Refused(_("“%s”: only a number, a text, true, false or null can be found.") % word)
    if isinstance(value, str) and storable_text(value, MAX_LENGTH) != value:
        raise Refused(_not_understood(word))
    column = "args" if _is_index(path[0]) else "kwargs"
    shown = f"{column}.{'.'.join(path)}"
    return Condition(
        Q(HasValue(column, path, value)),
        _("%(path)s is %(value)s") % {"path": shown, "value": _short(dumps(value))},
        far=True,
    )


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit()


def _value(text: str) -> Any:
    """JSON if it is some, else the text as it stands."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def _no_number(name: str) -> Any:
    raise ValueError(name)


class HasValue(Func):
    """Whether a JSON column holds a plain value at a path, compared exactly however many digits it has."""

    output_field = BooleanField()
    conditional = True

    def __init__(self, column: str, path: list[str], value: Any) -> None:
        super().__init__(F(column))
        self.path, self.value = path, value

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By jsonb, whose numbers are decimals."""
        column, params = compiler.compile(self.source_expressions[0])
        return f"({column} #> %s::text[]) = %s::jsonb", (*params, self.path, dumps(self.value))

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """As text: asked for one value SQLite gives a number, which may be rounded; asked for the same one
        twice it gives both as they are written."""
        column, params = compiler.compile(self.source_expressions[0])
        value = dumps(self.value)
        path = "$" + "".join(
            f"[{step}]" if _is_index(step) else f".{json.dumps(step)}" for step in self.path
        )
        if self.value is None:  # else the same as one that is missing
            return f"JSON_TYPE({column}, %s) = %s", (*params, path, "null")
        return (
            f"JSON_EXTRACT({column}, %s, %s) = %s",
            (*params, path, path, f"[{value},{value}]"),
        )
