"""The few statements that PostgreSQL does faster than the ORM can say, whole and readable.

Only the lifecycle uses them, and for each it has a plain way that does the same on every database; one suite
of tests proves them equal. The ids to change are chosen by `= ANY (ARRAY (SELECT ...))` or in a
materialised CTE: `IN (SELECT ... LIMIT n)` may be run more than once and take more than n.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
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


class Statement(str):
    """SQL with `%s` for each parameter, and the same as the server's protocol has it: with `$1` and so on."""

    __slots__ = ("numbered",)

    def __init__(self, text: str) -> None:
        numbers = itertools.count(1)
        self.numbered = re.sub("%s", lambda _: f"${next(numbers)}", text).encode()


def _unless_taken(insert: str) -> str:
    return insert.replace("RETURNING", "ON CONFLICT DO NOTHING RETURNING")


INSERT_ONE = Statement("""
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
VALUES (
    %s, %s, %s, %s, %s, %s, %s, %s, %s,
    CASE WHEN %s::timestamptz > STATEMENT_TIMESTAMP() THEN 'scheduled' ELSE 'queued' END,
    GREATEST(%s::timestamptz, STATEMENT_TIMESTAMP()),
    STATEMENT_TIMESTAMP(), 0, 0, '', '')
RETURNING id, status, enqueued_at
""")
INSERT_ONE_KEYED = Statement(_unless_taken(INSERT_ONE))

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
RETURNING id, status, enqueued_at
"""
INSERT_MANY_KEYED = _unless_taken(INSERT_MANY)

#: Rows in one INSERT: more gain little, and a statement's parameters are bounded.
BATCH = 1_000
#: Of so many jobs on a COPY is worth its two round trips.
COPY_FROM = 20
#: Rows that are sent at once, while the server takes in those before.
COPY_CHUNK = 500

COPY = """
COPY jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
FROM STDIN
"""

#: What an insert tells of a job that it made: id, status, and when it was accepted.
Inserted = tuple[UUID, str, datetime]


def insert(using: str, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert the jobs; returns those whose key was free. Of many it takes several statements."""
    if len(jobs) == 1:
        return _insert_one(using, jobs[0])
    if len(jobs) >= COPY_FROM and not any(job.idempotency_key or job.run_after for job in jobs):
        return _copy(using, jobs)
    return _insert_many(using, jobs)


def _insert_one(using: str, job: NewJob) -> list[Inserted]:
    from jobqueue import wire  # the driver need not be installed where there is no PostgreSQL

    statement = INSERT_ONE if job.idempotency_key is None else INSERT_ONE_KEYED
    connection = connections[using]
    if not wire.is_open(connection):
        with connection.cursor() as cursor:
            cursor.execute(statement, (*_columns(job), job.run_after))
            accepted: list[Inserted] = cursor.fetchall()
        return accepted
    run_after = None if job.run_after is None else job.run_after.isoformat().encode()
    params = (
        job.id.hex.encode(),
        job.task_path.encode(),
        dumps(job.args).encode(),
        dumps(job.kwargs).encode(),
        job.queue_name.encode(),
        b"%d" % job.priority,
        b"%d" % job.max_attempts,
        None if job.timeout is None else repr(float(job.timeout)).encode(),
        None if job.idempotency_key is None else job.idempotency_key.encode(),
        run_after,
        run_after,
    )
    return [
        (job.id, (status or b"").decode(), wire.moment(connection, at or b""))
        for _, status, at in wire.fetch(connection, statement.numbered, params)
    ]


def _insert_many(using: str, jobs: Sequence[NewJob]) -> list[Inserted]:
    keyed = any(job.idempotency_key is not None for job in jobs)
    statement = INSERT_MANY_KEYED if keyed else INSERT_MANY
    accepted: list[Inserted] = []
    with connections[using].cursor() as cursor:
        for start in range(0, len(jobs), BATCH):
            rows = map(_columns, jobs[start : start + BATCH])
            columns = [list(column) for column in zip(*rows, strict=True)]
            cursor.execute(statement, columns)
            accepted += cursor.fetchall()
    return accepted


def _columns(job: NewJob) -> tuple[Any, ...]:
    return (
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


def _copy(using: str, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert jobs that have neither a key nor a time of their own."""
    with connections[using].cursor() as cursor:
        # As text too, since a local time that was read is ambiguous in the hour that comes twice.
        cursor.execute("SELECT STATEMENT_TIMESTAMP(), STATEMENT_TIMESTAMP()::text")
        now, written = cursor.fetchone()
        ending = f"\tqueued\t{written}\t{written}\t0\t0\t\t\n"
        # Django's cursors hand out the driver's own way to copy, and its errors with it.
        with connections[using].wrap_database_errors, cursor.copy(COPY) as copy:
            for start in range(0, len(jobs), COPY_CHUNK):
                chunk = jobs[start : start + COPY_CHUNK]
                copy.write("".join([_copied(job) + ending for job in chunk]))
    return [(job.id, "queued", now) for job in jobs]


def _copied(job: NewJob) -> str:
    """The job's own columns, as a line of COPY's text format begins."""
    # JSON of ours has backslashes, but neither tabs nor line ends.
    args, kwargs = (dumps(value).replace("\\", r"\\") for value in (job.args, job.kwargs))
    timeout = r"\N" if job.timeout is None else repr(float(job.timeout))
    return (
        f"{job.id.hex}\t{_escaped(job.task_path)}\t{args}\t{kwargs}\t{_escaped(job.queue_name)}"
        f"\t{job.priority}\t{job.max_attempts}\t{timeout}"
    )


@functools.lru_cache
def _escaped(name: str) -> str:
    return name.translate(_ESCAPES)


_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


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


# A wake-up need not outlive a crash. Without this its commit would wait for the disk like an insert's.
NOTIFY = Statement("""
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name)
FROM unnest(%s::text[]) AS name
""")

NOTIFY_IN_TRANSACTION = "SELECT pg_notify(%s, name) FROM unnest(%s::text[]) AS name"


def notify(using: str, channel: str, payloads: Sequence[str]) -> None:
    """Send each of the payloads on a channel, when the current transaction commits if there is one."""
    connection = connections[using]
    statement = NOTIFY_IN_TRANSACTION if connection.in_atomic_block else NOTIFY
    with connection.cursor() as cursor:
        cursor.execute(statement, (channel, list(payloads)))


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
