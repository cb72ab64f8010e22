"""The few statements that SQLite does faster than the ORM can say: how a job comes in, is claimed, and is completed.

Only the lifecycle uses them; `postgres` has its own, and one suite of tests proves them equal. There is no journey to a
server to save here, so where it is simpler each row has a statement of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections, transaction

from jobqueue import clock
from jobqueue.values import dumps, loads

if TYPE_CHECKING:
    from jobqueue.attempts import Outcome, Wanted
    from jobqueue.lifecycle.enqueueing import NewJob

INSERT = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 0, 0, '', '')
"""
# Unlike INSERT OR IGNORE it passes over a key that is taken, and over nothing else.
INSERT_KEYED = (
    INSERT
    + """
ON CONFLICT (task_path, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
"""
)

_NOT_PAUSED = """NOT EXISTS (
            SELECT 1 FROM jobqueue_queue
            WHERE name = %s AND paused_at IS NOT NULL
                AND (paused_until IS NULL OR paused_until > %s))"""

_LEASE = """
UPDATE jobqueue_job SET
    status = 'processing',
    attempt = attempt + 1,
    lease_owner = %s,
    lease_expires_at = %s,
    started_at = COALESCE(started_at, %s),
    attempted_at = %s,
    worker = %s
WHERE id IN ("""

_FIRST = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s
        AND {_NOT_PAUSED}
    ORDER BY priority DESC, id
    LIMIT %s"""

_BEHIND = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s AND priority = %s AND id > %s
        AND {_NOT_PAUSED}
    ORDER BY id
    LIMIT %s"""

_ABOVE = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s AND priority > %s
        AND {_NOT_PAUSED}
    ORDER BY priority DESC, id
    LIMIT %s"""

# A CROSS JOIN, which SQLite does in the order in which it is written: a few rows are looked up by
# their ids, and not all that are queued gone through.
_THESE = f"""
    SELECT job.id FROM json_each(%s) AS these CROSS JOIN jobqueue_job AS job
    WHERE job.id = these.value AND status = 'queued' AND queue_name = %s
        AND {_NOT_PAUSED}"""

_ATTEMPT = """)
RETURNING id, task_path, args, kwargs, queue_name, priority, attempt, given_back, max_attempts,
    timeout, idempotency_key, run_after, enqueued_at, started_at, attempted_at"""

CLAIM = _LEASE + _FIRST + _ATTEMPT
CLAIM_BEHIND = _LEASE + _BEHIND + _ATTEMPT
CLAIM_ABOVE = _LEASE + _ABOVE + _ATTEMPT
CLAIM_THESE = _LEASE + _THESE + _ATTEMPT

COMPLETE = """
UPDATE jobqueue_job SET
    status = 'completed',
    finished_at = %s,
    lease_owner = NULL,
    lease_expires_at = NULL,
    return_value = %s,
    error = ''
WHERE id = %s AND attempt = %s AND lease_owner = %s AND status = 'processing'
"""


def serves(using: str) -> bool:
    """Whether the database `using` is SQLite; if not, it is PostgreSQL."""
    return connections[using].vendor == "sqlite"


def insert(using: str, jobs: Sequence[NewJob]) -> list[tuple[UUID, str, datetime]]:
    """Insert the jobs; returns id, status and time of acceptance of those whose key was free.

    Of more than one it takes several statements, and the caller has a transaction around them.
    """
    now = clock.now(using)
    written = connections[using].ops.adapt_datetimefield_value
    accepted_at = written(now)
    inserted: list[tuple[UUID, str, datetime]] = []
    keyless: list[tuple[Any, ...]] = []
    with connections[using].cursor() as cursor:
        for job in jobs:
            is_later = job.run_after is not None and job.run_after > now
            status = "scheduled" if is_later else "queued"
            row = (
                job.id.hex,
                job.task_path,
                dumps(job.args),
                dumps(job.kwargs),
                job.queue_name,
                job.priority,
                job.max_attempts,
                job.timeout,
                job.idempotency_key,
                status,
                written(job.run_after) if is_later else accepted_at,
                accepted_at,
            )
            if job.idempotency_key is None:
                keyless.append(row)
            else:
                cursor.execute(INSERT_KEYED, row)
                if cursor.rowcount != 1:
                    continue
            inserted.append((job.id, status, now))
        if keyless:
            cursor.executemany(INSERT, keyless)
    return inserted


def claim(
    using: str, wanted: Wanted, owner: UUID, worker: str, lease: float
) -> list[tuple[Any, ...]]:
    """Lease the wanted jobs; returns the columns of an Attempt."""
    written = connections[using].ops.adapt_datetimefield_value
    with transaction.atomic(using), connections[using].cursor() as cursor:
        # Only now, since the file may have been somebody else's for a while.
        now = clock.now(using)
        moment = written(now)
        leased = (owner.hex, written(now + timedelta(seconds=lease)), moment, moment, worker)
        statement, chosen = _choose(wanted, moment)
        cursor.execute(statement, (*leased, *chosen))
        rows = cursor.fetchall()
    return [_read(row, connections[using]) for row in rows]


def _choose(wanted: Wanted, moment: str | None) -> tuple[str, tuple[Any, ...]]:
    """The statement for these jobs, and what it takes after the lease."""
    queue, not_paused = wanted.queue, (wanted.queue, moment)
    if wanted.ids is not None:
        ids = json.dumps([each.hex for each in wanted.ids])
        return CLAIM_THESE, (ids, queue, *not_paused)
    if wanted.above is not None:
        return CLAIM_ABOVE, (queue, wanted.above, *not_paused, wanted.limit)
    if wanted.behind is not None:
        place = wanted.behind
        return CLAIM_BEHIND, (queue, place.priority, place.id.hex, *not_paused, wanted.limit)
    return CLAIM, (queue, *not_paused, wanted.limit)


def _read(row: Sequence[Any], connection: Any) -> tuple[Any, ...]:
    """A claimed row as the ORM would read it."""
    key, path, args, kwargs, *plain = row[:-4]
    times = [connection.ops.convert_datetimefield_value(at, None, connection) for at in row[-4:]]
    return (UUID(hex=key), path, loads(args), loads(kwargs), *plain, *times)


def complete(using: str, outcomes: Sequence[Outcome]) -> set[tuple[UUID, int]]:
    """Complete the attempts that are still their owners'; returns id and attempt of those."""
    done: set[tuple[UUID, int]] = set()
    with transaction.atomic(using), connections[using].cursor() as cursor:
        finished_at = connections[using].ops.adapt_datetimefield_value(clock.now(using))
        for outcome in outcomes:
            attempt = outcome.attempt
            returned = None if outcome.return_value is None else dumps(outcome.return_value)
            fence = (attempt.id.hex, attempt.attempt, attempt.owner.hex)
            cursor.execute(COMPLETE, (finished_at, returned, *fence))
            if cursor.rowcount == 1:
                done.add(attempt.pair)
    return done
