"""How jobs are claimed and completed: in batches, behind the fence, passing over rows that others hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections

from jobqueue.postgres.statements import (
    Column,
    Statement,
    array,
    documents,
    number,
    query,
    uuids,
)
from jobqueue.values import dumps

if TYPE_CHECKING:
    from jobqueue.attempts import Outcome, Wanted

# Parts of statements. Parameters are numbered by their place, so a part's come where the part does.

_NOT_PAUSED = """NOT EXISTS (
            SELECT FROM jobqueue_queue
            WHERE name = %s AND paused_at IS NOT NULL
                AND (paused_until IS NULL OR paused_until > STATEMENT_TIMESTAMP()))"""

_LEASE = """
UPDATE jobqueue_job SET
    status = 'processing',
    attempt = attempt + 1,
    lease_owner = %s,
    lease_expires_at = STATEMENT_TIMESTAMP() + make_interval(secs => %s),
    started_at = COALESCE(started_at, STATEMENT_TIMESTAMP()),
    attempted_at = STATEMENT_TIMESTAMP(),
    worker = %s
WHERE id = ANY (ARRAY ("""

_FIRST = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s
        AND {_NOT_PAUSED}
    ORDER BY priority DESC, id
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED"""

# Equality comes first, so that the index is entered at the place itself: a comparison of rows
# would walk over everything before it.
_BEHIND = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s AND priority = %s AND id > %s
        AND {_NOT_PAUSED}
    ORDER BY id
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED"""

_ABOVE = f"""
    SELECT id FROM jobqueue_job
    WHERE status = 'queued' AND queue_name = %s AND priority > %s
        AND {_NOT_PAUSED}
    ORDER BY priority DESC, id
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED"""

_THESE = f"""
    SELECT id FROM jobqueue_job
    WHERE id = ANY (%s::uuid[]) AND status = 'queued' AND queue_name = %s
        AND {_NOT_PAUSED}
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED"""

_ATTEMPT = """))
RETURNING id, task_path, args, kwargs, queue_name, priority, attempt, given_back, max_attempts,
    timeout, idempotency_key, run_after, enqueued_at, started_at, attempted_at"""

# The fence stands in the CTE, which locks the rows it finds: what it saw cannot change before
# the update. Each row is looked up by its id: a join would be free to walk over all that is leased,
# which seems little, and is not while an old snapshot keeps what was leased before.
_HELD = """held AS MATERIALIZED (
    SELECT job.id, outcome.value
    FROM unnest(%s::uuid[], %s::int[], %s::uuid[], %s::jsonb[])
        AS outcome (id, attempt, owner, value)
    CROSS JOIN LATERAL (
        SELECT id FROM jobqueue_job
        WHERE id = outcome.id AND attempt = outcome.attempt
            AND lease_owner = outcome.owner AND status = 'processing'
        FOR NO KEY UPDATE SKIP LOCKED) AS job)"""

_DONE = """
UPDATE jobqueue_job AS job SET
    status = 'completed',
    finished_at = STATEMENT_TIMESTAMP(),
    lease_owner = NULL,
    lease_expires_at = NULL,
    return_value = held.value,
    error = ''
FROM held
WHERE job.id = held.id
RETURNING job.id, job.attempt"""

# Both parts see the table as it was before either: what is completed was processing, what is
# claimed was queued, so they never meet.
_BOTH = """
SELECT id, NULL, NULL::jsonb, NULL::jsonb, NULL, NULL::smallint, attempt, NULL::int, NULL::int,
    NULL::float8, NULL, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz
