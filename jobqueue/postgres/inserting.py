"""How jobs are inserted: one by a single statement, some from arrays, many by COPY."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections

from jobqueue.postgres.statements import Column, Statement, number, query
from jobqueue.values import dumps

if TYPE_CHECKING:
    from jobqueue.lifecycle.enqueueing import NewJob


def _unless_taken(insert: str) -> str:
    return insert.replace("RETURNING", "ON CONFLICT DO NOTHING RETURNING")


INSERT_ONE = Statement(
    """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, idempotency_key,
    status, run_after, enqueued_at, attempt, given_back, worker, error)
VALUES (
    %s, %s, %s, %s, %s, %s, %s, %s, %s,
    CASE WHEN %s::timestamptz > STATEMENT_TIMESTAMP() THEN 'scheduled' ELSE 'queued' END,
    GREATEST(%s::timestamptz, STATEMENT_TIMESTAMP()),
    STATEMENT_TIMESTAMP(), 0, 0, '', '')
RETURNING status, enqueued_at
""",
    has_one_plan=True,
)
INSERT_ONE_KEYED = Statement(_unless_taken(INSERT_ONE), has_one_plan=True)

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
    return _insert_many(using, jobs)


def _insert_one(using: str, job: NewJob) -> list[Inserted]:
    statement = INSERT_ONE if job.idempotency_key is None else INSERT_ONE_KEYED
    run_after = None if job.run_after is None else job.run_after.isoformat().encode()
    params = (
        job.id.hex.encode(),
        job.task_path.encode(),
        dumps(job.args).encode(),
        dumps(job.kwargs).encode(),
        job.queue_name.encode(),
        b"%d" % job.priority,
        b"%d" % job.max_attempts,
        None if job.timeout is None else number(float(job.timeout)),
        None if job.idempotency_key is None else job.idempotency_key.encode(),
        run_after,
        run_after,
    )
    rows = query(connections[using], statement, params, (Column.TEXT, Column.MOMENT))
    return [(job.id, *row) for row in rows]


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


def copy(using: str, jobs: Sequence[NewJob]) -> datetime | None:
    """Insert many jobs, all of them queued; returns when they were accepted. None if this is not the
    way for them: they are few, or some have a key or a time of their own."""
    if len(jobs) < COPY_FROM or any(job.idempotency_key or job.run_after for job in jobs):
        return None
    with connections[using].cursor() as cursor:
        # As text too, since a local time that was read is ambiguous in the hour that comes twice.
        cursor.execute("SELECT STATEMENT_TIMESTAMP(), STATEMENT_TIMESTAMP()::text")
        now, written = cursor.fetchone()
        ending = f"\tqueued\t{written}\t{written}\t0\t0\t\t\n"
        # Django's cursors hand out the driver's own way to copy, and its errors with it.
        with connections[using].wrap_database_errors, cursor.copy(COPY) as sink:
            for start in range(0, len(jobs), COPY_CHUNK):
                chunk = jobs[start : start + COPY_CHUNK]
                sink.write("".join([_copied(job) + ending for job in chunk]))
    accepted: datetime = now
    return accepted


def _copied(job: NewJob) -> str:
    """The job's own columns, as a line of COPY's text format begins."""
    # JSON of ours has backslashes, but neither tabs nor line ends.
    args = dumps(job.args).replace("\\", r"\\")
    kwargs = dumps(job.kwargs).replace("\\", r"\\")
    timeout = r"\N" if job.timeout is None else repr(float(job.timeout))
    return (
        f"{job.id.hex}\t{_escaped(job.task_path)}\t{args}\t{kwargs}\t{_escaped(job.queue_name)}"
        f"\t{job.priority}\t{job.max_attempts}\t{timeout}"
    )


@functools.lru_cache
def _escaped(name: str) -> str:
    return name.translate(_ESCAPES)


_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
