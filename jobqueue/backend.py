"""How Django's tasks become jobs: the backend to name in TASKS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from jobqueue import conf, ids, signals
from jobqueue.compat import BaseTaskBackend, InvalidTask, TaskResultDoesNotExist
from jobqueue.compat import Task as AnyTask
from jobqueue.paths import checked_path
from jobqueue.results import STATUSES, JobResult, from_rows, made_result
from jobqueue.task import (
    BoundTask,
    Task,
    atomic_tasks,
    find,
    policy,
    validate_names,
)
from jobqueue.values import normalize_call

if TYPE_CHECKING:
    from jobqueue.lifecycle import Accepted, NewJob

P = ParamSpec("P")
R = TypeVar("R")

#: Years outside of these are taken for mistakes; every database can store what is inside.
FIRST_YEAR, LAST_YEAR = 1970, 9000


class JobQueueBackend(BaseTaskBackend):
    """The backend of Django's tasks that keeps each call as a row until it has been run.

    It is made whenever a task is declared, perhaps before the apps are loaded, and by system checks
    of settings that are wrong: so it neither imports models nor looks at OPTIONS until it is used.
    """

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask[..., Any]) -> None:
        """Raise InvalidTask for a task that cannot become a job."""
        _check_run_after(task.run_after)
        super().validate_task(task)
        if not isinstance(task, Task):  # one of ours has checked itself when it was made
            validate_names(task)

    def enqueue(
        self, task: AnyTask[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> JobResult[P, R]:
        """Accept one call as a job, in the caller's transaction."""
        from jobqueue import lifecycle  # models, not loaded yet when tasks are declared

        new = self._mould(task)(*normalize_call(args, kwargs, conf.options().max_payload))
        (accepted,) = lifecycle.enqueue([new])
        return cast("JobResult[P, R]", self._results([task], [new], [accepted])[0])

    def enqueue_many(self, calls: Sequence[BoundTask[..., Any]]) -> list[JobResult[..., Any]]:
        """Accept many calls as jobs, all or none; the results are in the order of the calls."""
        from jobqueue import lifecycle  # models, not loaded yet when tasks are declared

        limit = conf.options().max_payload
        new: list[NewJob] = []
        # Mostly one task, or few, so what depends on the task alone is found out once for each.
        moulds: dict[int, Callable[..., NewJob]] = {}
        for index, (call, key) in enumerate(zip(calls, ids.several(len(calls)), strict=True)):
            try:
                mould = moulds.get(id(call.task))
                if mould is None:
                    mould = moulds[id(call.task)] = self._mould(call.task)
                new.append(mould(*normalize_call(call.args, call.kwargs, limit), id=key))
            except (InvalidTask, TypeError, ValueError) as error:
                error.add_note(f"In call {index} of {len(calls)}, of {call.task.module_path}.")
                raise
        accepted = lifecycle.enqueue(new)
        return self._results([call.task for call in calls], new, accepted)

    def get_result(self, result_id: str) -> JobResult[..., Any]:
        """The result of the job with this id, whatever its task; else TaskResultDoesNotExist."""
        from jobqueue.models import Job  # models, not loaded yet when tasks are declared

        try:
            key = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        job = Job.objects.using(conf.options().database).filter(pk=key).first()
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        (result,) = from_rows([job], find, self.alias)
        return result

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """What the app's checks cannot tell: that it is not installed, and what tasks ask for."""
        found: list[CheckMessage] = []
        if not apps.is_installed("jobqueue"):
            found.append(
                Error(
                    f"TASKS[{self.alias!r}] uses jobqueue's backend, but the app is not installed.",
                    hint='Add "jobqueue" to INSTALLED_APPS.',
                    id="jobqueue.E013",
                )
            )
        database = conf.options().database
        # An empty "default" is Django's way to say that every model is routed elsewhere.
        if database != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].vendor != "unknown":
            found += [
                Error(
                    f"The task {path} is atomic, but the queue's database is {database!r}: what "
                    f"it writes to {DEFAULT_DB_ALIAS!r} is not committed with its completion.",
                    hint="Keep the queue in the database that the task writes to, or drop atomic. "
                    "If it writes to the queue's database alone, silence this check.",
                    id="jobqueue.E014",
                )
                for path in sorted(atomic_tasks)
            ]
        return found

    def _mould(self, task: AnyTask[..., Any]) -> Callable[..., NewJob]:
        """What makes a job to be of the arguments of a call; what is wrong with the task is found here."""
        from jobqueue.lifecycle import NewJob  # models, not loaded yet when tasks are declared

        # One of ours was validated when it was made; only the queues may have been set anew since.
        if type(task) is not Task or (self.queues and task.queue_name not in self.queues):
            self.validate_task(task)
        rules = policy(task)
        return partial(
            NewJob,
            task_path=checked_path(task),
            queue_name=task.queue_name,
            priority=int(task.priority),
            max_attempts=rules.max_attempts,
            timeout=rules.timeout,
            run_after=_stored_time(task.run_after),
            idempotency_key=rules.idempotency_key,
        )

    def _results(
        self,
        tasks: Sequence[AnyTask[..., Any]],
        jobs: Sequence[NewJob],
        accepted: Sequence[Accepted],
    ) -> list[JobResult[..., Any]]:
        """What is told of each call; the signal is sent for those that made their job."""
        winners = [each.winner for each in accepted if each.winner is not None]
        found = iter(from_rows(winners, find, self.alias) if winners else ())
        results = [
            next(found)
            if each.winner is not None
            else made_result(job, task, STATUSES[each.status], each.enqueued_at, self.alias)
            for task, job, each in zip(tasks, jobs, accepted, strict=True)
        ]
        signals.enqueued(*[result for result in results if result.created])
        return results


def enqueue_many(calls: Iterable[BoundTask[..., Any]]) -> list[JobResult[..., Any]]:
    """See `jobqueue.enqueue_many`. Other backends are given the calls one by one."""
    calls = list(calls)
    for call in calls:
        if not isinstance(call, BoundTask):
            raise TypeError(f"enqueue_many takes what task.bind(...) returns, not {call!r}.")
    aliases = {call.task.backend for call in calls}
    if len(aliases) > 1:
        raise ValueError(
            f"The tasks belong to several backends ({', '.join(sorted(aliases))}); one transaction "
            "needs them in one."
        )
    if not calls:
        return []
    backend: Any = calls[0].task.get_backend()
    if isinstance(backend, JobQueueBackend):
        return backend.enqueue_many(calls)
    return [backend.enqueue(call.task, call.args, call.kwargs) for call in calls]


def _check_run_after(moment: Any) -> None:
    if moment is None:
        return
    if not isinstance(moment, datetime):
        raise InvalidTask(
            f"run_after must be a datetime, not {type(moment).__name__}: pass a point in time such "
            "as timezone.now() + timedelta(hours=1)."
        )
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise InvalidTask(
            f"run_after must lie in the years {FIRST_YEAR} to {LAST_YEAR}, not {moment.year}."
        )


def _stored_time(moment: datetime | None) -> datetime | None:
    """As the database's clock tells the time: aware if and only if USE_TZ is on."""
    if moment is not None and not settings.USE_TZ and timezone.is_aware(moment):
        return timezone.make_naive(moment, timezone.get_default_timezone())
    return moment
