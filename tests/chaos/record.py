"""The record of a run: one file to which every process appends lines, each in a single write."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Names the run's folder to the processes of a run.
VARIABLE = "JOBQUEUE_CHAOS_ROOM"

Line = dict[str, Any]


def folder() -> Path | None:
    """The folder of the run that this process belongs to, if it does."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def moment() -> float:
    """Now, by the machine's clock, which PostgreSQL tells too, and which no run moves."""
    return time.clock_gettime(time.CLOCK_REALTIME)


@functools.cache
def _descriptor(path: str) -> int:
    # Kept open, and shared with what is forked later: O_APPEND needs no agreement.
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def say(event: str, **data: Any) -> None:
    """Append a line: what happened, in which process, when."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return
    line = {"event": event, "pid": os.getpid(), "at": moment(), **data}
    os.write(_descriptor(f"{named}/events"), json.dumps(line).encode() + b"\n")


class Reader:
    """Reads what has been appended since it read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self, *events: str) -> Iterator[Line]:
        """The new lines about these events (all, if none is named)."""
        if not self._path.exists():
            return
        marks = [f'"event": "{event}"'.encode() for event in events]
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for text in file:
                if not text.endswith(b"\n"):
                    return  # on its way
                self._offset += len(text)
                if not marks or any(mark in text for mark in marks):
                    yield json.loads(text)
