"""What people and application code may do to a job: cancel it, queue it again, run it now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Greatest

from jobqueue import clock, conf, dispatch
from jobqueue.actors import Actor
from jobqueue.clock import Moment
from jobqueue.lifecycle import announcing, journal
from jobqueue.lifecycle.batches import Counts, OnBatch, in_batches
from jobqueue.lifecycle.settling import Changes
from jobqueue.lifecycle.states import Event, refusal, transition
from jobqueue.models import Job, JobLog, Status
from jobqueue.ready import Ready

#: The columns of a row that a change needs to know; a requeue keeps how it ended, too.
COLUMNS = ("id", "status", "attempt", "worker", "queue_name", "priority", "lease_owner")
ENDED = ("task_path", "attempted_at", "finished_at", "return_value", "error")

#: How many more attempts: a number, or a function that knows it by the task's path.
Attempts = int | Callable[[str], int]


def cancel(job_id: UUID | str, actor: Any = None, reason: str = "") -> bool:
    """Cancel a job that is not final, at once and for good; False if it was final already.

    A running job is cancelled in this instant: its code is told to stop, and whatever it still
    does changes nothing. `actor` is a user, a name, or None for the application itself. Raises
    Job.DoesNotExist.
    """
    return _one(job_id, _Intervention(Event.CANCELLED, _cancel, Actor.of(actor), reason))


def requeue(job_id: UUID | str, actor: Any = None, reason: str = "", *, attempts: int = 1) -> bool:
    """Queue a final job once more, with at least `attempts` more attempts; False if it may not be.

    Its last attempt's worker, times and return value are kept in the log. Refused while the code
    of a cancelled run has not let go. Raises Job.DoesNotExist.
    """
    return _one(job_id, _requeueing(actor, reason, attempts))


def run_now(job_id: UUID | str, actor: Any = None, reason: str = "") -> bool:
    """Queue a scheduled job without waiting for its time; False if it is not scheduled."""
    return _one(job_id, _Intervention(Event.RUN_NOW, _run_now, Actor.of(actor), reason))


def cancel_many(
    jobs: QuerySet[Job],
    actor: Any = None,
    reason: str = "",
    *,
    on_batch: OnBatch | None = None,
    until: float | None = None,
) -> Counts:
    """Cancel those of `jobs` that are not final, in short transactions.

    `on_batch` is called with the counts of each batch, in its transaction. No batch begins after
    `until` (of time.monotonic); what was not reached is in `Counts.left`.
    """
    change = _Intervention(Event.CANCELLED, _cancel, Actor.of(actor), reason)
    return in_batches(jobs, change, on_batch=on_batch, until=until)


def requeue_many(
    jobs: QuerySet[Job],
    actor: Any = None,
    reason: str = "",
    *,
    attempts: Attempts = 1,
    on_batch: OnBatch | None = None,
    until: float | None = None,
) -> Counts:
    """Queue those of `jobs` that are final once more, in short transactions; see `cancel_many`."""
    change = _requeueing(actor, reason, attempts)
    return in_batches(jobs, change, on_batch=on_batch, until=until)


def run_now_many(
    jobs: QuerySet[Job],
    actor: Any = None,
    reason: str = "",
    *,
    on_batch: OnBatch | None = None,
    until: float | None = None,
) -> Counts:
    """Queue those of `jobs` that are scheduled now, in short transactions; see `cancel_many`."""
    change = _Intervention(Event.RUN_NOW, _run_now, Actor.of(actor), reason)
    return in_batches(jobs, change, on_batch=on_batch, until=until)


@dataclass(frozen=True, slots=True)
class _Intervention:
    """A change that somebody asks for: `apply` makes it to locked rows that it may happen to."""

    event: Event
    apply: Callable[[_Intervention, str, Sequence[Job], Moment], int]
    actor: Actor
    reason: str
    columns: tuple[str, ...] = COLUMNS
    attempts: Attempts = 1

    def __call__(self, using: str, job_ids: Sequence[UUID]) -> Counts:
        """Change those of the jobs that it may happen to. To be called in a transaction."""
        counts = Counts()
        rows = Job.objects.using(using).filter(pk__in=job_ids).only(*self.columns)
        allowed: list[Job] = []
        for job in rows.select_for_update(no_key=True).order_by("pk"):
            refused = refusal(self.event, job.status, stopping=job.is_stopping)
            if refused is None:
                allowed.append(job)
            else:
                counts.skip(refused)
        if allowed:
            counts.changed = self.apply(self, using, allowed, clock.moment(using))
        return counts

    def update(self, using: str, jobs: Iterable[Job], changes: Changes) -> int:
        """Write the same changes to all of the rows."""
        rows = Job.objects.using(using).filter(pk__in=[job.pk for job in jobs])
        return rows.filter(status__in=transition(self.event).sources).update(**changes)


def _one(job_id: UUID | str, change: _Intervention) -> bool:
    using = conf.options().database
    with transaction.atomic(using):
        try:
            # An id may be text, and need not be one.
            pk = Job._meta.pk.to_python(job_id)
        except ValidationError:
            raise Job.DoesNotExist(f"{job_id!r} is no id of a job.") from None
        counts = change(using, [pk])
    if not (counts.changed or counts.skipped):
        raise Job.DoesNotExist(f"There is no job {job_id}.")
    return counts.changed == 1


def _cancel(self: _Intervention, using: str, jobs: Sequence[Job], now: Moment) -> int:
    # The lease of a running job stays: it says that its code has not let go yet.
    changed = self.update(using, jobs, {"status": Status.CANCELLED, "finished_at": now})
    lines = [
        journal.line(
            job.pk,
            JobLog.Event.CANCELLED,
            now,
            level=JobLog.Level.WARNING,
            attempt=job.attempt,
            worker=job.worker if job.status == Status.PROCESSING else "",
            message=self.reason,
            actor=self.actor,
            data={"from": job.status},
        )
        for job in jobs
    ]
    journal.write(using, lines)
    announcing.ended(using, [job.pk for job in jobs])
    dispatch.cancelled(using, [job.pk for job in jobs if job.status == Status.PROCESSING])
    return changed


def _requeueing(actor: Any, reason: str, attempts: Attempts) -> _Intervention:
    if isinstance(attempts, int):
        _check(attempts)
    columns = COLUMNS + ENDED
    return _Intervention(
        Event.REQUEUED, _requeue, Actor.of(actor), reason, columns, attempts=attempts
    )


def _check(attempts: int) -> int:
    if attempts < 1:
        raise ValueError(f"attempts must be 1 or more, not {attempts}.")
    return attempts


def _requeue(self: _Intervention, using: str, jobs: Sequence[Job], now: Moment) -> int:
    changed = 0
    for more, some in _by_attempts(jobs, self.attempts).items():
        changes = {
            "status": Status.QUEUED,
            "run_after": now,
            "finished_at": None,
            "max_attempts": Greatest(F("max_attempts"), F("attempt") + more),
            "return_value": None,
            "error": "",
            "progress": None,
        }
        changed += self.update(using, some, changes)
    lines = [
        journal.line(
            job.pk,
            JobLog.Event.REQUEUED,
            now,
            attempt=job.attempt,
            message=self.reason,
            actor=self.actor,
            data={
                "from": job.status,
                "worker": job.worker,
                "attempted_at": _text(job.attempted_at),
                "finished_at": _text(job.finished_at),
                "return_value": job.return_value,
                "error": job.error,
            },
        )
        for job in jobs
    ]
    journal.write(using, lines)
    _wake(using, jobs)
    return changed


def _by_attempts(jobs: Sequence[Job], attempts: Attempts) -> dict[int, list[Job]]:
    if isinstance(attempts, int):
        return {attempts: list(jobs)}
    known = {path: _check(attempts(path)) for path in {job.task_path for job in jobs}}
    found: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        found[known[job.task_path]].append(job)
    return found


def _run_now(self: _Intervention, using: str, jobs: Sequence[Job], now: Moment) -> int:
    changed = self.update(using, jobs, {"status": Status.QUEUED, "run_after": now})
    lines = [
        journal.line(
            job.pk,
            JobLog.Event.NOTE,
            now,
            attempt=job.attempt,
            message=self.reason or "run now",
            actor=self.actor,
            data={"from": job.status},
        )
        for job in jobs
    ]
    journal.write(using, lines)
    _wake(using, jobs)
    return changed


def _wake(using: str, jobs: Sequence[Job]) -> None:
    dispatch.wake(using, [Ready(job.pk, job.queue_name, job.priority) for job in jobs])


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment else None
