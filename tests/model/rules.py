"""What each act does to a row, as the product does it; a breakage overrides one of these."""

from __future__ import annotations

from jobqueue.lifecycle.states import Event, allows, transition
from jobqueue.models import WAITING, Status
from tests.model.world import DEAD, NOBODY, Row

#: How a run can end, and whether for good where another attempt could follow.
ENDINGS: tuple[tuple[Event, bool], ...] = (
    (Event.COMPLETED, False),
    (Event.ERRORED, False),
    (Event.ERRORED, True),
    (Event.TIMED_OUT, False),
    (Event.SNOOZED, False),
    (Event.NOT_FOUND, False),
    (Event.NOT_FOUND, True),
    (Event.RELEASED, False),
)


class Rules:
    """The product. Which states an event may start from and lead to is the lifecycle's own table."""

    #: What workers do in their tick, and after a commit.
    looks_for_leases = True
    looks_into_the_line = True
    pushes = True
    hands_strays_back = True
    #: Whether a heartbeat names exactly the attempts that run, and extends no other lease.
    names_what_it_runs = True
    #: The attempts that a requeue makes sure of.
    grants = 1

    # The row as an event leaves it

    def move(self, row: Row, event: Event, to: Status) -> Row:
        """The row after the event, without a lease. An end that the table lacks is an error."""
        if to not in transition(event).targets:
            raise LookupError(f"the model lets {event} lead to {to}, the table does not")
        back = int(transition(event).gives_back and to in WAITING)
        return row._replace(
            status=to.value,
            owner=NOBODY,
            expired=False,
            due=False,
            back=row.back + back,
            limit=row.limit + back,
        )

    def ended(self, row: Row, event: Event, *, final: bool) -> Row:
        """What an ending makes of a row."""
        match event:
            case Event.COMPLETED:
                return self.move(row, event, Status.COMPLETED)
            case Event.RELEASED:
                return self.move(row, event, Status.QUEUED)
            case Event.SNOOZED | Event.NOT_FOUND:
                return self.move(row, event, Status.FAILED if final else Status.SCHEDULED)
            case Event.ERRORED | Event.TIMED_OUT | Event.LOST:
                over = final or not self.has_attempts_left(row)
                return self.move(row, event, Status.FAILED if over else Status.SCHEDULED)
        raise LookupError(f"{event} is no ending")

    def has_attempts_left(self, row: Row) -> bool:
        """Whether an attempt that failed may be followed by another."""
        return row.attempt < row.limit

    # Workers

    def claim(self, row: Row, owner: int) -> Row | None:
        """The claim of a row, or None where it may not be claimed."""
        if not allows(Event.CLAIMED, row.status):
            return None
        moved = self.move(row, Event.CLAIMED, Status.PROCESSING)
        return moved._replace(attempt=row.attempt + 1, owner=owner)

    def holds(self, row: Row, owner: int, attempt: int) -> bool:
        """The fence, but for the status."""
        return row.owner == owner and row.attempt == attempt

    def write(self, row: Row, owner: int, attempt: int, event: Event, final: bool) -> Row:
        """The outcome of a run, behind the fence; who runs no more what was cancelled lets go."""
        if not self.holds(row, owner, attempt):
            return row
        if row.status == Status.CANCELLED:
            return row._replace(owner=NOBODY, expired=False)
        return self.ended(row, event, final=final) if allows(event, row.status) else row

    def beat(self, row: Row, owner: int, attempt: int) -> Row:
        """The heartbeat of a run that its worker names."""
        return row._replace(expired=False) if self.holds(row, owner, attempt) else row

    def may_hand_in(self, stage: str) -> bool:
        """Whether a run may be given back: when its code has let go."""
        return stage == "ended"

    # Those who repair

    def is_lost(self, row: Row) -> bool:
        """Whether the lease is over, as whoever looks for such rows sees it."""
        return row.owner != NOBODY and row.expired

    def recover(self, row: Row) -> Row:
        """Take back a row that was found, looking at it again under its lock."""
        return self.take(row, Event.LOST) if self.is_lost(row) else row

    def is_dead(self, row: Row) -> bool:
        """Whether its supervisor may repair the row at once: it saw the process die."""
        return row.owner == DEAD

    def take(self, row: Row, event: Event) -> Row:
        """End the lease of a locked row. A cancelled one is just let go."""
        if row.status == Status.CANCELLED:
            return row._replace(owner=NOBODY, expired=False)
        return self.ended(row, event, final=False) if allows(event, row.status) else row

    def promote(self, row: Row) -> Row:
        """Queue a row that was found due, looking at it again under its lock."""
        if not (allows(Event.DUE, row.status) and row.due):
            return row
        return self.move(row, Event.DUE, Status.QUEUED)

    # People

    def cancel(self, row: Row) -> Row:
        """Cancel; what runs keeps its lease until its code has let go."""
        if not allows(Event.CANCELLED, row.status):
            return row
        moved = self.move(row, Event.CANCELLED, Status.CANCELLED)
        return moved._replace(owner=row.owner, expired=row.expired)

    def requeue(self, row: Row) -> Row:
        """Queue once more, with an attempt."""
        if not allows(Event.REQUEUED, row.status) or self.is_stopping(row):
            return row
        moved = self.move(row, Event.REQUEUED, Status.QUEUED)
        return moved._replace(limit=max(row.limit, row.attempt + self.grants))

    def is_stopping(self, row: Row) -> bool:
        """Whether a cancelled run has not let go."""
        return row.status == Status.CANCELLED and row.owner != NOBODY

    def run_now(self, row: Row) -> Row:
        """Do not wait for the time."""
        if not allows(Event.RUN_NOW, row.status):
            return row
        return self.move(row, Event.RUN_NOW, Status.QUEUED)
