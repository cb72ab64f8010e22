"""Where a worker's next jobs come from: Redis while it works, the database whenever it does not.

From Redis come ids, popped at once while there are any and waited for when there are none. The database is asked when
word comes that Redis does not know of something, and once in a while, whatever was heard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobqueue import conf, queues
from jobqueue.attempts import Attempt, Place
from jobqueue.dispatch import Ear
from jobqueue.popping import Popper
from jobqueue.turns import Turns

#: Claims of ids in a row: if Redis is full of ids that nobody can claim, the worker has other
#: things to see to in between.
IN_A_ROW = 20
#: Seconds between two looks of a worker that goes on where it left off at what is more urgent.
LOOK_ABOVE = 1.0
#: It begins at the front again after that time, or so many times what that took, if this is longer.
FRONT_SHARE = 20


@dataclass(slots=True)
class Offer:
    """What may be claimed: up to `limit` jobs of `queue`; with `ids` these, with `behind` those
    after a place in its line, with `above` those of a higher priority. Who has claimed notes what came of it."""

    queue: str
    limit: int
    ids: Sequence[UUID] | None = None
    behind: Place | None = None
    above: int | None = None
    got: int = 0
    last: Place | None = None

    def note(self, claimed: Sequence[Attempt]) -> None:
        """These are the attempts that the claim began, in their order."""
        self.got = len(claimed)
        if claimed:
            self.last = Place(claimed[-1].priority, claimed[-1].id)


@dataclass(slots=True)
class _Mark:
    place: Place
    look_above_at: float
    front_at: float


class LeftOff:
    """Where the last claims of a worker ended, for as long as they come back full.

    Rows that others have claimed stay in the index while somebody's old snapshot could see them,
    and each scan from the front walks over all of them. So a worker goes on where it left off.
    What is more urgent stands before all that in the index, and costs nothing to find; only what
    is as urgent and older, a job that was given back, may have to wait a little longer.
    """

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}

    def offer(self, queue: str, limit: int) -> Offer:
        """What to claim next from a queue."""
        mark, now = self._marks.get(queue), time.monotonic()
        if mark is None or now >= mark.front_at:
            return Offer(queue, limit)
        if now >= mark.look_above_at:
            mark.look_above_at = now + LOOK_ABOVE
            return Offer(queue, limit, above=mark.place.priority)
        return Offer(queue, limit, behind=mark.place)

    def note(self, offer: Offer, seconds: float) -> None:
        """A claim has been made, and has taken so long."""
        if offer.above is not None:
            return
        mark = self._marks.get(offer.queue)
        if offer.got < offer.limit or offer.last is None:
            self._marks.pop(offer.queue, None)
        elif offer.behind is not None and mark is not None:
            mark.place = offer.last
        else:
            now = time.monotonic()
            front_at = now + max(LOOK_ABOVE, FRONT_SHARE * seconds)
            self._marks[offer.queue] = _Mark(offer.last, now + LOOK_ABOVE, front_at)


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

    def offers(self, room: Callable[[], int]) -> Iterator[Offer]:
        """What to claim, one after the other, as long as there is room."""
        if self._popper is not None:
            for _ in range(IN_A_ROW):
                if (free := room()) <= 0 or (taken := self._popper.take(free)) is None:
                    break
                yield Offer(taken[0], free, taken[1])
        for queue in self.turns.take():
            while True:
                if (free := room()) <= 0:
                    return
                offer = self._left_off.offer(queue, free)
                began = time.monotonic()
                yield offer
                self._left_off.note(offer, time.monotonic() - began)
                from_front = offer.behind is None and offer.above is None
                if from_front or offer.got == free:
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

    def has_missed_words(self) -> bool:
        """Whether there may have been cancellations of which Redis could not tell since this was last asked."""
        return self._popper is not None and self._popper.has_missed_words()

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
