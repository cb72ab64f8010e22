"""What a claim reads among many rows that are none of its business, asked of PostgreSQL itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue import clock, lifecycle
from jobqueue.models import Job, Status
from jobqueue.postgres import moving
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER

# A million rows take their time to be made.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

FINISHED, SCHEDULED, QUEUED, LEASED = 1_000_000, 100_000, 100_000, 100

FILL = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, attempt, given_back,
    worker, error, status, run_after, enqueued_at, started_at, attempted_at, finished_at,
    lease_owner, lease_expires_at)
SELECT
    gen_random_uuid(), 'tests.tasks_sample.nothing', '[]', '{}', 'default', number %% 5, 5, 60,
    CASE WHEN kind.status IN ('queued', 'scheduled') THEN 0 ELSE 1 END, 0, '', '', kind.status,
    now() + kind.delay, now(), now(), now(),
    CASE WHEN kind.status IN ('completed', 'failed', 'cancelled') THEN now() END,
    CASE WHEN kind.status = 'processing' THEN gen_random_uuid() END,
    CASE WHEN kind.status = 'processing' THEN now() - interval '1 minute' END
FROM (VALUES
    ('completed', %s, interval '0'),
    ('failed', %s, interval '0'),
    ('cancelled', %s, interval '0'),
    ('scheduled', %s, interval '1 day'),
    ('queued', %s, interval '0'),
    ('processing', %s, interval '0')) AS kind (status, count, delay),
    LATERAL generate_series(1, kind.count) AS number
"""


@pytest.fixture(scope="module")
def many_jobs(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Made once, and committed: what each test does to them is rolled back."""
    third = FINISHED // 3
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(FILL, [third, third, third, SCHEDULED, QUEUED, LEASED])
        cursor.execute("ANALYZE jobqueue_job")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobqueue_job CASCADE")


def explain(sql: str, params: Any) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, params)
        (answer,) = cursor.fetchone()
    plan = json.loads(answer) if isinstance(answer, str) else answer
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def rows_read(plan: dict[str, Any]) -> int:
    """Rows that the scans looked at, those they threw away included. A bitmap's entries are not
    counted: among them are those of rows that other tests have rolled back."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan)
        if "Scan" in node["Node Type"] and node["Node Type"] != "Bitmap Index Scan"
    )


def indexes(plan: dict[str, Any]) -> set[str]:
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def check_cheap(plan: dict[str, Any], index: str, rows: int, *, may_sort: bool = False) -> None:
    kinds = jobs_only(plan)
    assert "Seq Scan" not in kinds
    assert may_sort or not any("Sort" in kind for kind in kinds), kinds
    assert index in indexes(plan)
    assert rows_read(plan) <= 4 * rows + 10, plan


def jobs_only(plan: dict[str, Any]) -> list[str]:
    """The nodes, without a scan of the few rows of another table."""
    return [
        node["Node Type"]
        for node in nodes(plan)
        if node.get("Relation Name", "jobqueue_job") == "jobqueue_job"
    ]


@pytest.mark.usefixtures("many_jobs")
@pytest.mark.django_db
class TestAmongManyRows:
    def test_a_claim_reads_what_it_takes(self):
        for limit in (1, 8, 100):
            owner = uuid.uuid4()
            claim = (owner, 30.0, WORKER, "default", "default", limit)
            check_cheap(explain(moving.CLAIM, claim), "jobqueue_claimable", limit)
            assert Job.objects.filter(lease_owner=owner).count() == limit
        nothing = (uuid.uuid4(), 30.0, WORKER, "empty", "empty", 8)
        check_cheap(explain(moving.CLAIM, nothing), "jobqueue_claimable", 0)

    def test_a_claim_by_id_reads_those(self):
        ids = list(Job.objects.filter(status=Status.QUEUED).values_list("pk", flat=True)[:8])
        owner = uuid.uuid4()
        plan = explain(moving.CLAIM_THESE, (owner, 30.0, WORKER, ids, "default", "default"))
        assert "Seq Scan" not in jobs_only(plan)
        assert rows_read(plan) <= 4 * len(ids) + 10, plan
        assert Job.objects.filter(lease_owner=owner).count() == len(ids)

    def test_due_jobs_are_found_without_those_of_tomorrow(self):
        JobFactory.create_batch(3, scheduled=True, run_after=JobFactory.build().run_after)
        due = lifecycle.due("default", clock.moment("default")).values_list("pk")[:200]
        plan = explain(*due.query.sql_with_params())
        check_cheap(plan, "jobqueue_due", 3)

    def test_leases_are_found_among_the_leased(self):
        expired = lifecycle.expired("default", clock.moment("default"))
        lost = expired.filter(status=Status.PROCESSING).values_list("pk")[:200]
        plan = explain(*lost.query.sql_with_params())
        # There are no more of them than slots, so to put them in order costs nothing.
        check_cheap(plan, "jobqueue_leased", LEASED, may_sort=True)

    def test_a_batch_is_completed_by_its_primary_keys(self):
        attempts = lifecycle.claim("default", uuid.uuid4(), WORKER, 8)
        columns = (
            [attempt.id for attempt in attempts],
            [attempt.attempt for attempt in attempts],
            [attempt.owner for attempt in attempts],
            [None for _ in attempts],
        )
        next_claim = (uuid.uuid4(), 30.0, WORKER, "default", "default", 8)
        for statement, params in (
            (moving.COMPLETE, columns),
            (moving.EXCHANGE, columns + next_claim),
        ):
            plan = explain(statement, params)
            assert "Seq Scan" not in jobs_only(plan)
            assert rows_read(plan) <= 16 * len(attempts), plan


@pytest.mark.django_db(transaction=True)
def test_heartbeats_change_no_index():
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobqueue_job CASCADE")  # a fresh page
    jobs, beats = 2, 5  # so few that all versions of the rows find room on it
    JobFactory.create_batch(jobs)
    owner = uuid.uuid4()
    pairs = [each.pair for each in lifecycle.claim("default", owner, WORKER, jobs)]
    updated = hot = 0
    for _ in range(beats):
        with transaction.atomic():
            before = counted()
            assert len(lifecycle.heartbeat(owner, pairs).held) == jobs
            after = counted()
        updated += after[0] - before[0]
        hot += after[1] - before[1]
    assert updated == hot == jobs * beats


def counted() -> tuple[int, int]:
    """Updates of jobs that this transaction has made, and those of them that touched no index."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_get_xact_tuples_updated(oid), pg_stat_get_xact_tuples_hot_updated(oid) "
            "FROM pg_class WHERE oid = 'jobqueue_job'::regclass"
        )
        updated, hot = cursor.fetchone()
    return updated, hot
