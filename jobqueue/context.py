"""What a task with `takes_context` is given: which job it is, how to tell of it, when to stop."""

from __future__ import annotations

import logging
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from jobqueue import conf
from jobqueue.attempts import Attempt
from jobqueue.compat import BaseTaskContext
from jobqueue.compat import Task as AnyTask
from jobqueue.exceptions import Cancelled, LeaseLost, Stopped, TimedOut
from jobqueue.results import running_result
from jobqueue.texts import storable_text

if TYPE_CHECKING:
    from jobqueue.lifecycle.notes import Note

logger = logging.getLogger("jobqueue")

LEVELS: Final = ("debug", "info", "warning", "error")
"""How much a line in the log should worry its reader."""

#: The longest message that goes with a progress, in characters.
MAX_MESSAGE = 200

_WORDS: Final[dict[type[Stopped], str]] = {
    Cancelled: "the job was cancelled",
    LeaseLost: "the job is no longer this worker's; its outcome will not be recorded",
    TimedOut: "the attempt has run longer than its timeout",
}


class Run(Protocol):
    """What the context needs of the attempt that is running."""

    @property
    def attempt(self) -> Attempt:
        """The attempt, as it was claimed."""

    @property
    def stopped(self) -> type[Stopped] | None:
        """Why the task has been told to stop; None while it has not."""

    def note(self, note: Note, /) -> None:
        """Take a line or a progress, to be written on the queue's own connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(BaseTaskContext[Any, Any]):  # type: ignore[misc]  # the stubs' is not frozen
    """Django's TaskContext, and what a job has besides.

    Under another backend (Django's immediate one, in tests) there is no `run`: then there is one
    attempt, nobody cancels it, and progress and log go to Python's logger `jobqueue`.
    """

    run: Run | None = None

    @classmethod
    def of_run(cls, run: Run, task: AnyTask[..., Any]) -> JobContext:
        """The context of an attempt that begins now."""
        backend = conf.alias() or task.backend
        return cls(task_result=running_result(run.attempt, task, backend), run=run)

    @property
    def job_id(self) -> str:
        """The job's id, as text: the same on every attempt."""
        return self.task_result.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.run.attempt.attempt if self.run else self.task_result.attempts

    @property
    def max_attempts(self) -> int:
        """The number of the last attempt that there may be; it grows when one is given back."""
        return self.run.attempt.max_attempts if self.run else 1

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of the job: hand it to services that take such a key.

        It is the key that the job was enqueued with, after its task's path; the job's id when there
        was none.
        """
        if self.run:
            path, key = self.run.attempt.task_path, self.run.attempt.idempotency_key
        else:
            # Only tasks of ours are called with a context of ours.
            task: Any = self.task_result.task
            path, key = task.module_path, task.idempotency_key
        return self.job_id if key is None else f"{path}:{key}"

    @property
    def cancelled(self) -> bool:
        """Whether the job has been cancelled, as far as the worker has heard."""
        return self.run is not None and self.run.stopped is Cancelled

    def check(self) -> None:
        """Raise `Cancelled`, `TimedOut` or `LeaseLost` if the task has been told to stop so."""
        stopped = self.run.stopped if self.run else None
        if stopped is not None:
            raise stopped(_WORDS.get(stopped, "the task was told to stop"))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Show how far the task is: `done` of `total` (None: it is not known), and a few words.

        The last one is kept with the job. TypeError or ValueError for what is not a number from 0.
        """
        said = storable_text(str(message), MAX_MESSAGE)
        whole = None if total is None else _number(total, "total")
        progress = {"done": _number(done, "done"), "total": whole, "message": said}
        if self.run is None:
            of = "" if total is None else f" of {total}"
            logger.info("Job %s: %s%s done. %s", self.job_id, done, of, said)
            return
        from jobqueue.lifecycle.notes import Note  # models, not loaded yet when tasks are declared

        self.run.note(Note(self.run.attempt, progress=progress))

    def log(self, message: str, level: str = "info") -> None:
        """Add a line of the task's own to the job's log.

        `level` is one of debug, info, warning and error, else it is a ValueError.
        """
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}.")
        if self.run is None:
            number = logging.getLevelNamesMapping()[level.upper()]
            logger.log(number, "Job %s: %s", self.job_id, message)
            return
        from jobqueue.lifecycle.notes import Note  # models, not loaded yet when tasks are declared

        self.run.note(Note(self.run.attempt, message=str(message), level=level))


def _number(value: Any, name: str) -> float:
    """`value` as a plain number that JSON can hold."""
    # NumPy's numbers are numbers, too; True is an int to Python and a mistake to everyone else.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}.")
    number: float = int(value) if isinstance(value, numbers.Integral) else float(value)
    if not 0 <= number < 2**63:  # not a number compares false, too
        raise ValueError(f"{name} must be from 0 to less than 2**63, not {value!r}.")
    return number
