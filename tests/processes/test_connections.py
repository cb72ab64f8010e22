"""Each job finds its connections as if they were new, and none is left behind."""

from __future__ import annotations

import contextlib
import itertools
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobqueue import enqueue_many
from jobqueue.models import FINAL, Job, Status
from tests.app.models import Effect
from tests.processes import odd, tasks
from tests.processes.conftest import Site, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

HELD = {"JOBQUEUE_TEST_CONN_MAX_AGE": "none"}


@pytest.mark.parametrize("variables", [HELD, {}], ids=["held", "closed after each"])
def test_whatever_a_job_leaves_behind(site, variables):
    """One slot, one thread: its outcome is recorded, and the next job finds a clean connection."""
    worker = site.start_ready("--concurrency", "1", **variables)
    pids = worker.workers
    first = odd.using_the_database.enqueue()
    site.wait_status(first.id, Status.COMPLETED)
    (clean,) = site.events("end", first.id)
    pairs = [(odd.leaving.enqueue(what), odd.using_the_database.enqueue()) for what in odd.LEAVES]
    for what, (leaving, after) in zip(odd.LEAVES, pairs, strict=True):
        row = site.wait_status(leaving.id, Status.COMPLETED, Status.FAILED)
        failed = what == "broken_transaction"
        assert row.status == (Status.FAILED if failed else Status.COMPLETED), row.error
        row = site.wait_status(after.id, Status.COMPLETED)
        assert row.attempt == 1, f"after {what}: {row.error}"
        (end,) = site.events("end", after.id)
        assert end["found"] == clean["found"], f"after {what}"
        assert end["thread"] == clean["thread"]
    expected = {str(job.id) for job in (first, *(after for _, after in pairs))}
    assert set(Effect.objects.values_list("key", flat=True)) == expected, "left and committed"
    assert worker.workers == pids


def test_two_async_jobs_on_one_loop(site):
    """One sits in a broken transaction; the others do not notice, each on its own connection."""
    site.start_ready("--concurrency", "6")
    breaking = odd.breaking_its_transaction.enqueue("go")
    site.wait_for("broken", breaking.id)
    if connection.vendor == "sqlite":
        # There nobody can write beside it; that they do not share the connection shows all the same.
        site.release("go")
    others = [odd.using_the_database_async.enqueue() for _ in range(4)]
    for job in others:
        assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
        assert site.events("end", job.id)[0]["count"] == 1
    site.release("go")
    site.wait_status(breaking.id, Status.COMPLETED)
    if connection.vendor == "postgresql":
        used = [site.events("end", job.id)[0]["connection"] for job in others]
        assert site.events("broken")[0]["connection"] not in used
    assert Effect.objects.count() == 4


def test_jobs_that_mix_sync_and_async(site):
    """Loops of their own, threads with loops, other jobs: on threads and on the event loop."""
    site.start_ready("--concurrency", "3")
    jobs = [odd.mixed_sync.enqueue(), odd.mixed_async.enqueue()]
    assert site.wait_status(jobs[0].id, Status.COMPLETED).return_value == [2, 2, 3]
    assert site.wait_status(jobs[1].id, Status.COMPLETED).return_value == 4
    wait_until(
        lambda: (
            Job.objects.filter(
                task_path=odd.using_the_database.module_path, status="completed"
            ).count()
            == 3
        ),
        "the jobs that they have enqueued",
    )


@pytest.mark.parametrize("max_age", ["0", "60", "none"])
def test_the_query_log_is_bounded(site, max_age):
    """With DEBUG Django remembers every query."""
    site.start_ready(
        "--concurrency", "1", JOBQUEUE_TEST_DEBUG="1", JOBQUEUE_TEST_CONN_MAX_AGE=max_age
    )
    jobs = [odd.using_the_database.enqueue() for _ in range(15)]
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
    counts = [site.events("end", job.id)[0]["found"]["queries"] for job in jobs]
    assert max(counts) <= 5
    assert counts[0] > 0, "nothing was remembered: this proves nothing"


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("max_age", "checks"), [*itertools.product(["0", "60", "none"], ["0", "1"])]
)
def test_connections_that_the_server_has_ended(site, max_age, checks):
    """The next job succeeds at the first attempt, and its signals are told, in every combination."""
    site.start_ready(
        "--concurrency",
        "2",
        JOBQUEUE_TEST_CONN_MAX_AGE=max_age,
        JOBQUEUE_TEST_CONN_HEALTH_CHECKS=checks,
        JOBQUEUE_TEST_RECEIVERS="1",
    )
    for _ in range(3):
        jobs = [odd.using_the_database.enqueue() for _ in range(2)]
        jobs.append(odd.using_the_database_async.enqueue())
        for job in jobs:
            row = site.wait_status(job.id, Status.COMPLETED)
            assert row.attempt == 1, row.error
            assert len(site.wait_for("task_finished", job.id)) == 1
        end_connections()


