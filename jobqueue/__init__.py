"""django-jobqueue: jobs for Django's tasks that live in your database and run, whatever dies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from jobqueue.context import JobContext
from jobqueue.exceptions import (
    Cancelled,
    LeaseLost,
    PermanentError,
    Retry,
    Snooze,
    Stopped,
    TaskNotFound,
    TimedOut,
    WorkerLost,
)
from jobqueue.results import JobResult
from jobqueue.task import BoundTask, Task, task

__all__ = [
    "BoundTask",
    "Cancelled",
    "JobContext",
    "JobResult",
    "LeaseLost",
    "PermanentError",
    "Retry",
    "Snooze",
    "Stopped",
    "Task",
    "TaskNotFound",
    "TimedOut",
    "WorkerLost",
    "cancel",
    "enqueue_many",
    "requeue",
    "task",
]

__version__ = "0.1.0"

# Tasks may be declared before the apps are loaded, even in an app's `__init__`. So nothing here
# imports a model, and the functions below import what they need when they are called.


def enqueue_many(calls: Iterable[BoundTask[..., Any]]) -> list[JobResult[..., Any]]:
    """Enqueue many calls, made with `task.bind(...)`: all of them or none, in one transaction.

    Returns their results in the same order; `created` says of each whether this call made its job.
    All tasks must belong to one backend alias, else it is a ValueError. The errors are those of
    `enqueue`, and name the call.
    """
    from jobqueue.backend import enqueue_many

    return enqueue_many(calls)


def cancel(job_id: UUID | str, actor: Any = None, reason: str = "") -> bool:
    """Cancel a job at once and for good; False if it had ended already.

    Code of it that still runs is told to stop, and whatever that still does changes nothing.
    `actor` is a user, a name, or None for the application itself. Raises Job.DoesNotExist.
    """
    from jobqueue import lifecycle

    return lifecycle.cancel(job_id, actor=actor, reason=reason)


def requeue(job_id: UUID | str, actor: Any = None, reason: str = "", *, attempts: int = 1) -> bool:
    """Queue a job that has ended once more, with at least `attempts` more attempts.

    False if it has not ended, or if the code of its cancelled run has not let go yet. Raises
    Job.DoesNotExist.
    """
    from jobqueue import lifecycle

    return lifecycle.requeue(job_id, actor=actor, reason=reason, attempts=attempts)
