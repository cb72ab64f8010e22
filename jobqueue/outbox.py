"""Outcomes on their way to the database: together, alone where a row is locked, read back where an answer was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError

from jobqueue import lifecycle
from jobqueue.alone import Alone, settle_one
from jobqueue.attempts import Attempt, Outcome, Pair
from jobqueue.board import Board
from jobqueue.lifecycle import Settled
from jobqueue.models import Status
from jobqueue.supply import Offer


class Outbox:
    """What has ended in a worker and is not known to be written yet.

    `done` is called with each outcome that has been written and the job's new status, `wake` from any thread
    when there are answers to read.
    """

    def __init__(
        self,
        owner: UUID,
        board: Board,
        done: Callable[[Outcome, Status], None],
        wake: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._board = board
        self._done = done
        self._wake = wake
        self._unsettled: list[Outcome] = []
        self._waiting_alone: set[Pair] = set()
        self._answers: deque[Settled] = deque()
        self._alone = Alone(owner, self._settled_alone)
        #: Whether the answer to a write may have been lost.
        self.is_uncertain = False

    def put(self, outcome: Outcome) -> None:
        """Take in what has ended; what an atomic task has written itself is done."""
        if outcome.written:
            self._finish(outcome, Status.COMPLETED)
        else:
            self._unsettled.append(outcome)

    @property
    def has_any(self) -> bool:
        """Whether there is something to settle now."""
        return bool(self._unsettled)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way any more."""
        return not (self._unsettled or self._waiting_alone or self._answers)

    def read_answers(self) -> None:
        """See what became of outcomes that went alone."""
        while self._answers:
            self._take(self._answers.popleft())

    def beat_alone(self, pair: Pair) -> None:
        """Extend a lease as soon as its row is free."""
        self._alone.beat(pair)

    def settle(self) -> None:
        """Write all there is. Raises the database's errors; then it is all there still."""
        outcomes = self._unsettled
        try:
            settled = lifecycle.settle(outcomes, read_back=self.is_uncertain)
        except (OperationalError, InterfaceError):
            self.is_uncertain = True
            raise
        except (DatabaseError, ValueError, TypeError):
            self.is_uncertain = True
            settled = _settle_one_by_one(outcomes)
        self._unsettled = []
        self.is_uncertain = False
        self._take(settled)

    def settle_and_claim(self, offer: Offer, worker: str) -> list[Attempt]:
        """Write what there is and claim what is offered, at once where that can be. Raises the database's errors."""
        whose = (offer.queue, self._owner, worker, offer.limit)
        which: dict[str, Any] = {"ids": offer.ids, "behind": offer.behind, "above": offer.above}
        if self._unsettled:
            try:
                exchange = lifecycle.exchange(self._unsettled, *whose, **which)
            except (OperationalError, InterfaceError):
                self.is_uncertain = True
                raise
            except (DatabaseError, ValueError, TypeError):
                # An outcome cannot be written as it is, and nothing was committed; or an answer could
                # not be read, and everything was. Reading back tells.
                self.is_uncertain = True
                self.settle()
            else:
                self._unsettled = exchange.rest
                self._take(exchange.settled)
                return exchange.claimed
        return lifecycle.claim(*whose, **which)

    def _settled_alone(self, settled: Settled) -> None:
        """Called in a thread of Alone."""
        self._answers.append(settled)
        self._wake()

    def _take(self, settled: Settled) -> None:
        for outcome in settled.locked:
            self._waiting_alone.add(outcome.attempt.pair)
            self._alone.settle(outcome)
        for outcome, status in settled.written:
            self._finish(outcome, status)
        for outcome in settled.dropped:
            self._let_go(outcome)

    def _finish(self, outcome: Outcome, status: Status) -> None:
        self._let_go(outcome)
        self._done(outcome, status)

    def _let_go(self, outcome: Outcome) -> None:
        self._board.wipe(outcome.attempt.pair)
        self._waiting_alone.discard(outcome.attempt.pair)


def _settle_one_by_one(outcomes: list[Outcome]) -> Settled:
    """One of them cannot be written as it is, and must not keep back the others."""
    together = Settled()
    for outcome in outcomes:
        settled = settle_one(outcome)
        together.written += settled.written
        together.dropped += settled.dropped
        together.locked += settled.locked
    return together
