"""Databases that go away: workers keep what they have, come back by themselves, and do nothing twice."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, transaction

from jobqueue.models import Job, JobLog, Status, Worker
from tests.app.models import Effect
from tests.processes import tasks
from tests.processes.conftest import Site, wait_until
from tests.processes.severing import Severing

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

LEASE = 3.0
SHORT_LEASE = {"lease": LEASE, "heartbeat": LEASE / 3}
LONG_LEASE = {"lease": 120.0, "heartbeat": 0.5}
#: So seldom do workers look by themselves that what is picked up sooner was heard of.
SELDOM = 8.0


def assert_once(site: Site, job_id: str) -> None:
    row = site.wait_status(job_id, Status.COMPLETED)
    assert (row.attempt, site.log_events(job_id)) == (1, [])
    assert len(site.events("begin", job_id)) == len(site.events("end", job_id)) == 1


def pick_up(site: Site) -> float:
    """Seconds from the enqueuing of a job to its beginning."""
    # Two within 10 ms may share one notification.
    at = time.monotonic()
    job = tasks.quick.enqueue()
    return float(site.wait_for("begin", job.id)[0]["at"] - at)


@pytest.mark.postgres
def test_after_an_outage_longer_than_a_lease_owners_come_first(private_site, on_private_postgres):
    site = private_site
    sites = [site.start_ready("--concurrency", "4", options=SHORT_LEASE) for _ in range(3)]
    jobs = [tasks.until.using(timeout=None).enqueue("go") for _ in range(12)]
    for job in jobs:
        site.wait_for("begin", job.id)
    workers = [worker for supervised in sites for worker in supervised.workers]
    with site.reconciling(options=SHORT_LEASE):
        on_private_postgres.restart(down_for=LEASE + 1)
        connection.close()
        back = dict(Worker.objects.values_list("pk", "heartbeat_at"))
        # Long enough for anyone to take what looks expired.
        wait_until(
            lambda: all(
                (at - back[pk]).total_seconds() > LEASE + 1
                for pk, at in Worker.objects.values_list("pk", "heartbeat_at")
            ),
            "all workers to beat for more than a lease",
        )
        site.release("go")
        for job in jobs:
            assert_once(site, job.id)
    assert [worker for supervised in sites for worker in supervised.workers] == workers


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_jobs_that_end_in_an_outage_are_recorded_once(private_site, on_private_postgres, mode):
    site, server = private_site, on_private_postgres
    options = LONG_LEASE | {"tick": SELDOM}
    supervised = site.start_ready("--processes", "2", "--concurrency", "8", options=options)
    workers = supervised.workers
    jobs = [tasks.until.enqueue("eight" if number < 8 else "later") for number in range(16)]
    for job in jobs:
        site.wait_for("begin", job.id)
    server.stop(mode)
    connection.close()
    site.release("eight")
    for job in jobs[:8]:
        site.wait_for("end", job.id)
    wait_until(lambda: supervised.log.count("cannot use the database") >= 2, "them to notice")
    server.start()

    for job in jobs[:8]:
        assert_once(site, job.id)
    wait_until(lambda: supervised.log.count("Listening for new jobs again") == 2, "them to listen")
    assert min(pick_up(site) for _ in range(3)) < SELDOM / 4
    site.release("later")
    for job in jobs[8:]:
        assert_once(site, job.id)
    assert supervised.workers == workers
    assert "Traceback" not in supervised.log


@pytest.mark.postgres
def test_connections_that_are_cut_are_made_again(private_site, on_private_postgres):
    """Idle and busy; and a job that cuts them all as the last thing that it does."""
    site, server = private_site, on_private_postgres
    seldom = 2 * SELDOM  # neighbours may keep a worker from its processor for some seconds
    supervised = site.start_ready(options=LONG_LEASE | {"tick": seldom})
    (worker,) = supervised.workers
    assert min(pick_up(site) for _ in range(3)) < seldom / 4
    for times, jobs in enumerate([0, 4], start=1):
        running = [tasks.until.enqueue(f"go{times}") for _ in range(jobs)]
        for job in running:
            site.wait_for("begin", job.id)
        assert server.cut_connections() >= 2
        connection.close()
        wait_until(
            lambda times=times: supervised.log.count("Listening for new jobs again") == times,
            "the worker to listen again",
            seldom / 2,
        )
        assert min(pick_up(site) for _ in range(3)) < seldom / 4
        site.release(f"go{times}")
        for job in running:
            assert_once(site, job.id)
    for _ in range(3):
        job = tasks.cutting.enqueue()
        site.wait_for("end", job.id)
        connection.close()  # this one was cut, too
        assert_once(site, job.id)
    assert supervised.workers == [worker]
    assert "Traceback" not in supervised.log


# Only workers listen; the supervisor makes a claim for nothing before it forks them.
CLAIM = ("LISTEN", "SET\n    status = 'processing'")
OUTCOME = ("SET\n    status = 'completed'",)
FAILURE = ('INSERT INTO "jobqueue_joblog"', "COMMIT")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("words", "lost", "attempts", "events"),
    [
        (CLAIM, "request", 1, []),
        (CLAIM, "answer", 2, ["released"]),
        (OUTCOME, "request", 1, []),
        (OUTCOME, "answer", 1, []),
        (FAILURE, "request", 1, ["errored"]),
        (FAILURE, "answer", 1, ["errored"]),
    ],
)
def test_a_connection_breaks_in_the_middle_of_a_statement(
    private_site, on_private_postgres, words, lost, attempts, events
):
    """It did not arrive, or was done and nobody said so: in both cases it counts once."""
    site, server = private_site, on_private_postgres
    way = Severing(server.port, words, lost)
    with way.open() as port:
        url = server.url.replace(f":{server.port}/", f":{port}/")
        task = tasks.refusing if words is FAILURE else tasks.quick
        job = task.using(max_attempts=1).enqueue()
        # It is there for the first claim, which may be the one that breaks.
        supervised = site.start("--queues", "default", options=LONG_LEASE, DATABASE_URL=url)
        row = site.wait_status(job.id, Status.FAILED if words is FAILURE else Status.COMPLETED)
        assert way.broken.is_set()
        wait_until(lambda: "reached the database again" in supervised.log, "it to be well again")
        canary = tasks.quick.enqueue()
        site.wait_status(canary.id, Status.COMPLETED)
        assert site.log_events(job.id) == events
        assert (row.attempt, row.attempt - row.given_back) == (attempts, 1)
        assert len(site.events("begin", job.id)) == 1
        assert len(supervised.workers) == 1
        supervised.kill_all()


@pytest.mark.postgres
def test_a_worker_that_hears_nothing_says_so_and_looks_more_often(
    private_site, on_private_postgres
):
    """As behind PgBouncer: notifications are accepted and come nowhere."""
    site, server = private_site, on_private_postgres
    server.execute(
        "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'"
    )
    # Functions of the system come first unless the path names them later.
    server.execute("ALTER DATABASE postgres SET search_path = public, pg_catalog")
    connection.close()
    supervised = site.start_ready(options={"tick": SELDOM})
    wait_until(lambda: "LISTEN does not work" in supervised.log, "the worker to say so")
    # The queue is new to it: that takes a tick.
    site.wait_status(tasks.quick.enqueue().id, Status.COMPLETED)
    assert min(pick_up(site) for _ in range(3)) < SELDOM / 4


@contextlib.contextmanager
def writing(seconds: float, pause: float) -> Iterator[Callable[[], int]]:
    """Another program that writes to the same database all the time, in transactions of `seconds`;
    yields how many there have been."""
    stop, done = threading.Event(), []

    def write() -> None:
        try:
            while not stop.wait(pause):
                with transaction.atomic():
                    Effect.objects.create(key="of a request")
                    stop.wait(seconds)
                done.append(True)
        finally:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda: len(done)
    finally:
        stop.set()
        thread.join()


@pytest.mark.sqlite
@pytest.mark.parametrize("patience", ["20", "0.2"])
def test_a_busy_sqlite_file_costs_time_and_nothing_else(site, patience):
    """Also where workers wait less for the other program than it writes, and get errors."""
    options = {"lease": 30.0, "heartbeat": 1.0}
    supervised = site.start_ready(
        *("--processes", "4", "--concurrency", "2"),
        options=options,
        JOBQUEUE_TEST_SQLITE_TIMEOUT=patience,
    )
    with writing(1.0, 0.2) as transactions:
        jobs = []
        while transactions() < 6:
            jobs += [tasks.quick.enqueue(), tasks.lasting.enqueue(0.3)]
            before = transactions()
            wait_until(lambda before=before: transactions() > before, "the other program to write")
    for job in jobs:
        assert_once(site, job.id)
    assert Job.objects.count() == len(jobs)
    assert not JobLog.objects.exists()
    assert len(supervised.workers) == 4
    assert ("database is locked" in supervised.log) == (patience == "0.2")
    assert "Traceback" not in supervised.log
