"""Where a worker's next jobs come from: Redis while it works, the database whenever it does not.

From Redis come ids, popped at once while there are any and waited for when there are none. The database is asked when
word comes that Redis does not know of something, and once in a while, whatever was heard.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobqueue import conf, healing, queues
from jobqueue.attempts import Attempt, Place
from jobqueue.dispatch import Ear
from jobqueue.ready import Line, Unreachable, breaker, shelf_on
from jobqueue.ready.waiting import Bell, Waiter
from jobqueue.turns import Turns

logger = logging.getLogger("jobqueue")

#: The most ids that a worker takes ahead of the slots that are free, while they go fast.
AHEAD = 500
#: Seconds after which it gives back what it has taken ahead and has found no slot for.
KEPT = 0.05
#: Seconds for which a worker may claim behind the place where it left off. So long may a more
#: urgent job have to wait behind others, while the queue gives all that a worker asks for.
LEFT_OFF = 1.0


@dataclass(slots=True)
class Offer:
    """What may be claimed: up to `limit` jobs of `queue`; with `ids` these, with `behind` those
    after a place in its line. Who has claimed notes what came of it."""

    queue: str
    limit: int
    ids: Sequence[UUID] | None = None
    behind: Place | None = None
    got: int = 0
    last: Place | None = None

    def note(self, claimed: Sequence[Attempt]) -> None:
        """These are the attempts that the claim began, in their order."""
        self.got = len(claimed)
        if claimed:
            self.last = Place(claimed[-1].priority, claimed[-1].id)


class LeftOff:
    """Where the last claims of a worker ended, for as long as they come back full.

    Rows that others have claimed stay in the index while somebody's old snapshot could see them,
    and each scan from the front would walk over all of them.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[Place, float]] = {}

    def of(self, queue: str) -> Place | None:
        """Behind which place to claim from a queue; None for its front."""
        place, until = self._places.get(queue, (None, 0.0))
        return place if time.monotonic() < until else None

    def note(self, offer: Offer) -> None:
        """A claim has been made."""
        if offer.got < offer.limit or offer.last is None:
            self._places.pop(offer.queue, None)
            return
        until = time.monotonic() + LEFT_OFF
        if offer.behind is not None:
            until = self._places.get(offer.queue, (None, until))[1]
        self._places[offer.queue] = offer.last, until


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

    @property
    def works(self) -> bool:
        """Whether Redis does, as far as is known."""
        return not self._breaker.failing

    @property
    def reserved(self) -> int:
        """Slots that are kept for what is waited for."""
        return 1 if self._waiter.is_waiting else 0

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
        except Unreachable:
            # If only the key is another's: not before the tick has put that right.
            self._dry.add(name)
            return []
        if taken < count + self._ahead:
            self._dry.add(name)
        return ids

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
                self._warn_of_eviction()
            lacked = healing.refill(self._shelf) or 0
            return lacked + healing.look(self._shelf, self._names)
        except Unreachable:
            return 0

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


class Supply:
    """The queues of a plan, in turns, from wherever their jobs come first."""

    def __init__(self, names: Sequence[str], using: str) -> None:
        options = conf.options()
        self._ear = Ear(using, options.tick)
        self.turns = Turns(names, self._ear, grows=not names)
        self._left_off = LeftOff()
        self._popper = Popper(options.redis) if options.redis else None
        if self._popper is not None:
            self._popper.serve(self.turns.names)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is known that could be claimed."""
        return self.turns.all_dry and not (self._popper and self._popper.has_more)

    @property
    def reserved(self) -> int:
        """Slots that must stay free for what may come."""
        return self._popper.reserved if self._popper else 0

    def offers(self, room: Callable[[], int]) -> Iterator[Offer]:
        """What to claim, one after the other, as long as there is room."""
        if self._popper is not None:
            while (free := room()) > 0 and (taken := self._popper.take(free)):
                yield Offer(taken[0], free, taken[1])
        for queue in self.turns.take():
            while True:
                if (free := room()) <= 0:
                    return
                offer = Offer(queue, free, behind=self._left_off.of(queue))
                yield offer
                self._left_off.note(offer)
                if offer.behind is None or offer.got == free:
                    break
            if offer.got < free:
                self.turns.is_dry(queue)

    def attend(self) -> None:
        """The database has been reached, perhaps again: listen to it. Raises its errors."""
        self._ear.attend()

    def hear(self) -> None:
        """Find out which queues may hold something. Raises the database's errors."""
        self.turns.hear()

    def tend(self) -> None:
        """Once a tick: see that no claimable job is overlooked. Raises the database's errors."""
        if self._popper is not None:
            paused = queues.paused()
            self._popper.serve([name for name in self.turns.names if name not in paused])
            if self._popper.tend():
                self.turns.look_soon()

    def wait(self) -> None:
        """Nothing is to be had now: begin to wait for what comes."""
        if self._popper is not None:
            self._popper.wait(conf.options().tick)

    @property
    def give_back_at(self) -> float:
        """When (time.monotonic) to give back what was taken ahead and has found no slot."""
        return self._popper.give_back_at if self._popper else float("inf")

    def give_back(self) -> None:
        """Leave to others what was taken ahead. Raises the database's errors."""
        if self._popper is not None:
            self._popper.give_back()

    def filenos(self) -> list[int]:
        """The sockets of Redis on which something may come."""
        return self._popper.filenos() if self._popper else []

    def database_fileno(self) -> int | None:
        """The socket of the database on which word may come."""
        return self._ear.fileno()

    def read(self, readable: set[int]) -> list[UUID]:
        """Read what has come on the sockets of Redis; returns the ids of jobs that were cancelled."""
        return self._popper.hear(readable) if self._popper else []

    def close(self) -> None:
        """Take nothing more."""
        if self._popper is not None:
            self._popper.close()
