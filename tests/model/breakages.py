"""The mistakes that queues make, one at a time: each must be found, and told as the way that leads to it."""

from __future__ import annotations

from jobqueue.lifecycle.states import Event
from jobqueue.models import FINAL, Status
from tests.model.rules import Rules
from tests.model.world import NOBODY, RUNNING, Row


class FinishesByIdAlone(Rules):
    """An outcome is written WHERE id = ..., whoever runs the job by now."""

    def write(self, row: Row, owner: int, attempt: int, event: Event, final: bool) -> Row:
        return self.ended(row, event, final=final)


class FencesByStatusAlone(Rules):
    """An outcome is written while the job is processing, whoever's it is."""

    def holds(self, row: Row, owner: int, attempt: int) -> bool:
        return row.status == Status.PROCESSING


class FencesWithoutTheAttempt(Rules):
    """An outcome is written by the owner, though it may be that of an earlier attempt of its own."""

    def holds(self, row: Row, owner: int, attempt: int) -> bool:
        return row.owner == owner


class BeatsByIdAlone(Rules):
    """A heartbeat extends whoever's lease there is."""

    def beat(self, row: Row, owner: int, attempt: int) -> Row:
        return row._replace(expired=False)


class BeatsForAllThatItOwns(Rules):
    """Heartbeats extend every row of the worker; what it owns and does not run is never given back."""

    names_what_it_runs = False
    hands_strays_back = False


class ForgetsTheCancelOnFailure(Rules):
    """A run that failed is retried without looking whether the job was cancelled meanwhile."""

    def write(self, row: Row, owner: int, attempt: int, event: Event, final: bool) -> Row:
        if event is Event.ERRORED and self.holds(row, owner, attempt):
            return self.ended(row, event, final=final)
        return super().write(row, owner, attempt, event, final)


class ForgetsTheCancelOnRecovery(Rules):
    """A row whose lease is over is retried, cancelled or not."""

    def recover(self, row: Row) -> Row:
        return self.ended(row, Event.LOST, final=False) if self.is_lost(row) else row


class CancelledRowsKeepTheirLease(Rules):
    """Only running rows are recovered: nobody lets go of a cancelled one whose worker died."""

    def is_lost(self, row: Row) -> bool:
        return super().is_lost(row) and row.status == Status.PROCESSING


class CancelEndsTheLease(Rules):
    """A cancelled job is nobody's at once, so that it can be requeued beside its own code."""

    def cancel(self, row: Row) -> Row:
        after = super().cancel(row)
        return after if after == row else after._replace(owner=NOBODY, expired=False)


class CancelsWhatHasEnded(Rules):
    """Cancel does not look whether the job has ended."""

    def cancel(self, row: Row) -> Row:
        if row.status in FINAL:
            return self.move(row, Event.CANCELLED, Status.CANCELLED)
        return super().cancel(row)


class RequeuesWhatIsStillStopping(Rules):
    """A cancelled job can be queued again although its code has not let go."""

    def is_stopping(self, row: Row) -> bool:
        return False


class RequeuesWithoutAnAttempt(Rules):
    """A job that has used up its attempts is queued again with none."""

    grants = 0


class ReadsThenRecovers(Rules):
    """Rows are read, and what was found is written without a second look under the lock."""

    def recover(self, row: Row) -> Row:
        return self.ended(row, Event.LOST, final=False)


class ReadsThenPromotes(Rules):
    """Due rows are read, and queued without a second look."""

    def promote(self, row: Row) -> Row:
        return self.move(row, Event.DUE, Status.QUEUED)


class RecoversByAge(Rules):
    """What has been running for long is taken for dead."""

    def is_lost(self, row: Row) -> bool:
        return row.owner != NOBODY


class CountsTwice(Rules):
    """Recovery counts the attempt that the claim has counted."""

    def recover(self, row: Row) -> Row:
        after = super().recover(row)
        return after if after == row else after._replace(attempt=after.attempt + 1)


class DoesNotCountCrashes(Rules):
    """A lost attempt is taken back by counting down, so that a deadly job never runs out of them."""

    def recover(self, row: Row) -> Row:
        after = super().recover(row)
        lost = row.status == Status.PROCESSING and after != row
        return after._replace(attempt=after.attempt - 1) if lost else after


class RetriesForEver(Rules):
    """Nobody looks at how many attempts are left."""

    def has_attempts_left(self, row: Row) -> bool:
        return True


class GivesNothingBack(Rules):
    """A released job is queued again, and its attempt is spent."""

    def move(self, row: Row, event: Event, to: Status) -> Row:
        after = super().move(row, event, to)
        return after._replace(back=row.back, limit=row.limit)


class ReleasesBeforeTheCodeHasLetGo(Rules):
    """At a stop jobs are given back while their code still runs."""

    def may_hand_in(self, stage: str) -> bool:
        return stage == RUNNING


class ReplacesBeforeItIsDead(Rules):
    """The supervisor writes the outcome of a process that it has told to die, and that lives."""

    def is_dead(self, row: Row) -> bool:
        return row.owner != NOBODY


class NobodyLooksForLeases(Rules):
    """Only the supervisor repairs, and it can die with its workers."""

    looks_for_leases = False


class ClaimsWhatRedisSays(Rules):
    """An id from Redis is leased whatever its row says."""

    def claim(self, row: Row, owner: int) -> Row | None:
        moved = self.move(row, Event.CLAIMED, Status.PROCESSING)
        return moved._replace(attempt=row.attempt + 1, owner=owner)


class RunsWhatRedisSays(Rules):
    """An id from Redis is run, and the database is told afterwards."""

    def claim(self, row: Row, owner: int) -> Row | None:
        return row if row.status else None


class NeverLooksIntoTheLine(Rules):
    """What Redis has lost, or was never told, is not looked for."""

    looks_into_the_line = False


class NeitherPushesNorLooks(Rules):
    """Redis is never told."""

    pushes = False
    looks_into_the_line = False
