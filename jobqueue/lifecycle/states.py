"""The state machine as data: every move that a job can make, its guard, and who makes it.

The tests walk this table, the docs are rendered from it, and the buttons that staff see are chosen by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from jobqueue.models import FINAL, WAITING, Status


class Event(StrEnum):
    """What can happen to a job."""

    ENQUEUED = "enqueued"
    DUE = "due"
    RUN_NOW = "run_now"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    SNOOZED = "snoozed"
    NOT_FOUND = "not_found"
    RELEASED = "released"
    LOST = "lost"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: the states an event starts from and leads to, its guard and who causes it."""

    event: Event
    sources: frozenset[Status]
    targets: frozenset[Status]
    guard: str
    by: str
    gives_back: bool = False


def _row(
    event: Event,
    sources: Iterable[Status],
    targets: Iterable[Status],
    guard: str,
    by: str,
    gives_back: bool = False,
) -> Transition:
    return Transition(event, frozenset(sources), frozenset(targets), guard, by, gives_back)


_RUNNING = [Status.PROCESSING]
_RETRIED = [Status.SCHEDULED, Status.FAILED]
_FENCE = "the fence: id, attempt and owner, status processing"

TRANSITIONS: tuple[Transition, ...] = (
    _row(
        Event.ENQUEUED, [], WAITING, "the arguments are JSON; the key is free", "application code"
    ),
    _row(
        Event.DUE,
        [Status.SCHEDULED],
        [Status.QUEUED],
        "run_after has passed; row lock",
        "workers' tick, reconcile",
    ),
    _row(Event.RUN_NOW, [Status.SCHEDULED], [Status.QUEUED], "row lock", "staff"),
    _row(
        Event.CLAIMED,
        [Status.QUEUED],
        _RUNNING,
        "the queue is not paused; the row is not locked; attempt + 1 and the lease in the same statement",
        "worker",
    ),
    _row(Event.COMPLETED, _RUNNING, [Status.COMPLETED], _FENCE, "worker"),
    _row(
        Event.ERRORED, _RUNNING, _RETRIED, _FENCE + "; scheduled while attempts are left", "worker"
    ),
    _row(
        Event.TIMED_OUT,
        _RUNNING,
        _RETRIED,
        _FENCE + "; scheduled while attempts are left",
        "worker, supervisor",
    ),
    _row(Event.SNOOZED, _RUNNING, [Status.SCHEDULED], _FENCE, "the task", gives_back=True),
    _row(
        Event.NOT_FOUND,
        _RUNNING,
        _RETRIED,
        _FENCE + "; failed after a day",
        "worker",
        gives_back=True,
    ),
    _row(
        Event.RELEASED,
        _RUNNING,
        [Status.QUEUED],
        _FENCE,
        "stopping worker, supervisor",
        gives_back=True,
    ),
    _row(
        Event.LOST,
        _RUNNING,
        _RETRIED,
        "the lease has expired, or the supervisor saw the process die; row lock",
        "supervisor, workers' tick, reconcile",
    ),
    _row(
        Event.CANCELLED,
        [*WAITING, Status.PROCESSING],
        [Status.CANCELLED],
        "row lock; a running one keeps its lease until its code has let go",
        "staff, application code",
    ),
    _row(
        Event.REQUEUED,
        FINAL,
        [Status.QUEUED],
        "row lock; refused while a cancelled run is still stopping",
        "staff, application code",
    ),
)

_BY_EVENT = {transition.event: transition for transition in TRANSITIONS}


def transition(event: Event) -> Transition:
    """The row of the table for `event`."""
    return _BY_EVENT[event]


def allows(event: Event, status: str) -> bool:
    """Whether `event` may happen to a job in `status`."""
    return status in _BY_EVENT[event].sources


def refusal(event: Event, status: str, *, stopping: bool = False) -> str | None:
    """Why `event` may not happen to a job in `status`, in words for people; None if it may."""
    if not allows(event, status):
        return _only(event.replace("_", " "), status, _BY_EVENT[event].sources)
    if event is Event.REQUEUED and stopping:
        return STILL_STOPPING
    return None


def purge_refusal(status: str, *, stopping: bool = False) -> str | None:
    """Why a job in `status` may not be removed for ever, in words for people; None if it may."""
    if status not in FINAL:
        return _only("purged", status, FINAL)
    return STILL_STOPPING if stopping else None


STILL_STOPPING = "its cancelled run has not let go yet; try again when it has"


def _only(done: str, status: str, sources: Iterable[str]) -> str:
    return f"it is {status}; only these can be {done}: {', '.join(sorted(sources))}"
