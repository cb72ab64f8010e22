"""The few statements that PostgreSQL does faster than the ORM can say, whole and readable.

Only the lifecycle uses them, and for each it has a plain way that does the same on every database; one suite
of tests proves them equal. The ids to change are chosen by `= ANY (ARRAY (SELECT ...))` or in a
materialised CTE: `IN (SELECT ... LIMIT n)` may be run more than once and take more than n.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import OperationalError, connections, transaction

from jobqueue.values import dumps

if TYPE_CHECKING:
    from jobqueue.attempts import Outcome, Pair
    from jobqueue.lifecycle.enqueueing import NewJob

#: Tests turn this off to prove the plain ways on PostgreSQL too.
enabled = True

#: What libpq calls a lock that was not had within lock_timeout.
LOCK_NOT_AVAILABLE = "55P03"


def serves(using: str) -> bool:
    """Whether these statements can be used on the database `using`."""
    return enabled and connections[using].vendor == "postgresql"


INSERT_ONE = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
VALUES (
    %s, %s, %s, %s, %s, %s, %s, %s, %s,
    CASE WHEN %s::timestamptz > STATEMENT_TIMESTAMP() THEN 'scheduled' ELSE 'queued' END,
    GREATEST(%s::timestamptz, STATEMENT_TIMESTAMP()),
    STATEMENT_TIMESTAMP(), 0, 0, '', '')
"""

INSERT_MANY = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
SELECT
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    CASE WHEN run_after > STATEMENT_TIMESTAMP() THEN 'scheduled' ELSE 'queued' END,
    GREATEST(run_after, STATEMENT_TIMESTAMP()),
    STATEMENT_TIMESTAMP(), 0, 0, '', ''
FROM unnest(
    %s::uuid[], %s::text[], %s::jsonb[], %s::jsonb[], %s::text[], %s::int[], %s::int[],
    %s::float8[], %s::text[], %s::timestamptz[])
AS new (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    run_after)
"""

ON_CONFLICT = "ON CONFLICT DO NOTHING "
RETURNING = "RETURNING id, status, enqueued_at"


def insert(using: str, jobs: Sequence[NewJob]) -> list[tuple[UUID, str, datetime]]:
    """Insert the jobs; returns id, status and time of those whose key was free."""
    keyed = any(job.idempotency_key is not None for job in jobs)
    ending = (ON_CONFLICT if keyed else "") + RETURNING
    rows = [
        (
            job.id,
            job.task_path,
            dumps(job.args),
            dumps(job.kwargs),
            job.queue_name,
            job.priority,
            job.max_attempts,
            None if job.timeout is None else float(job.timeout),  # one type for the whole column
            job.idempotency_key,
            job.run_after,
        )
        for job in jobs
    ]
    with connections[using].cursor() as cursor:
        if len(rows) == 1:
            cursor.execute(INSERT_ONE + ending, (*rows[0], rows[0][-1]))
        else:
            cursor.execute(
                INSERT_MANY + ending, [list(column) for column in zip(*rows, strict=True)]
            )
        accepted: list[tuple[UUID, str, datetime]] = cursor.fetchall()
    return accepted


CLAIM = """
UPDATE jobqueue_job SET
    status = 'processing',
    attempt = attempt + 1,
    lease_owner = %(owner)s,
    lease_expires_at = STATEMENT_TIMESTAMP() + make_interval(secs => %(lease)s),
    started_at = COALESCE(started_at, STATEMENT_TIMESTAMP()),
    attempted_at = STATEMENT_TIMESTAMP(),
    worker = %(worker)s
