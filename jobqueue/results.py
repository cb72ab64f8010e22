"""What callers see of a job: Django's TaskResult, made from the job's row and its log."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import isclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from django.utils.module_loading import import_string

from jobqueue import conf
from jobqueue.attempts import Attempt
from jobqueue.compat import BaseTaskResult, TaskError, TaskResultStatus
from jobqueue.compat import Task as AnyTask
from jobqueue.values import as_mapping

if TYPE_CHECKING:
    from datetime import datetime

    from jobqueue.lifecycle import NewJob
    from jobqueue.models import Job

P = ParamSpec("P")
R = TypeVar("R")

STATUSES: Final[Mapping[str, TaskResultStatus]] = {
    "scheduled": TaskResultStatus.READY,
    "queued": TaskResultStatus.READY,
    "processing": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
"""What each status of a job is called in Django's tasks."""

CANCELLED: Final = "jobqueue.Cancelled"

# The lines that are errors, each with the class it stands for when it names none that can be
# imported.
_ERRORS: Final[Mapping[str, str]] = {
    "errored": "builtins.Exception",
    "timed_out": "jobqueue.TimedOut",
    "lost": "jobqueue.WorkerLost",
    "not_found": "jobqueue.TaskNotFound",
}
# The others that tell who ran an attempt; a task's own lines may be many, and tell nothing new.
_EVENTS: Final = (*_ERRORS, "snoozed", "released", "fenced", "cancelled", "requeued")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(BaseTaskResult[P, R]):  # type: ignore[misc]  # the stubs' is not frozen
    """Django's TaskResult of a job. `created` says whether the call that returned it made the job.

    It is False where an idempotency key led to a job that was there already, and for results that
    were looked up. `refresh()` leaves it as it is.
    """

    created: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Nothing: the arguments have been normalised, or come from the database."""


def made_result(
    job: NewJob,
    task: AnyTask[..., Any],
    status: TaskResultStatus,
    enqueued_at: datetime,
    backend: str,
) -> JobResult[..., Any]:
    """The result of a job that was just made: what JobResult(...) gives, in half the time.

    A frozen dataclass looks each of its fields up by name when it sets them; of many jobs that are
    enqueued at once that would be a tenth of the time.
    """
    result: JobResult[..., Any] = object.__new__(JobResult)
    _put_task(result, task)
    _put_id(result, str(job.id))
    _put_status(result, status)
    _put_enqueued_at(result, enqueued_at)
    _put_args(result, job.args)
    _put_kwargs(result, job.kwargs)
    _put_backend(result, backend)
    _put_errors(result, [])
    _put_worker_ids(result, [])
    _put_created(result, True)
    for put in _PUT_NONE:
        put(result, None)
    return result


def _putter(name: str) -> Callable[[Any, Any], None]:
    put: Callable[[Any, Any], None] = getattr(JobResult, name).__set__
    return put


_put_task, _put_id, _put_status = map(_putter, ("task", "id", "status"))
_put_enqueued_at, _put_args, _put_kwargs = map(_putter, ("enqueued_at", "args", "kwargs"))
_put_backend, _put_errors = map(_putter, ("backend", "errors"))
_put_worker_ids, _put_created = map(_putter, ("worker_ids", "created"))
_PUT_NONE = [*map(_putter, ("started_at", "finished_at", "last_attempted_at", "_return_value"))]


def completed_result(job_id: UUID, task: AnyTask[..., Any], backend: str) -> JobResult[..., Any]:
    """The result of a job that has completed, for who wants to know no more than that."""
    return JobResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.SUCCESSFUL,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=[],
        kwargs={},
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def from_rows(
    jobs: Sequence[Job], find: Callable[[str], AnyTask[..., Any]], backend: str
) -> list[JobResult[..., Any]]:
    """The results of `jobs`, seen through the alias `backend`; `find` gives the task at a path."""
    lines = _read_lines([job for job in jobs if _has_history(job)])
    tasks = {path: find(path) for path in {job.task_path for job in jobs}}
    return [_result(job, lines.get(job.pk, []), tasks[job.task_path], backend) for job in jobs]


def running_result(attempt: Attempt, task: AnyTask[..., Any], backend: str) -> JobResult[..., Any]:
    """The result of a job whose attempt has just begun, without asking the database.

    Errors and workers of earlier attempts are not known here; the workers' places are kept, so that
    `attempts` is right.
    """
    run_after = attempt.run_after if attempt.run_after > attempt.enqueued_at else None
    return JobResult(
        task=as_enqueued(
            task,
            priority=attempt.priority,
            queue_name=attempt.queue_name,
            run_after=run_after,
            backend=backend,
            idempotency_key=attempt.idempotency_key,
        ),
        id=str(attempt.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=attempt.enqueued_at,
        started_at=attempt.started_at,
        finished_at=None,
        last_attempted_at=attempt.attempted_at,
        args=attempt.args,
        kwargs=attempt.kwargs,
        backend=backend,
        errors=[],
        worker_ids=[""] * (attempt.attempt - 1) + [attempt.worker],
    )


def as_enqueued(task: AnyTask[..., Any], **stored: Any) -> AnyTask[..., Any]:
    """`task` with the values that are stored with a job. Fields it does not have are left out.

    It is not validated: what is stored was valid when it was enqueued, and the settings may have
    changed since.
    """
    names = [each.name for each in fields(task)]
    if all(getattr(task, name) == stored[name] for name in names if name in stored):
        return task
    copy = object.__new__(type(task))
    for name in names:
        object.__setattr__(copy, name, stored[name] if name in stored else getattr(task, name))
    return copy


class _Line(NamedTuple):
    job_id: UUID
    event: str
    attempt: int
    worker: str
    message: str
    actor_name: str
    data: dict[str, Any]


def _has_history(job: Job) -> bool:
    """Whether the log can tell more than the row: of errors, and of who ran earlier attempts."""
    if job.attempt == 0:
        return job.status == "cancelled"
    return job.attempt > 1 or job.status not in ("processing", "completed")


def _read_lines(jobs: Iterable[Job]) -> dict[UUID, list[_Line]]:
    ids = [job.pk for job in jobs]
    found: dict[UUID, list[_Line]] = {}
    if ids:
        from jobqueue.models import JobLog  # tasks are declared before models can be loaded

        lines = JobLog.objects.using(conf.options().database)
        lines = lines.filter(job__in=ids, event__in=_EVENTS).order_by("pk")
        for row in lines.values_list(*_Line._fields):
            line = _Line._make(row)
            line = line._replace(data=as_mapping(line.data))
            found.setdefault(line.job_id, []).append(line)
    return found


def _result(
    job: Job, lines: Sequence[_Line], task: AnyTask[..., Any], backend: str
) -> JobResult[..., Any]:
    status = STATUSES[job.status]
    result: JobResult[..., Any] = JobResult(
        task=as_enqueued(
            task,
            priority=job.priority,
            queue_name=job.queue_name,
            run_after=job.run_after if job.run_after > job.enqueued_at else None,
            backend=backend,
            idempotency_key=job.idempotency_key,
        ),
        id=str(job.pk),
        status=status,
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.attempted_at,
        args=job.args,
        kwargs=job.kwargs,
        backend=backend,
        errors=_errors(job, lines),
        worker_ids=_worker_ids(job, lines),
    )
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", job.return_value)
    return result


def _errors(job: Job, lines: Sequence[_Line]) -> list[TaskError]:
    errors = [
        TaskError(
            exception_class_path=_importable(line.data.get("exception"), _ERRORS[line.event]),
            traceback=line.data.get("traceback") or line.message,
        )
        for line in lines
        if line.event in _ERRORS
    ]
    if job.status == "cancelled":
        errors.append(TaskError(exception_class_path=CANCELLED, traceback=_cancellation(lines)))
    return errors


def _cancellation(lines: Sequence[_Line]) -> str:
    words = "The job was cancelled"
    for line in reversed(lines):
        if line.event == "cancelled":
            words += f" by {line.actor_name}" if line.actor_name else ""
            return f"{words}: {line.message}" if line.message else words
    return words


def _worker_ids(job: Job, lines: Sequence[_Line]) -> list[str]:
    """Who ran each attempt; an empty text where the log no longer tells."""
    workers: dict[int, str] = {}
    for line in lines:
        worker = line.data.get("worker", "") if line.event == "requeued" else line.worker
        if worker:
            workers[line.attempt] = worker
    if job.worker:
        workers[job.attempt] = job.worker
    return [workers.get(number, "") for number in range(1, job.attempt + 1)]


@functools.cache
def _importable(path: str | None, otherwise: str) -> str:
    """`path`, if it leads to an exception class in this process; the worker may run other code."""
    if not path:
        return otherwise
    try:
        found = import_string(path)
    except Exception:  # whatever its module raises when it is imported, the class cannot be had
        return otherwise
    return path if isclass(found) and issubclass(found, BaseException) else otherwise
