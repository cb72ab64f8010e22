"""The options, read from `TASKS[...]["OPTIONS"]` each time they are used.

They belong to the one alias of `TASKS` whose backend is `JobQueueBackend` or a subclass of it, and
hold for workers, models, admin and commands alike. Where no alias uses the backend, the defaults
hold. Nothing here raises for a wrong value: the default takes its place and the system checks
report it (`problems`), so that a settings file with a mistake can still run `manage.py check`.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.exceptions import AppRegistryNotReady
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

BACKEND: Final = "jobqueue.backend.JobQueueBackend"

DAY: Final = 86_400.0
# Long enough for anyone, short enough that now + this is a date on every database.
CENTURY: Final = 36_525 * DAY

RETENTION: Final[Mapping[str, float | None]] = {
    "completed": 7 * DAY,
    "cancelled": 30 * DAY,
    "failed": 90 * DAY,
}

#: The names of settings that Django hides, and a few more that jobs carry.
REDACT: Final = (
    *("API", "TOKEN", "KEY", "SECRET", "PASS", "SIGNATURE"),
    *("AUTH", "COOKIE", "SESSION", "CREDENTIAL"),
)


def _number(default: Any, low: float, high: float, *, none: bool = False) -> Any:
    """A field whose value is a number from `low` to `high`, or None where `none` gives it a sense.

    An int where the default is one, else a float.
    """
    bounds = {"low": low, "high": high, "none": none, "whole": isinstance(default, int)}
    return field(default=default, metadata=bounds)


@dataclass(frozen=True, slots=True)
class Options:
    """What `OPTIONS` says, complete and valid. Times are in seconds; whole numbers may be given."""

    database: str = "default"
    """Alias in `DATABASES` (text) of the database that holds the queue. The routers must answer the
    same for jobqueue's models; `jobqueue.routers.JobQueueRouter` makes them."""

    redis: str | None = None
    """Alias in `CACHES` (text) of a Redis that django-redis serves, or None: where ids of queued
    jobs are kept in line, so that workers find them sooner. What it loses is found again."""

    redis_prefix: str | None = None
    """Text that all keys in Redis begin with; two sites on one Redis need different ones. None
    means the cache's KEY_PREFIX, or "jobqueue" if it has none."""

    lease: float = _number(30.0, 1, DAY)
    """Seconds, 1 or more: for how long a worker that is not heard of keeps its jobs. What dies
    unseen is repeated after lease + tick."""

    heartbeat: float = _number(10.0, 0.05, DAY, none=True)
    """Seconds between two extensions of the leases; None, as when not given, means lease / 3.
    It must be shorter than the lease, and should be shorter than half of it."""

    tick: float = _number(1.0, 0.01, DAY)
    """Seconds between two looks of a worker at what the clock makes due (delays, retries, expired
    leases), and how late a wake-up that got lost can be."""

    max_attempts: int = _number(5, 1, 32_767)
    """Whole number from 1 to 32767: how often a job is tried, unless its task says otherwise."""

    timeout: float | None = _number(300.0, 0.001, CENTURY, none=True)
    """Seconds that one attempt may run before it is stopped, unless its task says otherwise; None
    sets no limit."""

    backoff_base: float = _number(2.0, 0, CENTURY)
    """Seconds before the second attempt; the delay doubles with each further one."""

    backoff_max: float = _number(3600.0, 0, CENTURY)
    """Seconds that the delay before a new attempt never exceeds."""

    grace: float = _number(25.0, 0, DAY)
    """Seconds that running jobs get to finish when a worker is told to stop; then they are given
    back. `runworker --grace` overrides it."""

    kill_after: float = _number(5.0, 0, DAY)
    """Seconds that a job which was told to stop (deadline, cancellation) may take to do so before
    its process is replaced."""

    max_payload: int = _number(1_000_000, 1, 250_000_000)
    """Bytes of JSON that the arguments of one job may take (whole number)."""

    retention: Mapping[str, float | None] = field(default_factory=lambda: dict(RETENTION))
    """Seconds for which ended jobs are kept, for each final status (`completed`, `cancelled`,
    `failed`); None keeps them for ever. A status that is not named keeps its default."""

    redact: tuple[str, ...] = REDACT
    """Words (a list of texts). Where one is part of a key, in upper or lower case, the admin hides
    the value from everybody: in arguments and results at every depth, in downloads, errors and
    tracebacks. They take the place of the default; "AUTH" is not found in "author"."""


