"""Whose turn it is: the queues that a worker claims from, one after the other, while they give.

A queue that gave less than it was asked for is dry. It is asked again when word comes that something is in it,
and whenever it is time to look at all of them, whatever was heard or missed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from jobqueue.compat import DEFAULT_TASK_QUEUE_NAME
from jobqueue.dispatch import LOOK_AGAIN, Ear


class Turns:
    """The queues in `names`; with `grows`, also those that word comes of later."""

    def __init__(self, names: Iterable[str], ear: Ear, *, grows: bool) -> None:
        # The queue that every site has, before any job in it was seen.
        self._names = list(names) or [DEFAULT_TASK_QUEUE_NAME]
        self._ear = ear
        self._grows = grows
        self._dry: set[str] = set()
        self._look_at = 0.0
        self._ask_at = 0.0
        self._again_until = 0.0

    @property
    def names(self) -> list[str]:
        """The queues, sorted."""
        return sorted(self._names)

    @property
    def all_dry(self) -> bool:
        """Whether no queue is known to hold anything."""
        return self._dry.issuperset(self._names)

    def add(self, names: Iterable[str]) -> None:
        """Claim from these queues too."""
        self._names += [name for name in names if name not in self._names]

    def look_at_all(self) -> None:
        """Take no queue for dry any more."""
        self._dry.clear()

    def look_soon(self) -> None:
        """Look at all of them when next asked, whatever is heard."""
        self._look_at = 0.0

    def take(self) -> Iterator[str]:
        """The queues to ask, one after the other. One that has been asked goes to the end of the
        line when the next is taken; who leaves off at one leaves it its turn."""
        for _ in range(len(self._names)):
            name = self._names[0]
            if name not in self._dry:
                yield name
            self._names.append(self._names.pop(0))

    def is_dry(self, name: str) -> None:
        """Note that the queue gave less than it was asked for."""
        self._dry.add(name)

    def hear(self) -> None:
        """Find out which queues may hold something. Raises the database's errors."""
        now = time.monotonic()
        heard: set[str] | None = set()
        if now >= self._ask_at or self._ear.has_word:
            heard = self._ear.heard()
            if self._ear.fileno() is None:
                self._ask_at = now + self._ear.ask_every
        if heard:
            self._again_until = now + LOOK_AGAIN
            if self._grows:
                self.add(sorted(heard))
            self._dry -= heard
        if heard is None or now >= self._look_at or now < self._again_until:
            self._dry.clear()
            self._look_at = now + self._ear.look_every

    def next_moment(self, now: float) -> float:
        """When (time.monotonic) to `hear` again, if no word comes before."""
        if self._ear.has_word:
            return now
        moment = self._look_at
        if self._ear.fileno() is None:
            moment = min(moment, self._ask_at)  # gone by already, if what came in between took long
        if now < self._again_until:
            moment = min(moment, now + LOOK_AGAIN / 4)
        return moment