WHERE id = ANY (ARRAY (
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %(queue)s
        AND NOT EXISTS (
            SELECT FROM jobqueue_queue
            WHERE name = %(queue)s AND paused_at IS NOT NULL
                AND (paused_until IS NULL OR paused_until > STATEMENT_TIMESTAMP()))
    ORDER BY priority DESC, id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, task_path, args, kwargs, queue_name, priority, attempt, given_back, max_attempts,
    timeout, idempotency_key, run_after, enqueued_at, started_at, attempted_at
"""


def claim(
    using: str, queue: str, owner: UUID, worker: str, limit: int, lease: float
) -> list[tuple[Any, ...]]:
    """Lease up to `limit` claimable jobs of `queue`; returns the columns of an Attempt."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            CLAIM,
            {"queue": queue, "owner": owner, "worker": worker, "limit": limit, "lease": lease},
        )
        return [
            (row[0], row[1], json.loads(row[2]), json.loads(row[3]), *row[4:])
            for row in cursor.fetchall()
        ]


COMPLETE = """
WITH held AS MATERIALIZED (
    SELECT job.id, outcome.value
    FROM unnest(%s::uuid[], %s::int[], %s::uuid[], %s::jsonb[])
        AS outcome (id, attempt, owner, value)
    JOIN jobqueue_job AS job
        ON job.id = outcome.id AND job.attempt = outcome.attempt
        AND job.lease_owner = outcome.owner AND job.status = 'processing'
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED)
UPDATE jobqueue_job AS job SET
    status = 'completed',
    finished_at = STATEMENT_TIMESTAMP(),
    lease_owner = NULL,
    lease_expires_at = NULL,
    return_value = held.value,
    error = ''
FROM held
WHERE job.id = held.id
RETURNING job.id, job.attempt
"""


def complete(using: str, outcomes: Sequence[Outcome]) -> set[tuple[UUID, int]]:
    """Complete the attempts that are still their owners'; returns id and attempt of those.

    The fence stands in the CTE, which locks the rows it finds: what it saw cannot change before
    the update. Rows that others hold are passed over.
    """
    rows = [
        (
            outcome.attempt.id,
            outcome.attempt.attempt,
            outcome.attempt.owner,
            None if outcome.return_value is None else dumps(outcome.return_value),
        )
        for outcome in outcomes
    ]
    with connections[using].cursor() as cursor:
        cursor.execute(COMPLETE, [list(column) for column in zip(*rows, strict=True)])
        return set(cursor.fetchall())


# A row that becomes free goes to whoever comes first, not to whoever has waited for it: a recovery
# that passes locked rows over can come in before the owner has woken up. So an owner who waits
# says so, by an advisory lock that the server drops at the end of the transaction, and recovery
# leaves that row to it.

#: The first half of the key of such a lock ("jobq"); the other is the random part of the job's id.
WANTED = 0x6A6F6271

WANT = "SELECT pg_advisory_xact_lock_shared(%s, key) FROM unnest(%s::int[]) AS key"

IS_WANTED = """
SELECT objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

# The wait is in a CTE: had the update itself waited for somebody who only locked the row, it would
# write the time at which it began to wait.
EXTEND_ALONE = """
WITH wanted AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(%s, %s) AS by_owner),
held AS MATERIALIZED (
    SELECT job.id
    FROM jobqueue_job AS job, wanted
    WHERE job.id = %s AND attempt = %s AND lease_owner = %s
        AND status IN ('processing', 'cancelled')
    FOR NO KEY UPDATE OF job)
UPDATE jobqueue_job AS job
SET lease_expires_at = CLOCK_TIMESTAMP() + make_interval(secs => %s)
FROM held
WHERE job.id = held.id
"""


def want(using: str, job_ids: Sequence[UUID]) -> None:
    """Say, until the transaction ends, that the owner waits for the rows of these jobs."""
    if connections[using].vendor == "postgresql":
        with connections[using].cursor() as cursor:
            cursor.execute(WANT, (WANTED, [_key(job_id) for job_id in job_ids]))


def wanted(using: str, job_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the jobs, whose rows this transaction has locked, for which their owner waits."""
    if connections[using].vendor != "postgresql" or not job_ids:
        return set()
    with connections[using].cursor() as cursor:
        cursor.execute(IS_WANTED, (WANTED,))
        keys = {key for (key,) in cursor.fetchall()}
    return {job_id for job_id in job_ids if job_id.int & 0xFFFF_FFFF in keys}


def _key(job_id: UUID) -> int:
    key = job_id.int & 0xFFFF_FFFF
    return key - (1 << 32) if key >= 1 << 31 else key


def extend_alone(using: str, owner: UUID, pair: Pair, lease: float) -> bool:
    """Extend one lease, waiting for the row's lock; False if it is not the owner's any more.

    One statement, so that the server extends the lease as soon as the lock is free, however long
    the client takes to notice. CLOCK_TIMESTAMP, since the statement began before the wait.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(EXTEND_ALONE, (WANTED, _key(pair.id), pair.id, pair.attempt, owner, lease))
        return bool(cursor.rowcount == 1)


@contextmanager
def patiently(using: str, seconds: float) -> Iterator[None]:
    """A transaction that waits at most `seconds` for a lock, and then gives up, changing nothing.

    On SQLite there are no row locks to wait for.
    """
    try:
        with transaction.atomic(using):
            if connections[using].vendor == "postgresql":
                with connections[using].cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {int(seconds * 1000)}")
            yield
    except OperationalError as error:
        if not is_lock_timeout(error):
            raise


def is_lock_timeout(error: Exception) -> bool:
    """Whether `error` says that a lock was not had within the time that the session allows."""
    return getattr(error.__cause__, "sqlstate", None) == LOCK_NOT_AVAILABLE
