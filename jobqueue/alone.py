"""Rows that somebody else holds: each waits for its lock in a thread of its own, and holds up no other.

A worker's batches pass over locked rows. What was passed over is tried again here, waiting for the lock:
an outcome until it is written, a heartbeat until the lease is extended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from jobqueue import lifecycle, postgres
from jobqueue.attempts import Ending, Outcome, Pair
from jobqueue.lifecycle import Settled

logger = logging.getLogger("jobqueue")

#: Seconds between two tries when the database cannot be reached.
PAUSE = 0.5


class Alone:
    """The threads in which a worker's locked rows wait.

    `settled` is called, in such a thread, with what became of an outcome.
    """

    def __init__(self, owner: UUID, settled: Callable[[Settled], None]) -> None:
        self._owner = owner
        self._settled = settled
        self._beating: set[Pair] = set()

    def settle(self, outcome: Outcome) -> None:
        """Write this outcome when its row is free."""

        def settle_waiting() -> None:
            self._settled(settle_one(outcome, wait=True))

        self._start(settle_waiting, outcome.attempt.pair)

    def beat(self, pair: Pair) -> None:
        """Extend this lease when its row is free; asked again while it waits, it goes on waiting."""
        if pair in self._beating:
            return
        self._beating.add(pair)

        def beat_waiting() -> None:
            lifecycle.heartbeat_alone(self._owner, pair)
            self._beating.discard(pair)

        self._start(beat_waiting, pair)

    def _start(self, work: Callable[[], None], pair: Pair) -> None:
        name = f"jobqueue-alone-{pair.id}"
        threading.Thread(target=_insist, args=(work, pair), name=name, daemon=True).start()


def settle_one(outcome: Outcome, *, wait: bool = False) -> Settled:
    """Write one outcome by itself: as it is or, where the database refuses its content, as one
    that says so. Raises what the database raises when it cannot be written to at all."""
    try:
        return lifecycle.settle([outcome], wait=wait, read_back=True)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, ValueError, TypeError) as error:
        plain = Outcome(
            outcome.attempt,
            Ending.ERRORED,
            error=f"The outcome ({outcome.ending.value}) could not be written: "
            f"{type(error).__name__}",
            final=True,
        )
        settled = lifecycle.settle([plain], wait=wait, read_back=True)
        logger.error(
            "The outcome of job %s could not be written.", outcome.attempt.id, exc_info=error
        )
        return settled


def _insist(work: Callable[[], None], pair: Pair) -> None:
    """Do the work on a connection of this thread's own, again and again until it succeeds."""
    try:
        while True:
            try:
                work()
                return
            except (DatabaseError, InterfaceError) as error:
                logger.warning(
                    "Job %s, whose row is locked, will be tried again: %s", pair.id, error
                )
                # Where the site limits how long one may wait for a lock, there is nothing to wait
                # for between two tries: somebody else might get the row.
                if not postgres.is_lock_timeout(error):
                    connections.close_all()
                    time.sleep(PAUSE)
    finally:
        connections.close_all()
