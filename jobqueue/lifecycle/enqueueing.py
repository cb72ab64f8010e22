"""How a job is accepted: an INSERT in the caller's transaction, decided by the unique constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction

from jobqueue import conf, dispatch, ids, postgres, sqlite
from jobqueue.models import Job, Status
from jobqueue.ready import Ready

#: How often a key may be taken and be free again while its loser looks for the winner.
TRIES = 20


@dataclass(slots=True)
class NewJob:
    """A call that wants to become a job. Its arguments are normalised already (see `values`)."""

    args: list[Any]
    kwargs: dict[str, Any]
    task_path: str
    queue_name: str
    priority: int
    max_attempts: int
    timeout: float | None
    run_after: datetime | None = None
    idempotency_key: str | None = None
    id: UUID = field(default_factory=ids.uuid7)


class Accepted(NamedTuple):
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
    if len(jobs) == 1 and jobs[0].idempotency_key is None:
        # A lone INSERT is atomic by itself; a transaction around it would cost two round trips.
        told = list(_insert(using, jobs).values())
        if told[0].status is Status.QUEUED:
            _wake(using, jobs)
        return told
    with transaction.atomic(using):
        if not sqlite.serves(using) and (now := postgres.copy(using, jobs)) is not None:
            _wake(using, jobs)
            return [Accepted(job.id, Status.QUEUED, now) for job in jobs]
        # Two callers that insert the same keys in different orders would wait for each other.
        keyed = [job for job in jobs if job.idempotency_key is not None]
        keyed.sort(key=lambda job: (job.task_path, job.idempotency_key))
        others = [job for job in jobs if job.idempotency_key is None] if keyed else jobs
        accepted = _insert(using, [*others, *keyed])
        if len(accepted) < len(jobs):
            _find_winners(using, jobs, accepted)
        _wake(using, [job for job in jobs if accepted[job.id].status is Status.QUEUED])
    return [accepted[job.id] for job in jobs]


def _insert(using: str, jobs: Sequence[NewJob]) -> dict[UUID, Accepted]:
    rows = (sqlite if sqlite.serves(using) else postgres).insert(using, jobs)
    return {key: Accepted(key, _STATUSES[status], at) for key, status, at in rows}


_STATUSES = {status.value: status for status in (Status.QUEUED, Status.SCHEDULED)}


def _wake(using: str, queued: Sequence[NewJob]) -> None:
    if conf.options().redis is None:
        dispatch.look(using, {job.queue_name for job in queued})
    else:
        dispatch.wake(using, [Ready(job.id, job.queue_name, job.priority) for job in queued])


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
    raise IntegrityError(
        f"job {losers[0].id} ({losers[0].task_path}) was not inserted, and no other holds its key"
    )
