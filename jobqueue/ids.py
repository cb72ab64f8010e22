"""Where ids come from: UUIDs of version 7 that only go up within a process."""

from __future__ import annotations

import heapq
import itertools
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator

_new = object.__new__
_set = object.__setattr__
_unknown = uuid.SafeUUID.unknown
_RANDOM = struct.Struct("!I")


class Source:
    """Makes ids: 48 bits of milliseconds, 42 of a counter, 32 random ones (RFC 9562, section 6.2).

    An id is greater than every id whose call had returned before this one began, in whatever thread
    and wherever the clock has stepped meanwhile: a clock that goes back is held until it has caught
    up. There is no lock: an exception raised into a thread from outside could leave it held for
    ever, and a fork would copy it as it is. Instead both halves of the order move by single
    operations that the interpreter cannot interrupt.

    `clock` gives nanoseconds since 1970.
    """

    __slots__ = ("_clock", "_count", "_latest")

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        # A heap of one: pushing and popping the smaller leaves the latest millisecond seen so far.
        self._latest = [0]
        self._count = itertools.count(self._start())

    @staticmethod
    def _start() -> int:
        # 41 of the 42 bits, so that two trillion ids fit before the counter is full.
        return int.from_bytes(os.urandom(6), "big") >> 7

    def reset(self) -> None:
        """After a fork: begin elsewhere, and after all that the parent made before it."""
        self._latest = [self._latest[0] + 1]
        self._count = itertools.count(self._start())

    def __call__(self) -> uuid.UUID:
        return next(self.several(1))

    def several(self, count: int) -> Iterator[uuid.UUID]:
        """So many ids, each greater than the one before. Of one millisecond, that of the first."""
        latest = self._latest
        heapq.heappushpop(latest, self._clock() // 1_000_000)
        # First the time, then the number: a later call finds the same or a later time, and always a
        # higher number.
        millisecond = latest[0]
        fixed = (millisecond & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | 0b10 << 62  # version, variant
        for (random,) in _RANDOM.iter_unpack(os.urandom(_RANDOM.size * count)):
            number = next(self._count)
            # UUID(int=...) says the same and takes twice as long, checking what cannot be wrong here.
            made = _new(uuid.UUID)
            value = fixed | (number >> 30 & 0xFFF) << 64 | (number & 0x3FFF_FFFF) << 32 | random
            _set(made, "int", value)
            _set(made, "is_safe", _unknown)
            yield made


_source = Source()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_source.reset)


def uuid7() -> uuid.UUID:
    """A new id, greater than all that this process has made. Safe in threads and after a fork."""
    return _source()


def several(count: int) -> Iterator[uuid.UUID]:
    """So many new ids, each greater than the one before."""
    return _source.several(count)


def first_at(seconds: float) -> uuid.UUID:
    """The lowest id of the millisecond that is `seconds` after 1970: a bound, not an id to use."""
    millisecond = max(0, int(seconds * 1000)) & 0xFFFF_FFFF_FFFF
    return uuid.UUID(int=millisecond << 80 | 0x7 << 76 | 0b10 << 62)
