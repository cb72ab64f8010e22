"""How a worker gets jobs and keeps them: the claim, which starts a lease, and the heartbeat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from jobqueue import clock, conf, postgres, sqlite
from jobqueue.attempts import Attempt, Pair, Place, Wanted
from jobqueue.clock import Moment
from jobqueue.models import Job, Status, Worker


def claim(
    queue: str,
    owner: UUID,
    worker: str,
    limit: int,
    *,
    ids: Sequence[UUID] | None = None,
    behind: Place | None = None,
    above: int | None = None,
) -> list[Attempt]:
    """Lease up to `limit` claimable jobs of `queue` to `owner`, most urgent and then oldest first.

    With `ids`, those of these jobs that can be claimed from it; with `behind`, those of that place's
    priority that come after it; with `above`, those of a higher priority. Counts the attempt in the
    same statement. Rows that another transaction holds are passed over.
    """
    options = conf.options()
    using, wanted = options.database, Wanted(queue, limit, ids, behind, above)
    if wanted.is_nothing:
        return []
    database = sqlite if sqlite.serves(using) else postgres
    rows = database.claim(using, wanted, owner, worker, options.lease)
    return attempts(rows, owner, worker)


def attempts(rows: Iterable[Sequence[Any]], owner: UUID, worker: str) -> list[Attempt]:
    """The attempts that claimed rows begin, in the order to start them in."""
    begun = [Attempt(*[*row, owner, worker]) for row in rows]
    begun.sort(key=lambda attempt: (-attempt.priority, attempt.id))
    return begun


@dataclass(frozen=True, slots=True)
class Beat:
    """What the database answered to a heartbeat.

    `held` had their leases extended, `cancelled` among them; `lost` are no longer the owner's;
    `locked` are, but another transaction holds their rows; `strays` belong to the owner although
    it did not name them.
    """

    held: set[Pair] = field(default_factory=set)
    cancelled: set[Pair] = field(default_factory=set)
    lost: set[Pair] = field(default_factory=set)
    locked: set[Pair] = field(default_factory=set)
    strays: set[Pair] = field(default_factory=set)


def heartbeat(owner: UUID, running: Collection[Pair]) -> Beat:
    """Extend the leases of exactly the attempts that `owner` runs, and say what is true of each.

    A cancelled job's lease is extended too while its code runs. A row that is locked is passed
    over, so that it cannot hold up the others: see `heartbeat_alone`.
    """
    options = conf.options()
    using, jobs = options.database, Job.objects.using(options.database)
    beat = Beat()
    with transaction.atomic(using):
        owned = (
            jobs.filter(lease_owner=owner)
            .select_for_update(skip_locked=True, no_key=True)
            .order_by("pk")
            .values_list("pk", "attempt", "status")
        )
        statuses = {Pair(pk, attempt): status for pk, attempt, status in owned}
        for pair, status in statuses.items():
            if pair not in running:
                beat.strays.add(pair)
                continue
            beat.held.add(pair)
            if status == Status.CANCELLED:
                beat.cancelled.add(pair)
        now = clock.moment(using)
        _extend(using, owner, beat.held, now + timedelta(seconds=options.lease))
        # Nor may somebody who holds the worker's own row keep the leases from being extended.
        workers = Worker.objects.using(using)
        free = workers.filter(pk=owner).select_for_update(skip_locked=True, no_key=True)
        workers.filter(pk__in=list(free.values_list("pk", flat=True))).update(heartbeat_at=now)
        missing = set(running) - beat.held
        if missing:
            rows = jobs.filter(pk__in=[pair.id for pair in missing], lease_owner=owner)
            still = {Pair(*row) for row in rows.values_list("pk", "attempt")}
            beat.locked.update(missing & still)
            beat.lost.update(missing - still)
    return beat


def heartbeat_alone(owner: UUID, pair: Pair) -> bool:
    """Extend one lease, waiting for whoever holds its row; False if it is no longer the owner's.

    Sent for a row that a heartbeat had to pass over. While it waits recovery leaves the row to it,
    whether or not the lease is over.
    """
    options = conf.options()
    using = options.database
    if not sqlite.serves(using):
        return postgres.extend_alone(using, owner, pair, options.lease)
    with transaction.atomic(using):  # there are no locked rows to wait for, only the file
        until = clock.moment(using) + timedelta(seconds=options.lease)
        return _extend(using, owner, {pair}, until) == 1


def _extend(using: str, owner: UUID, pairs: Collection[Pair], until: Moment) -> int:
    extended = 0
    by_attempt: dict[int, list[UUID]] = defaultdict(list)
    for pair in pairs:
        by_attempt[pair.attempt].append(pair.id)
    for attempt, job_ids in by_attempt.items():
        rows = Job.objects.using(using).filter(
            pk__in=job_ids,
            attempt=attempt,
            lease_owner=owner,
            status__in=[Status.PROCESSING, Status.CANCELLED],
        )
        extended += rows.update(lease_expires_at=until)
    return extended