class Problem(NamedTuple):
    """Something wrong (`E`) or dubious (`W`) in the settings, in the words of a system check."""

    code: str
    message: str
    hint: str


_cached: tuple[object, str | None, Options] | None = None


def options() -> Options:
    """The options as the settings stand now; defaults for what is missing or wrong."""
    return _current()[1]


def alias() -> str | None:
    """The alias in `TASKS` that uses jobqueue's backend (the first, if several do), or None."""
    return _current()[0]


def problems() -> list[Problem]:
    """What is wrong or dubious in `TASKS` itself, whatever databases and apps there are."""
    tasks = _tasks()
    aliases = list(_aliases(tasks))
    if not aliases:
        return [
            Problem(
                "jobqueue.W001",
                "No alias in TASKS uses jobqueue's backend, so no task reaches its workers.",
                f'Set TASKS = {{"default": {{"BACKEND": "{BACKEND}"}}}}, or take "jobqueue" out of '
                "INSTALLED_APPS.",
            )
        ]
    found = _read(tasks, aliases[0])[1]
    if len(aliases) > 1:
        found.append(
            Problem(
                "jobqueue.E007",
                f"{len(aliases)} aliases in TASKS use jobqueue's backend: {_list(aliases)}.",
                "There is one queue, and one set of OPTIONS for it. Keep one alias and use queue "
                "names to tell kinds of work apart.",
            )
        )
    return found


def _tasks() -> Mapping[str, Any]:
    # Django 5.2 has no default for TASKS.
    tasks = getattr(settings, "TASKS", None)
    return tasks if isinstance(tasks, Mapping) else {}


def _current() -> tuple[str | None, Options]:
    global _cached
    tasks = _tasks()
    # The cache holds the very object that it was read from, so its identity cannot be reused.
    if _cached is not None and _cached[0] is tasks:
        return _cached[1:]
    name = next(_aliases(tasks), None)
    result = _read(tasks, name)[0] if name is not None else Options()
    # Not found may mean that a backend cannot be imported yet: look again next time.
    _cached = (tasks, name, result) if name is not None else None
    return name, result


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _cached
    if setting == "TASKS":
        _cached = None


# The identity does not tell when a test changed the dictionary in place before overriding with it.
setting_changed.connect(_forget, dispatch_uid="jobqueue.conf")


def _aliases(tasks: Mapping[str, Any]) -> Iterator[str]:
    """The aliases that use the backend; those that name it literally first, without an import."""
    others: list[tuple[str, str]] = []
    for name, params in tasks.items():
        backend = params.get("BACKEND") if isinstance(params, Mapping) else None
        if backend == BACKEND:
            yield name
        elif isinstance(backend, str):
            others.append((name, backend))
    for name, backend in others:
        try:
            found = import_string(backend)
        except (ImportError, AppRegistryNotReady):
            continue  # Not ours to report: Django does, where that backend is used.
        # By name, since this module lies below the backend and does not import it.
        ancestors = getattr(found, "__mro__", ())
        if any(f"{c.__module__}.{c.__qualname__}" == BACKEND for c in ancestors):
            yield name


#: The options that are texts: what kind of text, and whether None will do.
_TEXTS: Final = {
    "database": ("an alias in DATABASES", False),
    "redis": ("an alias in CACHES or None", True),
    "redis_prefix": ("text or None", True),
}


def _read(tasks: Mapping[str, Any], name: str) -> tuple[Options, list[Problem]]:
    """The options of one alias, and what is wrong with them."""
    found: list[Problem] = []
    where = f'TASKS["{name}"]'
    found += _unknown(tasks[name], where, ["BACKEND", "OPTIONS", "QUEUES"], "jobqueue.E002")
    given = tasks[name].get("OPTIONS", {})
    where += '["OPTIONS"]'
    if not isinstance(given, Mapping):
        found.append(_wrong_type("jobqueue.E001", where, "a dictionary", given))
        return Options(), found
    found += _unknown(given, where, [each.name for each in fields(Options)], "jobqueue.E002")

    values: dict[str, Any] = {}
    for each in fields(Options):
        if each.name not in given:
            continue
        value, place = given[each.name], f'{where}["{each.name}"]'
        if each.name in _TEXTS:
            wanted, may_be_none = _TEXTS[each.name]
            if isinstance(value, str) or (value is None and may_be_none):
                values[each.name] = value
            else:
                found.append(_wrong_type("jobqueue.E003", place, wanted, value))
        elif each.name == "retention":
            values["retention"], more = _read_retention(value, place)
            found += more
        elif each.name == "redact":
            if problem := _words_problem(value, place):
                found.append(problem)
            else:
                values["redact"] = tuple(value)
        elif problem := _number_problem(value, place, each.metadata):
            found.append(problem)
        elif value is not None:
            values[each.name] = value if each.metadata["whole"] else float(value)
        elif each.name != "heartbeat":
            values[each.name] = None

    lease = values.get("lease", Options().lease)
    heartbeat = values.setdefault("heartbeat", lease / 3)
    if heartbeat > lease / 2:
        found.append(_late_heartbeat(where, heartbeat, lease))
        if heartbeat >= lease:
            values["heartbeat"] = lease / 3
    result = Options(**values)
    if result.backoff_base > result.backoff_max:
        found.append(
            Problem(
                "jobqueue.W003",
                f"{where}: backoff_base ({result.backoff_base:g} s) is longer than backoff_max "
                f"({result.backoff_max:g} s), so every delay is backoff_max.",
                "Raise backoff_max, or lower backoff_base.",
            )
        )
    return result, found


