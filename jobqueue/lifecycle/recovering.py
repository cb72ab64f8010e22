"""What becomes of jobs whose worker is gone, and of those whose time has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Q, QuerySet

from jobqueue import backoff, clock, conf, dispatch, postgres
from jobqueue.attempts import Pair
from jobqueue.clock import Moment
from jobqueue.findings import Repaired
from jobqueue.lifecycle import announcing, journal
from jobqueue.lifecycle.settling import Changes, failed, given_back, scheduled
from jobqueue.models import Job, JobLog, Status
from jobqueue.ready import Ready

logger = logging.getLogger("jobqueue")

#: Rows that one transaction repairs: short enough to hold no lock for long.
BATCH = 200

#: The longest a repair waits for a row that another transaction holds, in seconds.
PATIENCE = 0.5

#: Seconds that a repair may take on a machine that is merely slow.
SLOW = 0.5


def due(using: str, now: Moment) -> QuerySet[Job]:
    """Scheduled jobs whose time has come, soonest first."""
    waiting = Job.objects.using(using).filter(status=Status.SCHEDULED, run_after__lte=now)
    return waiting.order_by("run_after")


def expired(using: str, now: Moment) -> QuerySet[Job]:
    """Leased rows whose lease has run out: lost jobs, and cancelled ones nobody let go of."""
    leased = Job.objects.using(using).filter(lease_owner__isnull=False, lease_expires_at__lt=now)
    return leased.order_by("pk")


def promote(job_ids: Sequence[UUID], due_by: Moment | None = None) -> list[UUID]:
    """Queue those of the scheduled jobs whose time has come and whose row is free.

    `due_by` (for tests) stands in for the database's clock.
    """
    using = conf.options().database
    with transaction.atomic(using):
        now = due_by or clock.moment(using)
        rows = due(using, now).filter(pk__in=job_ids)
        locked = list(
            rows.select_for_update(skip_locked=True, no_key=True)
            .order_by("pk")
            .values_list("pk", "queue_name", "priority")
        )
        promoted = [pk for pk, _, _ in locked]
        Job.objects.using(using).filter(pk__in=promoted, status=Status.SCHEDULED).update(
            status=Status.QUEUED
        )
        dispatch.wake(using, [Ready(*row) for row in locked])
    return promoted


def recover(job_ids: Sequence[UUID]) -> list[UUID]:
    """Take back those of the jobs whose lease has expired; a running one loses its attempt.

    A row that is locked is passed over, and one that its owner has been waiting for is left to it.
    Returns the ids of the rows that were changed.
    """
    return [each.id for each in take_back(job_ids)]


def take_back(job_ids: Sequence[UUID]) -> list[Repaired]:
    """`recover`, and what became of each."""
    using = conf.options().database
    began = time.monotonic()
    with transaction.atomic(using):
        now = clock.moment(using)
        rows = _lock(expired(using, now).filter(pk__in=job_ids))
        if was_held_up(time.monotonic() - began):
            return []
        wanted = postgres.wanted(using, [job.pk for job in rows])
        rows = [job for job in rows if job.pk not in wanted]
        return _take(using, rows, now, _lost, "its lease expired")


def was_held_up(seconds: float) -> bool:
    """Whether what held up a repair for so long may have held up the owners' heartbeats, too, and
    longer: then owners come first, and no lease is taken for the moment."""
    return seconds > max(SLOW, conf.options().heartbeat / 4)


#: Is told what became of attempts that were taken back.
Tell = Callable[[Sequence[Repaired]], object]


def lose(owner: UUID, reason: str, *, tell: Tell | None = None) -> list[Pair]:
    """Take back every job of a worker that is known to be dead; each loses its attempt.

    Waits a moment for rows that are locked. To be called again for some seconds: a statement that
    the dead process had sent may still commit.
    """
    return _take_from(owner, _lost, reason, tell=tell)


def time_out(owner: UUID, pairs: Collection[Pair], *, tell: Tell | None = None) -> list[Pair]:
    """Write the outcome of attempts that did not let go when their time was up, now that their
    process is dead."""
    reason = "it did not let go; its process was replaced"
    return _take_from(owner, _timed_out, reason, pairs, tell=tell)


def hand_back(owner: UUID, pairs: Collection[Pair] | None = None, reason: str = "") -> list[Pair]:
    """Give back jobs of a worker whose code does not run, unspent: all of them, or just `pairs`."""
    return _take_from(owner, _released, reason, pairs)


Ruling = Callable[[Job, Moment, str], tuple[Changes, JobLog]]


def _lock(rows: QuerySet[Job], limit: int = BATCH, *, wait: bool = False) -> list[Job]:
    return list(
        rows.select_for_update(skip_locked=not wait, no_key=True)
        .order_by("pk")
        .defer("args", "kwargs", "return_value", "progress")[:limit]
    )


def _take_from(
    owner: UUID,
    ruling: Ruling,
    reason: str,
    pairs: Collection[Pair] | None = None,
    *,
    tell: Tell | None = None,
) -> list[Pair]:
    using = conf.options().database
    owned = Job.objects.using(using).filter(lease_owner=owner)
    if pairs is not None:
        exact = Q(pk__in=[])
        for pair in pairs:
            exact |= Q(pk=pair.id, attempt=pair.attempt)
        owned = owned.filter(exact)
    taken: list[Repaired] = []
    at_once = BATCH
    while True:
        try:
            with transaction.atomic(using):
                rows = _lock(owned, at_once)
                if not rows:
                    break
                batch = _take(using, rows, clock.moment(using), ruling, reason)
            taken += batch
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, ValueError, TypeError) as error:
            # One row that cannot be repaired does not keep the others from it.
            if at_once == 1:
                logger.error("Cannot take job %s from worker %s: %s", rows[0].pk, owner, error)
                owned = owned.exclude(pk=rows[0].pk)
            at_once = 1
    # What is left is locked by others.
    if owned.exists():
        with postgres.patiently(using, PATIENCE):
            rows = _lock(owned, wait=True)
            taken += _take(using, rows, clock.moment(using), ruling, reason)
    attempts = [each for each in taken if each.attempt]
    if tell is not None:
        tell(attempts)
    return [Pair(each.id, each.attempt) for each in attempts]


def _take(
    using: str, rows: Sequence[Job], now: Moment, ruling: Ruling, reason: str
) -> list[Repaired]:
    """End the leases of locked rows as `ruling` says, and log it; cancelled rows are just let go."""
    lines: list[JobLog] = []
    finals: list[UUID] = []
    woken: list[Ready] = []
    taken: list[Repaired] = []
    for job in rows:
        changes: Changes = {}
        if job.status == Status.PROCESSING:
            changes, line = ruling(job, now, reason)
            lines.append(line)
        elif ruling is not _released:
            lines.append(_stopped(job, now, reason))
        taken.append(_repaired(job, changes))
        held = Job.objects.using(using).filter(
            pk=job.pk, attempt=job.attempt, lease_owner=job.lease_owner, status=job.status
        )
        held.update(lease_owner=None, lease_expires_at=None, **changes)
        if changes.get("status") == Status.QUEUED:
            woken.append(Ready(job.pk, job.queue_name, job.priority))
        if changes.get("status") == Status.FAILED:
            finals.append(job.pk)
    journal.write(using, lines)
    dispatch.wake(using, woken)
    announcing.ended(using, finals)
    return taken


def _repaired(job: Job, changes: Changes) -> Repaired:
    if not changes:
        return Repaired(job.pk, "cancelled, still stopping", job.status)
    began, due = job.attempted_at or job.run_after, job.run_after
    return Repaired(
        job.pk,
        job.status,
        str(changes["status"]),
        attempt=job.attempt,
        queue_name=job.queue_name,
        task_path=job.task_path,
        waited=(began - due).total_seconds(),
        error=str(changes.get("error", "")),
    )


def _lost(job: Job, now: Moment, reason: str) -> tuple[Changes, JobLog]:
    error = f"WorkerLost: worker {job.worker} was lost during attempt {job.attempt}: {reason}"
    return _spent(job, now, JobLog.Event.LOST, error, "jobqueue.WorkerLost", reason)


def _timed_out(job: Job, now: Moment, reason: str) -> tuple[Changes, JobLog]:
    limit = "" if job.timeout is None else f" of {job.timeout:g} s"
    error = f"TimedOut: the attempt ran longer than its timeout{limit}; {reason}"
    return _spent(job, now, JobLog.Event.TIMED_OUT, error, "jobqueue.TimedOut", reason)


def _spent(
    job: Job, now: Moment, event: JobLog.Event, error: str, exception: str, reason: str
) -> tuple[Changes, JobLog]:
    """The attempt counts: another one after the settings' backoff, while any is left."""
    data: dict[str, Any] = {"exception": exception, "reason": reason}
    data |= journal.times(job.attempted_at, job.run_after)
    if job.attempt >= job.max_attempts:
        changes, level = failed(now, error), JobLog.Level.ERROR
        logger.error(
            "Job %s (%s) failed in attempt %s: %s", job.pk, job.task_path, job.attempt, error
        )
    else:
        delay = backoff.by_settings(job.attempt - job.given_back)
        changes, level = scheduled(now, delay, error), JobLog.Level.WARNING
        data["delay"] = round(delay, 3)
    line = journal.line(
        job.pk,
        event,
        now,
        level=level,
        attempt=job.attempt,
        worker=job.worker,
        message=error,
        data=data,
    )
    return changes, line


def _released(job: Job, now: Moment, reason: str) -> tuple[Changes, JobLog]:
    line = journal.line(
        job.pk,
        JobLog.Event.RELEASED,
        now,
        attempt=job.attempt,
        worker=job.worker,
        message=reason or "given back unfinished; the attempt is not spent",
        data=journal.times(job.attempted_at, job.run_after),
    )
    return {"status": Status.QUEUED, "run_after": now} | given_back(job), line


def _stopped(job: Job, now: Moment, reason: str) -> JobLog:
    return journal.line(
        job.pk,
        JobLog.Event.REPAIRED,
        now,
        attempt=job.attempt,
        worker=job.worker,
        message=f"cancelled, and its worker never said that it had stopped: {reason}",
    )
