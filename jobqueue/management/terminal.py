"""How the commands talk: tables that fit, text for any terminal, plain errors, orderly stops."""

from __future__ import annotations

import getpass
import json
import os
import select
import shutil
import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from types import FrameType, TracebackType
from typing import Any, Self

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, ProgrammingError, connections
from django.utils import timezone

from jobqueue import conf
from jobqueue.models import Job, JobLog, Queue, Worker

#: What a shell sees of a program that wrote into a pipe nobody reads.
BROKEN_PIPE = 128 + 13

#: The narrowest and the widest that tables are made for, in characters.
NARROW, WIDE = 80, 120


class PlainCommand(BaseCommand):
    """A command that meets people: no traceback for what they can cure, no complaint when the
    reader of its pipe has left, nothing that their terminal cannot show or would obey."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; errors of the database become a CommandError in plain words."""
        try:
            try:
                return super().execute(*args, **options)
            except (DatabaseError, InterfaceError) as error:
                raise CommandError(in_plain_words(error)) from error
            finally:
                self.stdout.flush()
        except BrokenPipeError:
            # What is still buffered must go somewhere, or the interpreter complains at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)

    def say(self, text: str = "") -> None:
        """Print lines for people."""
        self.stdout.write(printable(text, getattr(self.stdout, "encoding", None)))

    def say_json(self, value: Any) -> None:
        """Print one JSON value on one line, in ASCII, for whoever reads the pipe to have it now."""
        self.stdout.write(json.dumps(value, default=_json_value))
        self.stdout.flush()

    def mention(self, text: str) -> None:
        """Print to stderr what is no part of the answer."""
        encoding = getattr(self.stderr, "encoding", None)
        self.stderr.write(printable(text, encoding), style_func=lambda line: line)


def in_plain_words(error: Exception) -> str:
    """What an error of the database means to the person at the terminal, and what to do."""
    using = conf.options().database
    said = (str(error).strip() or repr(error)).splitlines()[0]
    try:
        let_go()  # it may be the one that broke
        tables = set(connections[using].introspection.table_names())
    except (DatabaseError, InterfaceError):
        return f"The database {using!r} cannot be reached: {said}"
    if not tables.issuperset(model._meta.db_table for model in (Job, JobLog, Worker, Queue)):
        return (
            f"The tables of jobqueue are missing on the database {using!r}. "
            f"Run: manage.py migrate --database {using}"
        )
    if isinstance(error, ProgrammingError) or "no such column" in said:
        return f"{said} (Are all migrations applied? Run: manage.py migrate --database {using})"
    return f"The database {using!r} refused: {said}"


def let_go() -> None:
    """Close the queue's connection. While nothing is done none is held, so that a server that is
    restarted meanwhile goes unnoticed."""
    connection = connections[conf.options().database]
    if not connection.in_atomic_block:
        connection.close()


def printable(text: str, encoding: str | None = None) -> str:
    r"""`text` as a terminal of that encoding can show it: what would steer it, or what it has no
    letter for, is written as `\x1b` and the like."""
    if not text.replace("\n", "").isprintable():
        text = "".join(char if char == "\n" or char.isprintable() else _name(char) for char in text)
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _name(char: str) -> str:
    return "    " if char == "\t" else char.encode("unicode_escape").decode("ascii")


def _json_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def width() -> int:
    """How many characters a line may take: the terminal's width, within reason."""
    return min(max(shutil.get_terminal_size((WIDE, 24)).columns, NARROW), WIDE)


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()
) -> str:
    """Aligned columns under a header; those named in `right` are numbers."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for name, cell, size in zip(header, row, widths, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    return printable(str(value)).replace("\n", "\\n")


def cut(text: str, size: int) -> str:
    """`text` in at most `size` characters; the end stays, where a task's path has its name."""
    text = _cell(text)
    return text if len(text) <= size else ".." + text[len(text) - size + 2 :]


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def clock_time(moment: datetime | None, timespec: str = "seconds") -> str:
    """A time in the site's time zone, or nothing."""
    if moment is None:
        return ""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return local.isoformat(" ", timespec)


def duration(seconds: float) -> str:
    """Roughly how long: `12s`, `5m`, `3h`, `9d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def interval(text: str) -> float:
    """A number of seconds, more than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


class Stop:
    """SIGINT and SIGTERM as a wish: what is under way is finished, waiting ends at once.

    A second signal interrupts like any Ctrl-C. Outside the main thread signals are left alone.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # A pipe, since an Event that a handler sets may be held by the very code it interrupts.
        self._reader, self._writer = os.pipe()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._told)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended early."""
        return 128 + (self.signal or 0)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        select.select([self._reader], [], [], max(seconds, 0))

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.signal = number
        os.write(self._writer, b".")


def actor() -> str:
    """Who acts, as logs will tell: the user of the operating system."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user, as in many containers
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"cli:{name}"