def _read_retention(value: Any, where: str) -> tuple[dict[str, float | None], list[Problem]]:
    kept = dict(RETENTION)
    if not isinstance(value, Mapping):
        return kept, [_wrong_type("jobqueue.E003", where, "a dictionary", value)]
    found = list(_unknown(value, where, list(RETENTION), "jobqueue.E006"))
    for status in RETENTION.keys() & value.keys():
        seconds = value[status]
        bounds = {"low": 0, "high": CENTURY, "none": True, "whole": False}
        if problem := _number_problem(seconds, f'{where}["{status}"]', bounds):
            found.append(problem)
        else:
            kept[status] = None if seconds is None else float(seconds)
    return kept, found


def _words_problem(value: Any, where: str) -> Problem | None:
    if not isinstance(value, list | tuple):
        return _wrong_type("jobqueue.E003", where, "a list of words", value)
    for word in value:
        if not isinstance(word, str):
            return _wrong_type("jobqueue.E003", where, "a list of words", word)
        if not word.strip():
            return Problem(
                "jobqueue.E004",
                f"{where} has an empty word, which is part of every key.",
                "Take it out; to hide nothing, give an empty list.",
            )
    return None


def _number_problem(value: Any, where: str, bounds: Mapping[str, Any]) -> Problem | None:
    low, high = bounds["low"], bounds["high"]
    if value is None and bounds["none"]:
        return None
    kinds = int if bounds["whole"] else (int, float)
    # True is an int to Python and a mistake to everyone else.
    if not isinstance(value, kinds) or isinstance(value, bool):
        wanted = "a whole number" if bounds["whole"] else "a number of seconds"
        wanted += " or None" if bounds["none"] else ""
        return _wrong_type("jobqueue.E003", where, wanted, value)
    if not low <= value <= high:  # as it is for NaN
        return Problem(
            "jobqueue.E004",
            f"{where} is out of range.",
            f"It must be from {low:,} to {high:,.0f}.",
        )
    return None


def _late_heartbeat(where: str, heartbeat: float, lease: float) -> Problem:
    said = f"{where}: heartbeat ({heartbeat:g} s) is"
    hint = f"Leave heartbeat out, which makes it lease / 3 ({lease / 3:g} s), or lengthen lease."
    if heartbeat >= lease:
        said += f" not shorter than lease ({lease:g} s): healthy jobs would be taken from workers."
        return Problem("jobqueue.E005", said, hint)
    said += f" longer than half of lease ({lease:g} s): one late heartbeat costs healthy jobs."
    return Problem("jobqueue.W002", said, hint)


def _wrong_type(code: str, where: str, wanted: str, value: object) -> Problem:
    return Problem(
        code,
        f"{where} must be {wanted}, not {type(value).__name__}.",
        "The default is used instead until it is corrected.",
    )


def _unknown(
    given: Mapping[Any, Any], where: str, known: list[str], code: str
) -> Iterator[Problem]:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key).lower(), map(str.lower, known), n=1)
            meant = [name for name in known if name.lower() in near]
            guess = f"Did you mean {meant[0]!r}? " if meant else ""
            yield Problem(
                code,
                f"{where} has the unknown key {key!r}, which nothing reads.",
                f"{guess}Known keys: {_list(known)}.",
            )


def _list(names: list[str]) -> str:
    return ", ".join(sorted(names))