def others() -> list[tuple[Any, ...]]:
    """The other connections to this database: pid, and what each did last."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, state, query FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return cursor.fetchall()


def end_connections() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    wait_until(
        lambda: not [row for row in others() if row[1] == "idle in transaction"], "them to end"
    )


@pytest.mark.postgres
@pytest.mark.parametrize("max_age", ["0", "none"])
def test_connections_do_not_pile_up(site, max_age):
    """At most one a slot and a few of the worker's own; none is left when it has stopped."""
    before = len(others())
    worker = site.start_ready(
        "--concurrency", "6", JOBQUEUE_TEST_CONN_MAX_AGE=max_age, JOBQUEUE_TEST_RECEIVERS="1"
    )
    jobs = []
    for _ in range(60):
        jobs.append(odd.using_the_database.enqueue())
        jobs.append(odd.using_the_database_async.enqueue())
        jobs.append(odd.raising.enqueue("plain"))
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, len(others()) - before)
        return not Job.objects.exclude(status__in=["completed", "failed"]).exists()

    wait_until(done, "all to end", 60)
    # Worker, supervisor, announcer; six threads, and six async jobs.
    assert most <= 3 + 6 + 6
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    wait_until(lambda: len(others()) <= before, "all connections to be gone")


@pytest.mark.postgres
def test_a_job_that_is_stopped_in_a_query(site):
    """Its connection would still be busy with that query; the next job gets another one."""
    site.start_ready("--concurrency", "1", **HELD)
    jobs = []
    for _ in range(8):
        jobs.append((odd.querying.using(timeout=0.5, max_attempts=1).enqueue(), "failed"))
        jobs.append((odd.using_the_database.enqueue(), "completed"))
    for job, status in jobs:
        row = site.wait_status(job.id, Status.COMPLETED, Status.FAILED)
        assert (row.status, row.attempt) == (status, 1), row.error


def test_a_connection_before_the_workers_were_started(site: Site) -> None:
    """An app that asks the database in ready(): no process shares that connection."""
    site.start_ready("--processes", "3", "--concurrency", "2", JOBQUEUE_TEST_READY="1")
    jobs = [odd.using_the_database.enqueue() for _ in range(30)]
    for job in jobs:
        assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
    assert tasks


@pytest.mark.postgres
def test_no_transaction_is_open_while_a_job_runs(site):
    """One would keep dead rows in every table for as long as the job runs."""
    site.start_ready()
    job = tasks.until.enqueue("go")
    site.wait_for("begin", job.id)
    with connection.cursor() as cursor:
        for _ in range(20):
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%' "
                "AND state_change < clock_timestamp() - interval '1 second'"
            )
            assert cursor.fetchone() == (0,)
            cursor.execute("SELECT pg_sleep(0.1)")
    site.release("go")
    site.wait_status(job.id, Status.COMPLETED)


@pytest.mark.postgres  # what a worker keeps does not depend on the database, and SQLite takes its time
@pytest.mark.parametrize("debug", ["0", "1"], ids=["plain", "DEBUG"])
def test_memory_does_not_grow(site, debug):
    """More than a thousand jobs that query, return much, and fail deep down: a worker's memory after the first
    of them and at the end."""
    worker = site.start_ready("--concurrency", "2", JOBQUEUE_TEST_DEBUG=debug, **HELD)
    (pid,) = worker.workers

    def go_on(jobs):
        enqueue_many(
            [
                *[odd.asking.bind(5) for _ in range(jobs)],
                *[odd.returning_much.bind(1_000_000) for _ in range(jobs // 40)],
                *[odd.failing_deep_down.bind(100) for _ in range(jobs // 40)],
            ]
        )
        wait_until(lambda: not Job.objects.exclude(status__in=FINAL).exists(), "all to end", 90)
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

    warm = go_on(200)
    rounds = [go_on(200) for _ in range(5)]
    assert worker.workers == [pid]
    # What it keeps: what is in use just then, megabytes of results, comes and goes.
    after = min(rounds[2:])
    assert after < 1.2 * warm, f"{warm:,} bytes, then {after:,}"


@pytest.mark.postgres
def test_beside_a_transaction_that_does_not_end(site):
    """What was claimed stays in the index for as long as somebody's snapshot could see it: the last jobs of
    many are claimed about as fast as the first."""
    many, part = 12_000, 2_000
    enqueue_many([odd.nothing_async.bind() for _ in range(many)])
    with holding_a_snapshot():
        site.start_ready("--concurrency", "100")
        completed = Job.objects.filter(status=Status.COMPLETED)
        wait_until(lambda: completed.count() == many, "all to end", 90)
    ends = list(completed.order_by("finished_at").values_list("finished_at", flat=True))
    first, last = ends[part] - ends[0], ends[-1] - ends[-part]
    assert last < 3 * first, f"the first {part} took {first}, the last ones {last}"


@contextlib.contextmanager
def holding_a_snapshot():
    """A session that has read the jobs, and goes on seeing them as they are now."""
    with contextlib.closing(connection.copy("beside")) as beside:
        beside.set_autocommit(False)
        with beside.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT COUNT(*) FROM jobqueue_job")
            yield
        beside.rollback()
