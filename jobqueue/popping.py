"""How one worker takes ids out of Redis: at once while there are any, else by waiting for the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from jobqueue import healing
from jobqueue.ready import Line, Misused, Unreachable, breaker, shelf_on
from jobqueue.ready.waiting import Bell, Waiter

logger = logging.getLogger("jobqueue")

#: The most ids that a worker takes ahead of the slots that are free, while they go fast.
AHEAD = 500
#: The part of its time that a worker spends at most on looking for what Redis lacks: one in so many.
LOOK_SHARE = 20
#: Seconds after which it gives back what it has taken ahead and has found no slot for.
KEPT = 0.05


class Popper:
    """Takes ids out of Redis for one worker."""

    def __init__(self, alias: str) -> None:
        self._breaker = breaker(alias)  # one for the process, which then says things once
        self._shelf = shelf_on(Line(alias, self._breaker))
        self._waiter = Waiter(shelf_on(Line(alias, self._breaker)))
        self._bell = Bell(shelf_on(Line(alias, self._breaker)))
        self._names: list[str] = []
        self._dry: set[str] = set()
        # What came while it was waited for, or was taken ahead, by queue.
        self._stock: dict[str, list[UUID]] = {}
        self._popped_at = 0.0
        self._ahead = 0
        self._has_warned = False
        self._look_at = 0.0
        self._missed_words = False

    @property
    def works(self) -> bool:
        """Whether Redis does, as far as is known."""
        return not self._breaker.failing

    @property
    def has_more(self) -> bool:
        """Whether there may be something to take at once."""
        return bool(self._stock) or (self.works and not self._dry.issuperset(self._names))

    @property
    def give_back_at(self) -> float:
        """When (time.monotonic) to `give_back` what is still in stock."""
        return self._popped_at + KEPT if self._stock else float("inf")

    def serve(self, names: Sequence[str]) -> None:
        """Take from these queues."""
        if set(names) != set(self._names):
            self._dry.intersection_update(names)
            self._names = list(names)

    def take(self, count: int) -> tuple[str, list[UUID]] | None:
        """A queue and the next ids of it, up to `count`; None if there are none just now."""
        for name in [*self._stock, *self._names]:
            ids = self._stock.pop(name, [])
            served = name in self._names and name not in self._dry
            if len(ids) < count and self.works and served:
                self._names.remove(name)
                self._names.append(name)  # the next time it is another's turn
                ids += self._pop(name, count - len(ids))
            if ids:
                if rest := ids[count:]:
                    self._stock[name] = rest
                return name, ids[:count]
        return None

    def _pop(self, name: str, count: int) -> list[UUID]:
        now = time.monotonic()
        # Each trip to Redis costs as much as a claim. While ids go as fast as they come, more are
        # taken than there is room for.
        self._ahead = min(AHEAD, 2 * self._ahead + 1) if now < self._popped_at + KEPT else 0
        self._popped_at = now
        try:
            ids, taken = self._shelf.pop(name, count + self._ahead)
        except Misused as error:
            # The key bears our prefix, so what is in it is a mistake, and in the way.
            logger.warning("The key of queue %r is removed from Redis: %s", name, error)
            self._clear(name)
            return []
        except Unreachable:
            self._dry.add(name)
            return []
        if taken < count + self._ahead:
            self._dry.add(name)
        return ids

    def _clear(self, name: str) -> None:
        self._dry.add(name)
        try:
            self._shelf.clear(name)
        except Unreachable:
            return  # the next tick tries again

    def give_back(self) -> None:
        """Put what has found no slot back in line, for other workers. Raises the database's errors."""
        stock, self._stock, self._ahead = self._stock, {}, 0
        for name, ids in stock.items():
            try:
                self._shelf.push(healing.still_claimable(ids, name))
            except Unreachable:
                return  # they are found again by who looks at the database

    def wait(self, seconds: float) -> None:
        """Begin to wait for the next id, if nothing is to be had at once."""
        if self._waiter.is_waiting or self._stock or not self._names or not self.works:
            return
        try:
            self._waiter.start(self._names, seconds)
        except Unreachable:
            return

    def filenos(self) -> list[int]:
        """The sockets on which something may come."""
        found = (self._waiter.fileno(), self._bell.fileno())
        return [each for each in found if each is not None]

    def hear(self, readable: set[int]) -> list[UUID]:
        """Read what has come on those sockets; returns the ids of jobs that were cancelled."""
        try:
            if self._waiter.fileno() in readable:
                answer = self._waiter.take()
                if answer is not None:
                    queue, ids = answer
                    self._dry.discard(queue)
                    if ids:
                        self._stock.setdefault(queue, []).extend(ids)
                        self._popped_at = time.monotonic()
            elif self._waiter.is_overdue:
                self._waiter.stop()
            if self._bell.fileno() in readable:
                return self._bell.heard()
        except Misused:
            self._dry.clear()  # which of the keys it is shows when each is popped
        except Unreachable:
            self._waiter.stop()
        return []

    def tend(self) -> int:
        """Once a tick: see that Redis knows what is claimable. Returns how many jobs it lacked.

        Raises the database's errors.
        """
        self._dry.clear()
        try:
            if not self._bell.is_on:
                self._bell.turn_on()
                self._missed_words = True
                self._warn_of_eviction()
            lacked = healing.refill(self._shelf) or 0
            began = time.monotonic()
            if began < self._look_at:
                return lacked
            lacked += healing.look(self._shelf, self._names)
            # It takes long where an old snapshot keeps rows in the index that are claimed by now.
            now = time.monotonic()
            self._look_at = now if lacked else now + LOOK_SHARE * (now - began)
            return lacked
        except Unreachable:
            return 0

    def has_missed_words(self) -> bool:
        """Whether cancellations may have been told to nobody since this was last asked: at the
        beginning, and while the connection was cut."""
        missed, self._missed_words = self._missed_words, False
        return missed

    def _warn_of_eviction(self) -> None:
        if not self._has_warned and self._shelf.may_evict():
            self._has_warned = True
            logger.warning(
                "Redis may evict the queues' keys when its memory is full. That costs a tick each "
                'time, no job; "maxmemory-policy noeviction" spares it.'
            )

    def close(self) -> None:
        """Hang up."""
        self._shelf.line.close()
        self._waiter.stop()
        self._bell.turn_off()
