"""How django.tasks' signals are sent: never at the cost of a job, and not where nobody listens."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue
from django.utils.module_loading import import_string

from jobqueue import conf
from jobqueue.attempts import Attempt
from jobqueue.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    TASKS_MODULE,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from jobqueue.compat import Task as AnyTask
from jobqueue.exceptions import Cancelled, Stopped, TaskNotFound, TimedOut, WorkerLost
from jobqueue.results import STATUSES, JobResult, completed_result, from_rows, running_result
from jobqueue.task import find

logger = logging.getLogger("jobqueue")

# Django connects receivers of its own, which write to a logger of its own.
_django = import_module(f"{TASKS_MODULE}.signals")
_django_receivers = {
    id(_django.log_task_enqueued),
    id(_django.log_task_started),
    id(_django.log_task_finished),
}

_NAMES = {
    id(task_enqueued): "task_enqueued",
    id(task_started): "task_started",
    id(task_finished): "task_finished",
}


def wanted(signal: Signal, level: int) -> bool:
    """Whether anyone would notice `signal`: a receiver, or the log that Django writes at `level`.

    Django logs task_enqueued at DEBUG, task_started at INFO, task_finished at INFO or, for a
    failure, ERROR. Where this is False, there is no need to make a result.
    """
    return bool(signal.receivers) and (has_others(signal) or _is_heard(level))


def has_others(signal: Signal) -> bool:
    """Whether someone other than Django itself listens, who may do anything."""
    # A list: this is asked twice a job, and a generator would take three times as long.
    return not _django_receivers.issuperset([each[0][0] for each in signal.receivers])


def look_every(seconds: float) -> None:
    """How long this process may go by what it has found of the log's handlers. A worker asks twice a job;
    everywhere else they are looked at each time."""
    global _look_every
    _look_every = seconds
    _found.clear()


_look_every = 0.0
# By level: until when (time.monotonic) it holds, and whether a line comes out.
_found: dict[int, tuple[float, bool]] = {}


def _is_heard(level: int) -> bool:
    """Whether a line of that level about a task would come out anywhere."""
    if not _look_every:
        return _comes_out(_django.logger, level)
    now = time.monotonic()
    until, heard = _found.get(level, (0.0, False))
    if now >= until:
        heard = _comes_out(_django.logger, level)
        _found[level] = (now + _look_every, heard)
    return heard


def _comes_out(log: logging.Logger, level: int) -> bool:
    """Whether any handler lets it through.

    With Django's own LOGGING its loggers take INFO, and the only handler for that is closed unless
    DEBUG is on: a line for each start and each end would be made for nobody.
    """
    if not log.isEnabledFor(level):
        return False
    if logging.Logger.callHandlers.__module__ != logging.__name__:
        return True  # a monitor stands in front of all handlers
    has_handlers = False
    each: logging.Logger | None = log
    while each is not None:
        for handler in each.handlers:
            has_handlers = True
            if level >= handler.level and not (handler.filters and _is_closed(handler)):
                return True
        each = each.parent if each.propagate else None
    last = logging.lastResort
    return not has_handlers and last is not None and level >= last.level


def _is_closed(handler: logging.Handler) -> bool:
    """Whether one of Django's filters lets nothing through to it."""
    closing = RequireDebugFalse if settings.DEBUG else RequireDebugTrue
    return any(type(each) is closing for each in handler.filters)


def enqueued(*results: JobResult[..., Any]) -> None:
    """Send task_enqueued for jobs that were just made, in the transaction that made them."""
    if not wanted(task_enqueued, logging.DEBUG):
        return
    using, sender = conf.options().database, _sender()
    if not (has_others(task_enqueued) and connections[using].in_atomic_block):
        for result in results:
            _send(task_enqueued, sender, result)
        return
    # A receiver's database error would break the caller's transaction, and the job with it.
    try:
        with transaction.atomic(using):
            for result in results:
                _send(task_enqueued, sender, result)
    except DatabaseError:
        logger.exception(
            "A receiver of task_enqueued left the transaction broken; what its receivers wrote was "
            "undone."
        )


def started(attempt: Attempt, task: AnyTask[..., Any]) -> None:
    """Send task_started for an attempt that begins now. To be called in its slot."""
    if started_wanted():
        try:
            _send(task_started, _sender(), running_result(attempt, task, _alias()))
        except BaseException:  # SystemExit, say: a receiver's error, not the task's
            logger.exception("A receiver of task_started failed for job %s", attempt.id)


