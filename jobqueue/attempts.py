"""What a claim hands out and what comes back: one attempt of a job, and its outcome. Plain values, no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

#: The columns are this wide, in characters, and `enqueue` refuses what does not fit, so that no
#: database cuts or refuses it later. A path and a key of four-byte characters together still fit
#: a row of a PostgreSQL index (2,704 bytes).
MAX_TASK_PATH = 400
MAX_QUEUE_NAME = 100
MAX_KEY = 255


class Pair(NamedTuple):
    """A job's id and one of its attempts: with the owner, the fence."""

    id: UUID
    attempt: int


class Place(NamedTuple):
    """A place in a queue's line: behind all jobs of a higher priority, and of this one up to this id."""

    priority: int
    id: UUID


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to claim: the first `limit` jobs of `queue`, those `behind` a place of its line, those
    `above` a priority, or, with `ids`, these."""

    queue: str
    limit: int
    ids: Sequence[UUID] | None = None
    behind: Place | None = None
    above: int | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no job can be meant."""
        return self.limit <= 0 or (self.ids is not None and not self.ids)


@dataclass(slots=True)
class Attempt:
    """One claim of a job: the part of its row that running it needs, and who may write its outcome."""

    id: UUID
    task_path: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue_name: str
    priority: int
    attempt: int
    given_back: int
    max_attempts: int
    timeout: float | None
    idempotency_key: str | None
    run_after: datetime
    enqueued_at: datetime
    started_at: datetime
    attempted_at: datetime
    owner: UUID
    worker: str
    #: What names this attempt in heartbeats and fences.
    pair: Pair = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.pair = Pair(self.id, self.attempt)

    @property
    def spent(self) -> int:
        """Attempts that count, this one included: what backoff grows with."""
        return self.attempt - self.given_back


class Ending(StrEnum):
    """How an attempt can end in its worker's eyes. `lost` is not among them: nobody is left to say it."""

    COMPLETED = "completed"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    SNOOZED = "snoozed"
    NOT_FOUND = "not_found"
    RELEASED = "released"


@dataclass(slots=True)
class Outcome:
    """How one attempt ended, ready to be written.

    `delay` is in seconds from the moment of writing. `final` means no further attempt, whatever is left of them.
    `error` is one line; `data` is kept in the JobLog line (traceback, class of the exception, reason).
    """

    attempt: Attempt
    ending: Ending
    return_value: Any = None
    error: str = ""
    delay: float = 0.0
    final: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    # Seconds from the claim to the end, by the worker's own clock.
    ran: float = 0.0
    # An atomic task completes its job itself: `written` then, or, when the answer to its COMMIT was
    # lost, `may_be_completed`.
    written: bool = False
    may_be_completed: bool = False
    # For the receivers of task_finished, in the process where it was raised; never stored.
    exception: BaseException | None = None
