"""The memory that a worker shares with its supervisor: which attempts it runs, and until when each may.

The worker chalks up an attempt before its body begins and wipes it off when its outcome is written. The
supervisor reads it to keep the leases, to see what overruns, and, when the worker is dead, what it held.
No message is sent and no lock taken, so neither a busy interpreter nor a stopped process can silence it.

A reader may catch an entry half written. That is harmless: a heartbeat names a pair that does not exist, or
misses one of three; and nobody is judged by a single look.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from jobqueue.attempts import Pair

_HEADER = struct.Struct("=IIddd")
_ENTRY = struct.Struct("=16sIId")
_PRESENT = 1


class Farewell(IntEnum):
    """Why a worker left of its own accord; UNEXPECTED is what is there when it did not."""

    UNEXPECTED = 0
    STOPPED = 1
    RECYCLED = 2
    IDLE = 3  # nothing to claim, in a burst
    DISMISSED = 4  # staff wanted it to stop


@dataclass(frozen=True, slots=True)
class Entry:
    """An attempt on the board; `deadline` by time.monotonic, which all processes of a host share."""

    pair: Pair
    deadline: float


class Board:
    """Room for `size` attempts, in memory shared with children that are forked later."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, _HEADER.size + size * _ENTRY.size)
        self._free = list(range(size - 1, -1, -1))
        self._places: dict[Pair, int] = {}

    # The worker's side

    @property
    def room(self) -> int:
        """How many more attempts can be chalked up."""
        return len(self._free)

    def put(self, pair: Pair, deadline: float) -> None:
        """Chalk up an attempt that is about to begin."""
        place = self._free.pop()
        self._places[pair] = place
        _ENTRY.pack_into(
            self._memory,
            _HEADER.size + place * _ENTRY.size,
            pair.id.bytes,
            pair.attempt,
            _PRESENT,
            deadline,
        )

    def wipe(self, pair: Pair) -> None:
        """Wipe off an attempt whose outcome is written, or is nobody's any more."""
        place = self._places.pop(pair, None)
        if place is None:
            return
        offset = _HEADER.size + place * _ENTRY.size
        self._memory[offset : offset + _ENTRY.size] = bytes(_ENTRY.size)
        self._free.append(place)

    def begin_claim(self) -> None:
        """Say that rows may become this worker's that are not on the board yet."""
        self._set(claims=self._claims + 1)

    def end_claim(self) -> None:
        """Say that all that was claimed is on the board."""
        self._set(claims=self._claims + 1)

    def say_farewell(self, farewell: Farewell) -> None:
        """Leave word why the worker exits."""
        self._set(farewell=farewell)

    def mark_ready(self) -> None:
        """Say that the worker has reached the database and claims jobs."""
        self._set(ready_at=time.monotonic())

    def mark_dismissed(self, leave_by: float) -> None:
        """Say that the worker is to leave for good, and by when (time.monotonic)."""
        self._set(leave_by=leave_by)

    @property
    def beaten_at(self) -> float:
        """When (time.monotonic) the supervisor last extended the leases; 0 if it never has."""
        return self._header[3]

    # The supervisor's side

    def entries(self) -> list[Entry]:
        """The attempts that are on the board."""
        return list(self._read())

    def _read(self) -> Iterator[Entry]:
        memory = bytes(self._memory)
        for key, attempt, present, deadline in _ENTRY.iter_unpack(memory[_HEADER.size :]):
            if present == _PRESENT:
                yield Entry(Pair(UUID(bytes=key), attempt), deadline)

    @property
    def claims(self) -> int:
        """A counter that is odd while a claim is under way, and another one after each."""
        return self._claims

    @property
    def farewell(self) -> Farewell:
        """The word that the worker left."""
        return Farewell(self._header[1])

    @property
    def ready(self) -> bool:
        """Whether the worker got as far as claiming jobs."""
        return self._header[2] > 0

    @property
    def leave_by(self) -> float | None:
        """By when (time.monotonic) the worker is to have left, without being replaced."""
        return self._header[4] or None

    def mark_beaten(self) -> None:
        """Tell the worker that its leases have just been extended."""
        self._set(beaten_at=time.monotonic())

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    # Both write to the header, each its own fields, so each field is written alone.

    @property
    def _header(self) -> tuple[int, int, float, float, float]:
        return _HEADER.unpack_from(self._memory, 0)

    @property
    def _claims(self) -> int:
        return self._header[0]

    def _set(
        self,
        *,
        claims: int | None = None,
        farewell: Farewell | None = None,
        ready_at: float | None = None,
        beaten_at: float | None = None,
        leave_by: float | None = None,
    ) -> None:
        if claims is not None:
            struct.pack_into("=I", self._memory, 0, claims & 0xFFFFFFFF)
        if farewell is not None:
            struct.pack_into("=I", self._memory, 4, farewell)
        if ready_at is not None:
            struct.pack_into("=d", self._memory, 8, ready_at)
        if beaten_at is not None:
            struct.pack_into("=d", self._memory, 16, beaten_at)
        if leave_by is not None:
            struct.pack_into("=d", self._memory, 24, leave_by)
