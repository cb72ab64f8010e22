"""How a job is accepted: an INSERT in the caller's transaction, decided by the unique constraint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from jobqueue import clock, conf, dispatch, ids, postgres
from jobqueue.models import Job, Status

#: Rows in one INSERT: more gain little, and a statement's parameters are bounded.
BATCH = 1_000

#: How often a key may be taken and be free again while its loser looks for the winner.
TRIES = 20


@dataclass(slots=True)
class NewJob:
    """A call that wants to become a job. Its arguments are normalised already (see `values`)."""

    task_path: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue_name: str
    priority: int
    max_attempts: int
    timeout: float | None
    run_after: datetime | None = None
    idempotency_key: str | None = None
    id: UUID = field(default_factory=ids.uuid7)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a call: a job of its own, or the `winner` that holds its key already."""

    id: UUID
    status: Status
    enqueued_at: datetime
    winner: Job | None = None

    @property
    def created(self) -> bool:
        """Whether this call made the job."""
        return self.winner is None


def enqueue(jobs: Sequence[NewJob]) -> list[Accepted]:
    """Accept the calls, all or none, in the transaction that the caller has open, if any.

    A call whose key is taken gets the job that holds it. Raises ValueError if that job has other
    arguments: then nothing of this call is kept.
    """
    using = conf.options().database
    if not jobs:
        return []
    keyed = any(job.idempotency_key is not None for job in jobs)
    # A lone INSERT is atomic by itself; a transaction around it would cost two round trips.
    together = transaction.atomic(using) if keyed or len(jobs) > BATCH else nullcontext()
    with together:
        accepted = _insert(using, jobs)
        if keyed:
            _find_winners(using, jobs, accepted)
        queues = {job.queue_name for job in jobs if accepted[job.id].status == Status.QUEUED}
        dispatch.wake(using, queues)
    return [accepted[job.id] for job in jobs]


def _insert(using: str, jobs: Sequence[NewJob]) -> dict[UUID, Accepted]:
    # Two callers that insert the same keys in different orders would wait for each other.
    ordered = sorted(jobs, key=lambda job: (job.task_path, job.idempotency_key or "", job.id))
    insert = postgres.insert if postgres.serves(using) else _insert_plainly
    accepted: dict[UUID, Accepted] = {}
    for start in range(0, len(ordered), BATCH):
        for row in insert(using, ordered[start : start + BATCH]):
            accepted[row[0]] = Accepted(row[0], Status(row[1]), row[2])
    return accepted


def _insert_plainly(using: str, jobs: Sequence[NewJob]) -> list[tuple[UUID, str, datetime]]:
    now = clock.now(using)
    rows = [
        Job(
            id=job.id,
            task_path=job.task_path,
            args=job.args,
            kwargs=job.kwargs,
            queue_name=job.queue_name,
            priority=job.priority,
            status=Status.SCHEDULED if job.run_after and job.run_after > now else Status.QUEUED,
            run_after=max(job.run_after, now) if job.run_after else now,
            enqueued_at=now,
            max_attempts=job.max_attempts,
            timeout=job.timeout,
            idempotency_key=job.idempotency_key,
        )
        for job in jobs
    ]
    manager = Job.objects.using(using)
    keyed = {row.id for row in rows if row.idempotency_key is not None}
    manager.bulk_create(rows, ignore_conflicts=bool(keyed))
    written = set(manager.filter(pk__in=keyed).values_list("pk", flat=True)) if keyed else set()
    return [
        (row.id, row.status, row.enqueued_at)
        for row in rows
        if row.id not in keyed or row.id in written
    ]


def _find_winners(using: str, jobs: Sequence[NewJob], accepted: dict[UUID, Accepted]) -> None:
    """For each call that lost its key, read the winner; insert again if that has gone meanwhile."""
    losers = [job for job in jobs if job.id not in accepted]
    for _ in range(TRIES):
        gone = []
        for job in losers:
            winner = (
                Job.objects.using(using)
                .filter(task_path=job.task_path, idempotency_key=job.idempotency_key)
                .first()
            )
            if winner is None:
                gone.append(job)
                continue
            if (winner.args, winner.kwargs) != (job.args, job.kwargs):
                raise ValueError(
                    f"The idempotency key {job.idempotency_key!r} of {job.task_path} belongs to "
                    f"job {winner.id}, which has other arguments. Use another key, or the same "
                    f"arguments."
                )
            accepted[job.id] = Accepted(
                winner.id, Status(winner.status), winner.enqueued_at, winner
            )
        accepted.update(_insert(using, gone) if gone else {})
        losers = [job for job in gone if job.id not in accepted]
        if not losers:
            return
    # SQLite's INSERT OR IGNORE passes over whatever a row violates, not only the key.
    raise IntegrityError(
        f"job {losers[0].id} ({losers[0].task_path}) was not inserted, and no other holds its key"
    )
