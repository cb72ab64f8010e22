"""How an idle worker waits for the next id, and hears of cancellations: on sockets that it can watch beside others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from jobqueue.ready.line import Unreachable
from jobqueue.ready.shelf import Shelf, read_ids

#: Seconds beyond the time it asked for after which an answer that has not come will not come.
SLACK = 1.0


class Waiter:
    """Asks for one id from the first of some queues that has one, and waits for the answer.

    One that is popped just when the waiting is broken off is found again by who looks at the database.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._deadline = 0.0
        self.is_waiting = False

    def start(self, queues: Sequence[str], seconds: float) -> None:
        """Wait for a job of these queues, the first ones first. Raises Unreachable."""
        keys = [self._shelf.key(queue) for queue in queues]
        # To Redis 0 is for ever, and to some versions so is what they round to it, as 0.001.
        self._shelf.line.start(("BZPOPMIN", *keys, f"{max(seconds, 0.01):.3f}"))
        self.is_waiting = True
        self._deadline = time.monotonic() + seconds + SLACK

    def fileno(self) -> int | None:
        """Where the answer comes, while it is waited for."""
        return self._shelf.line.fileno() if self.is_waiting else None

    @property
    def is_overdue(self) -> bool:
        """Whether the answer should have come long ago."""
        return self.is_waiting and time.monotonic() > self._deadline

    def take(self) -> tuple[str, list[UUID]] | None:
        """The queue and the id that came (none, if its member was no id), or None if the time is
        over. To be called when there is something to read. Raises Unreachable."""
        self.is_waiting = False
        answer = self._shelf.line.finish()
        if answer is None:
            return None
        key, member, _ = answer
        return key.decode().removeprefix(self._shelf.key("")), read_ids([member])

    def stop(self) -> None:
        """Wait no longer."""
        if self.is_waiting:
            self.is_waiting = False
            self._shelf.line.close()


class Bell:
    """Hears which jobs were cancelled while they ran."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.is_on = False

    def turn_on(self) -> None:
        """Subscribe. Raises Unreachable."""
        self._shelf.line.ask(("SUBSCRIBE", self._shelf.channel))
        self.is_on = True

    def fileno(self) -> int | None:
        """Where word comes."""
        return self._shelf.line.fileno() if self.is_on else None

    def heard(self) -> list[UUID]:
        """The ids that were said. To be called when there is something to read. Raises Unreachable."""
        try:
            came = self._shelf.line.listen()
        except Unreachable:
            self.is_on = False
            raise
        return read_ids(said for kind, _, said in came if kind == b"message")

    def turn_off(self) -> None:
        """Hear nothing more."""
        self.is_on = False
        self._shelf.line.close()