FROM done
UNION ALL SELECT * FROM claimed"""

CLAIM = Statement(_LEASE + _FIRST + _ATTEMPT)
CLAIM_BEHIND = Statement(_LEASE + _BEHIND + _ATTEMPT)
CLAIM_ABOVE = Statement(_LEASE + _ABOVE + _ATTEMPT)
CLAIM_THESE = Statement(_LEASE + _THESE + _ATTEMPT)
COMPLETE = Statement(f"WITH {_HELD}{_DONE}")
EXCHANGE = Statement(
    f"WITH {_HELD}, done AS ({_DONE}), claimed AS ({_LEASE}{_FIRST}{_ATTEMPT}){_BOTH}"
)
EXCHANGE_BEHIND = Statement(
    f"WITH {_HELD}, done AS ({_DONE}), claimed AS ({_LEASE}{_BEHIND}{_ATTEMPT}){_BOTH}"
)
EXCHANGE_ABOVE = Statement(
    f"WITH {_HELD}, done AS ({_DONE}), claimed AS ({_LEASE}{_ABOVE}{_ATTEMPT}){_BOTH}"
)
EXCHANGE_THESE = Statement(
    f"WITH {_HELD}, done AS ({_DONE}), claimed AS ({_LEASE}{_THESE}{_ATTEMPT}){_BOTH}"
)

_PAIR = (Column.UUID, Column.INT)
_CLAIMED = (
    Column.UUID,
    Column.TEXT,
    Column.JSON,
    Column.JSON,
    Column.TEXT,
    Column.INT,
    Column.INT,
    Column.INT,
    Column.INT,
    Column.FLOAT,
    Column.TEXT,
    Column.MOMENT,
    Column.MOMENT,
    Column.MOMENT,
    Column.MOMENT,
)

Claimed = tuple[Any, ...]
Params = tuple[bytes | None, ...]
Done = set[tuple[UUID, int]]


def _params(wanted: Wanted) -> Params:
    """What the statement for these jobs takes, after the lease."""
    queue = wanted.queue.encode()
    if wanted.ids is not None:
        return uuids(wanted.ids), queue, queue
    limit = b"%d" % wanted.limit
    if wanted.above is not None:
        return queue, b"%d" % wanted.above, queue, limit
    if wanted.behind is not None:
        place = wanted.behind
        return queue, b"%d" % place.priority, place.id.hex.encode(), queue, limit
    return queue, queue, limit


def claim(using: str, wanted: Wanted, owner: UUID, worker: str, lease: float) -> list[Claimed]:
    """Lease the wanted jobs; returns the columns of an Attempt."""
    statement = _for(wanted, CLAIM, CLAIM_BEHIND, CLAIM_ABOVE, CLAIM_THESE)
    params = (*_lease(owner, worker, lease), *_params(wanted))
    return query(connections[using], statement, params, _CLAIMED)


def _for(
    wanted: Wanted, first: Statement, behind: Statement, above: Statement, these: Statement
) -> Statement:
    if wanted.ids is not None:
        return these
    if wanted.above is not None:
        return above
    return first if wanted.behind is None else behind


def complete(using: str, outcomes: Sequence[Outcome]) -> Done:
    """Complete the attempts that are still their owners'; returns id and attempt of those.

    Rows that others hold are passed over.
    """
    return set(query(connections[using], COMPLETE, _outcomes(outcomes), _PAIR))


def exchange(
    using: str,
    outcomes: Sequence[Outcome],
    wanted: Wanted,
    owner: UUID,
    worker: str,
    lease: float,
) -> tuple[Done, list[Claimed]]:
    """`complete` and `claim` in one statement and one commit."""
    statement = _for(wanted, EXCHANGE, EXCHANGE_BEHIND, EXCHANGE_ABOVE, EXCHANGE_THESE)
    params = (*_outcomes(outcomes), *_lease(owner, worker, lease), *_params(wanted))
    rows = query(connections[using], statement, params, _CLAIMED)
    done = {(row[0], row[6]) for row in rows if row[1] is None}
    return done, [row for row in rows if row[1] is not None]


def _lease(owner: UUID, worker: str, lease: float) -> Params:
    return owner.hex.encode(), number(lease), worker.encode()


def _outcomes(outcomes: Sequence[Outcome]) -> Params:
    attempts = [outcome.attempt for outcome in outcomes]
    values = [outcome.return_value for outcome in outcomes]
    return (
        uuids(attempt.id for attempt in attempts),
        array(attempt.attempt for attempt in attempts),
        uuids(attempt.owner for attempt in attempts),
        documents([None if value is None else dumps(value) for value in values]),
    )
