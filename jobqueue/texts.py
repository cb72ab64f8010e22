"""Text that every database accepts, and what is recorded of an exception, whatever its own code does."""

from __future__ import annotations

import pathlib
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

#: The most characters that are kept of an exception, on one line and with its traceback.
SHORT_LENGTH = 300
TRACEBACK_LENGTH = 50_000


def storable_text(text: str, limit: int) -> str:
    r"""`text` as every database accepts it, of at most `limit` characters.

    U+0000 and lone surrogates are written as `\x00` and `\ud800`; what is too long loses its middle
    and says so.
    """
    text = str.__str__(text)
    whole = len(text)
    text = text.replace("\0", "\\x00")
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= limit:
        return text
    mark = f" … [shortened, {whole} characters] … "
    kept = limit - len(mark)
    if kept < 2:
        return text[:limit]
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


class Described(NamedTuple):
    """An exception as text: the path of its class or of a base, one line, and the traceback."""

    class_path: str
    short: str
    traceback: str


def describe_exception(exc: BaseException) -> Described:
    """What is recorded of an exception. Never raises, whatever the exception's own methods do.

    `class_path` can be imported: for a class that cannot be (local, nested, in `__main__`) it is
    the nearest base's. `short` is at most 300 characters on one line, `traceback` at most 50,000,
    both fit for every database.
    """
    name = _class_name(type(exc))
    text = _quietly(lambda: str.__str__(str(exc)))
    if text is None:
        text = "<its text could not be made>"
    line = next((line.strip() for line in text[:10_000].splitlines() if line.strip()), "")
    short = storable_text(f"{name}: {line}" if line else name, SHORT_LENGTH)
    frames = _without_runner(BaseException.__dict__["__traceback__"].__get__(exc))
    full = _quietly(
        lambda: "".join(traceback.TracebackException(type(exc), exc, frames, compact=True).format())
    )
    if full is None:  # something in the chain of causes does not even let itself be looked at
        full = _quietly(lambda: "".join(traceback.format_tb(frames)) + short)
    return Described(_class_path(type(exc)), short, storable_text(full or short, TRACEBACK_LENGTH))


def _quietly(make: Callable[[], str]) -> str | None:
    try:
        return make()
    except BaseException:  # the exception's own code may raise anything; it must be recorded
        return None


def _class_name(cls: type) -> str:
    # Asked of type itself, as the traceback of BaseException: the class may hide what it likes.
    return str.__str__(type.__dict__["__name__"].__get__(cls))


def _class_path(cls: type) -> str:
    for base in type.__dict__["__mro__"].__get__(cls):
        path = _quietly(lambda base=base: _importable_path(base))  # type: ignore[misc]
        if path:
            return path
    return "builtins.BaseException"


def _importable_path(cls: type) -> str:
    """The path at which another process finds this very class, or nothing."""
    module_name, name = cls.__module__, cls.__qualname__
    # In another process `__main__` is another module.
    if type(module_name) is not str or type(name) is not str or module_name == "__main__":
        return ""
    module = sys.modules.get(module_name)
    # Without a spec the module was made by hand and is nowhere else. The name of a local or nested
    # class has a dot, so that it is not found.
    found = getattr(module, "__spec__", None) is not None and getattr(module, name, None) is cls
    return f"{module_name}.{name}" if found else ""


_RUNNER = str(pathlib.Path(__file__).with_name("execution.py"))
_RUNNERS = {_RUNNER, str(pathlib.Path(__file__).with_name("interrupt.py"))}


def _without_runner(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own first frames, unless they are all there is."""
    inner = frames
    while inner is not None and inner.tb_frame.f_code.co_filename in _RUNNERS:
        inner = inner.tb_next
    return inner or frames