def finished(
    job_ids: Sequence[UUID], exceptions: Mapping[UUID, BaseException] | None = None
) -> None:
    """Send task_finished for jobs that have just ended for good, after the commit.

    Reads their rows; call it where a receiver may take its time. `exceptions` are those that made
    jobs fail, by their ids: receivers see them as `sys.exc_info()`. Jobs for which `finished_wanted`
    is False need not be passed.
    """
    if not wanted(task_finished, logging.ERROR):
        return
    sender = _sender()
    for key, result in _ended(job_ids):
        exception = (exceptions or {}).get(key)
        if exception is None and result.status == TaskResultStatus.FAILED:
            exception = _told_by(result)
        _send_finished(sender, result, exception)


def _ended(job_ids: Sequence[UUID]) -> Iterator[tuple[UUID, JobResult[..., Any]]]:
    """The results of those that are final. One that is not any more has been queued again meanwhile:
    there is no end to tell of."""
    from jobqueue.models import (  # loaded after this module, which comes with the backend
        FINAL,
        Job,
        Status,
    )

    jobs, alias = Job.objects.using(conf.options().database), _alias()
    completed: dict[UUID, str] = {}
    if not has_others(task_finished):
        # Django's line tells the id and the path, and nothing of what may be large.
        ended = jobs.filter(pk__in=list(job_ids), status=Status.COMPLETED)
        completed = dict(ended.values_list("pk", "task_path"))
    rows = jobs.in_bulk([key for key in job_ids if key not in completed])
    others = [rows[key] for key in job_ids if key in rows and rows[key].status in FINAL]
    results = {
        job.pk: each for job, each in zip(others, from_rows(others, find, alias), strict=True)
    }
    for key in job_ids:
        if key in completed:
            yield key, completed_result(key, find(completed[key]), alias)
        elif key in results:
            yield key, results[key]


def started_wanted() -> bool:
    """Whether anyone would notice task_started."""
    return wanted(task_started, logging.INFO)


def finished_wanted(status: str) -> bool:
    """Whether anyone would notice task_finished for a job that has ended with `status`."""
    completed = STATUSES[status] == TaskResultStatus.SUCCESSFUL
    return wanted(task_finished, logging.INFO if completed else logging.ERROR)


def connect() -> None:
    """Be told of the ends that the lifecycle announces. Called once, when the app is ready."""
    from jobqueue import lifecycle  # models, which this module must not load

    lifecycle.listen(finished)


def _alias() -> str:
    return conf.alias() or DEFAULT_TASK_BACKEND_ALIAS


def _sender() -> type[Any]:
    """The class of the alias's backend; where no alias has one, the backend that it would be."""
    alias = conf.alias()
    if alias is None:
        backend: type[Any] = import_string(conf.BACKEND)
        return backend
    return type(task_backends[alias])


def _send(signal: Signal, sender: type[Any], result: JobResult[..., Any]) -> None:
    name = _NAMES[id(signal)]
    try:
        responses = signal.send_robust(sender, task_result=result)
    except (Exception, SystemExit):
        # Django lets SystemExit through, which would keep the jobs behind this one from being told
        # of; and it takes for granted that a failing receiver has a name, and a partial has none.
        logger.exception("A receiver of %s failed for job %s", name, result.id)
        return
    for receiver, response in responses:
        if isinstance(response, Exception):
            logger.error(
                "Receiver %s of %s failed for job %s",
                getattr(receiver, "__qualname__", receiver),
                name,
                result.id,
                exc_info=response,
            )


def _send_finished(
    sender: type[Any], result: JobResult[..., Any], exception: BaseException | None
) -> None:
    if exception is None:
        _send(task_finished, sender, result)
        return
    frames = exception.__traceback__
    try:
        raise exception
    except BaseException as raised:
        if raised is not exception:
            raise
        exception.__traceback__ = frames  # without the frame of this function
        _send(task_finished, sender, result)


_OURS: dict[str, type[BaseException]] = {
    f"jobqueue.{kind.__name__}": kind
    for kind in (Cancelled, Stopped, TaskNotFound, TimedOut, WorkerLost)
}


def _told_by(result: JobResult[..., Any]) -> BaseException | None:
    """An end that no exception of this process made: one that says what the last error says."""
    last = result.errors[-1] if result.errors else None
    kind = _OURS.get(last.exception_class_path) if last else None
    return kind(last.traceback) if kind and last else None
