"""How to wait for a row without losing one's place, and without waiting for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import OperationalError, connections, transaction

if TYPE_CHECKING:
    from jobqueue.attempts import Pair

#: What libpq calls a lock that was not had within lock_timeout.
LOCK_NOT_AVAILABLE = "55P03"

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
