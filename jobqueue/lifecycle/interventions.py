"""What people and application code may do to a job: cancel it, queue it again, run it now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from jobqueue import clock, conf, dispatch
from jobqueue.lifecycle import announcing, journal
from jobqueue.lifecycle.journal import Actor
from jobqueue.lifecycle.states import Event, refusal
from jobqueue.models import Job, JobLog, Status
from jobqueue.ready import Ready

#: Rows that one transaction changes when many are asked for.
BATCH = 200


@dataclass(slots=True)
class Counts:
    """What became of a request about many jobs: how many changed, and why others did not."""

    changed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def total_skipped(self) -> int:
        """How many were left as they were."""
        return sum(self.skipped.values())


def cancel(job_id: UUID | str, actor: Any = None, reason: str = "") -> bool:
    """Cancel a job that is not final, at once and for good; False if it was final already.

    A running job is cancelled in this instant: its code is told to stop, and whatever it still
    does changes nothing. `actor` is a user, a name, or None for the application itself. Raises
    Job.DoesNotExist.
    """
    return _one(job_id, _cancel, actor, reason)


def requeue(job_id: UUID | str, actor: Any = None, reason: str = "", *, attempts: int = 1) -> bool:
    """Queue a final job once more, with at least `attempts` more attempts; False if it may not be.

    Its last attempt's worker, times and return value are kept in the log. Refused while the code
    of a cancelled run has not let go. Raises Job.DoesNotExist.
    """

    def requeue_one(job: Job, actor: Actor, reason: str) -> str | None:
        return _requeue(job, actor, reason, attempts)

    return _one(job_id, requeue_one, actor, reason)


def run_now(job_id: UUID | str, actor: Any = None, reason: str = "") -> bool:
    """Queue a scheduled job without waiting for its time; False if it is not scheduled."""
    return _one(job_id, _run_now, actor, reason)


def cancel_many(jobs: QuerySet[Job], actor: Any = None, reason: str = "") -> Counts:
    """Cancel those of `jobs` that are not final, in short transactions."""
    return _many(jobs, _cancel, actor, reason)


def requeue_many(jobs: QuerySet[Job], actor: Any = None, reason: str = "") -> Counts:
    """Queue those of `jobs` that are final once more, in short transactions."""
    return _many(jobs, lambda job, by, why: _requeue(job, by, why, 1), actor, reason)


#: Changes one locked row, or says why not.
Change = Callable[[Job, Actor, str], str | None]


def _one(job_id: UUID | str, change: Change, actor: Any, reason: str) -> bool:
    using = conf.options().database
    with transaction.atomic(using):
        try:
            job = Job.objects.using(using).select_for_update(no_key=True).get(pk=job_id)
        except ValidationError:
            raise Job.DoesNotExist(f"{job_id!r} is no id of a job.") from None
        return change(job, Actor.of(actor), reason) is None


def _many(jobs: QuerySet[Job], change: Change, actor: Any, reason: str) -> Counts:
    using = conf.options().database
    counts, who = Counts(), Actor.of(actor)
    # The ids are frozen first: a changed row may leave the filter, or enter it.
    wanted = sorted(jobs.using(using).values_list("pk", flat=True))
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        with transaction.atomic(using):
            rows = Job.objects.using(using).filter(pk__in=batch)
            for job in rows.select_for_update(no_key=True).order_by("pk"):
                refused = change(job, who, reason)
                if refused is None:
                    counts.changed += 1
                else:
                    counts.skipped[refused] = counts.skipped.get(refused, 0) + 1
    return counts


def _cancel(job: Job, actor: Actor, reason: str) -> str | None:
    refused = refusal(Event.CANCELLED, job.status)
    if refused:
        return refused
    using = conf.options().database
    now = clock.moment(using)
    # The lease of a running job stays: it says that its code has not let go yet.
    Job.objects.using(using).filter(pk=job.pk, status=job.status).update(
        status=Status.CANCELLED, finished_at=now
    )
    line = journal.line(
        job.pk,
        JobLog.Event.CANCELLED,
        now,
        level=JobLog.Level.WARNING,
        attempt=job.attempt,
        worker=job.worker if job.status == Status.PROCESSING else "",
        message=reason,
        actor=actor,
        data={"from": job.status},
    )
    journal.write(using, [line])
    announcing.ended(using, [job.pk])
    if job.status == Status.PROCESSING:
        dispatch.cancelled(using, [job.pk])
    return None


def _requeue(job: Job, actor: Actor, reason: str, attempts: int) -> str | None:
    if attempts < 1:
        raise ValueError(f"attempts must be 1 or more, not {attempts}.")
    refused = refusal(Event.REQUEUED, job.status, stopping=job.is_stopping)
    if refused:
        return refused
    using = conf.options().database
    now = clock.moment(using)
    ended = {
        "from": job.status,
        "worker": job.worker,
        "attempted_at": _text(job.attempted_at),
        "finished_at": _text(job.finished_at),
        "return_value": job.return_value,
        "error": job.error,
    }
    Job.objects.using(using).filter(pk=job.pk, status=job.status).update(
        status=Status.QUEUED,
        run_after=now,
        finished_at=None,
        max_attempts=max(job.max_attempts, job.attempt + attempts),
        return_value=None,
        error="",
        progress=None,
    )
    line = journal.line(
        job.pk,
        JobLog.Event.REQUEUED,
        now,
        attempt=job.attempt,
        message=reason,
        actor=actor,
        data=ended,
    )
    journal.write(using, [line])
    dispatch.wake(using, [Ready(job.pk, job.queue_name, job.priority)])
    return None


def _run_now(job: Job, actor: Actor, reason: str) -> str | None:
    refused = refusal(Event.RUN_NOW, job.status)
    if refused:
        return refused
    using = conf.options().database
    now = clock.moment(using)
    Job.objects.using(using).filter(pk=job.pk, status=Status.SCHEDULED).update(
        status=Status.QUEUED, run_after=now
    )
    line = journal.line(
        job.pk,
        JobLog.Event.NOTE,
        now,
        attempt=job.attempt,
        message=reason or "run now",
        actor=actor,
        data={"from": job.status},
    )
    journal.write(using, [line])
    dispatch.wake(using, [Ready(job.pk, job.queue_name, job.priority)])
    return None


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment else None
