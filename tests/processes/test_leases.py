"""Leases: a healthy job keeps its own however long it runs, and a stopped worker does not."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from jobqueue.models import Job, JobLog, Status, Worker
from tests.app.models import Note
from tests.processes import tasks
from tests.processes.conftest import Site, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

LEASE = 2.0
SHORT_LEASE = {"lease": LEASE, "heartbeat": 0.3}
#: So long have owners, on a busy machine, to say that they are alive: one heartbeat.
OWNERS_FIRST = {"lease": 3.0, "heartbeat": 1.0}
#: No job is taken from a worker because this machine is slow.
LONG_LEASE = {"lease": 120.0, "heartbeat": 0.3}


def assert_undisturbed(site: Site, job_id: str) -> None:
    row = site.wait_status(job_id, Status.COMPLETED)
    lines = [line for line in JobLog.objects.filter(job=job_id) if line.event != "note"]
    assert [(line.created_at, str(line)) for line in lines] == []
    assert row.attempt == 1
    assert len(site.events("begin", job_id)) == len(site.events("end", job_id)) == 1


def test_healthy_jobs_of_any_length_run_once(site):
    """Three leases long; for two of them one job keeps all other threads of its process still."""
    with site.reconciling(options=SHORT_LEASE):
        site.start_ready("--processes", "2", "--concurrency", "4", options=SHORT_LEASE)
        site.start_ready(options=SHORT_LEASE)
        jobs = [
            *(tasks.lasting.using(timeout=None).enqueue(3 * LEASE) for _ in range(6)),
            tasks.waiting.using(timeout=None).enqueue(3 * LEASE),
            tasks.blocking.using(timeout=None).enqueue(3 * LEASE),
            tasks.holding_the_gil.using(timeout=None).enqueue(2 * LEASE),
        ]
        for job in jobs:
            site.wait_for("end", job.id)
        for job in jobs:
            assert_undisturbed(site, job.id)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process stopped by SIGSTOP, until the end of the block."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        wait_until(
            lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T",
            "the process to be stopped",
        )
        if _can_write():
            break
        os.kill(pid, signal.SIGCONT)
        wait_until(_can_write, "the process to end its transaction")
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _can_write() -> bool:
    """Whether anyone can: on SQLite a process that is stopped in the middle of a write prevents it."""
    if connection.vendor != "sqlite":
        return True
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 2000")
        with transaction.atomic():
            return True
    except OperationalError:
        return False
    finally:
        connection.close()


def test_a_stopped_worker_loses_its_jobs_and_what_it_says_later_changes_nothing(site):
    options = SHORT_LEASE | {"kill_after": 60.0}
    first = site.start_ready(options=options)
    (pid,) = first.workers
    deaf = tasks.until.using(timeout=None).enqueue("go")
    told = tasks.checking.using(timeout=None).enqueue("go")
    owner = Worker.objects.get().pk
    jobs = (deaf, told)
    names = {job.id: site.wait_for("begin", job.id) and _row(job.id).worker for job in jobs}
    with stopped(pid):
        expiry = _row(deaf.id).lease_expires_at
        second = site.start_ready(options=options)
        for job in jobs:
            again = site.wait_for("begin", job.id, 2)[-1]
            assert again["pid"] in second.workers
            (line,) = site.log_lines(job.id, JobLog.Event.LOST)
            assert line.worker == names[job.id]
            assert line.created_at >= expiry
        site.release("go")
        site.release("go2")
        before = {job.id: _values(site.wait_status(job.id, Status.COMPLETED)) for job in jobs}

    for job in jobs:
        wait_until(lambda job=job: "fenced" in site.log_events(job.id), "the late outcome")
        (line,) = site.log_lines(job.id, JobLog.Event.FENCED)
        assert (line.worker, line.attempt) == (names[job.id], 1)
        assert _values(_row(job.id)) == before[job.id]
    (event,) = site.events("told", told.id)
    assert event["why"] == "LeaseLost"
    # It is well again, and works.
    assert pid in first.workers
    wait_until(
        lambda: Worker.objects.filter(pk=owner, state=Worker.State.RUNNING).exists(),
        "the worker to say that it runs",
    )


def _row(job_id: str) -> Job:
    return Job.objects.get(pk=job_id)


def _values(row: Job) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_when_nobody_could_write_for_long_owners_come_first(site):
    """Every lease has run out when the lock is gone, and nobody's job is taken."""
    sites = [site.start_ready("--concurrency", "5", options=OWNERS_FIRST) for _ in range(2)]
    jobs = [tasks.until.using(timeout=None).enqueue("go") for _ in range(8)]
    for job in jobs:
        site.wait_for("begin", job.id)
    with site.reconciling(options=OWNERS_FIRST):
        # On SQLite any transaction is enough: it is an immediate one.
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("LOCK TABLE jobqueue_job, jobqueue_worker IN EXCLUSIVE MODE")
            expiry = max(Job.objects.values_list("lease_expires_at", flat=True))
            wait_until(lambda: timezone.now() > expiry + timedelta(seconds=1), "the leases' end")
        site.wait_status(tasks.quick.enqueue().id, Status.COMPLETED)
        wait_until(
            lambda: (
                min(
                    Job.objects.exclude(status=Status.COMPLETED).values_list(
                        "lease_expires_at", flat=True
                    )
                )
                > expiry + timedelta(seconds=LEASE)
            ),
            "all leases to be extended again",
        )
        site.release("go")
        for job in jobs:
            assert_undisturbed(site, job.id)
    assert [len(supervised.workers) for supervised in sites] == [1, 1]


@pytest.mark.postgres
def test_a_locked_row_costs_no_job_its_lease(site):
    """A view holds two rows for three leases, a task's open transaction points at another: neither
    of them, nor any other job of that worker, is lost, and none waits for them."""
    first = site.start_ready("--concurrency", "8", options=SHORT_LEASE)
    held, longer = tasks.talking.enqueue("held"), tasks.until.enqueue("others")
    noting = tasks.noting.enqueue("noting")
    talking = tasks.talking.enqueue("talking")
    others = [tasks.until.enqueue("others"), tasks.waiting.enqueue(3 * LEASE + 1)]
    jobs = [held, longer, noting, talking, *others]
    for job in jobs:
        site.wait_for("begin", job.id)
    site.start_ready(options=SHORT_LEASE)
    with site.reconciling(options=SHORT_LEASE):
        with transaction.atomic():
            assert len(Job.objects.select_for_update().filter(pk__in=[held.id, longer.id])) == 2
            locked_until = time.monotonic() + 3 * LEASE
            said = len(site.log_events(talking.id))
            wait_until(lambda: len(site.log_events(talking.id)) > said + 3, "others' lines")
            during = tasks.quick.enqueue()
            site.release("held")
            site.wait_for("end", held.id)
            wait_until(lambda: time.monotonic() > locked_until, "three leases", 4 * LEASE)
            expired = _row(longer.id).lease_expires_at
            assert expired < timezone.now()
            assert _row(held.id).status == Status.PROCESSING
            assert _row(held.id).lease_expires_at < timezone.now()
        # The first to get the row is its owner, who has waited for it.
        unlocked = timezone.now()
        wait_until(lambda: _row(longer.id).lease_expires_at != expired, "the owner's heartbeat")
        assert _row(longer.id).lease_expires_at > unlocked
        for name in ("noting", "talking", "others"):
            site.release(name)
        for job in jobs:
            assert_undisturbed(site, job.id)
        site.wait_status(during.id, Status.COMPLETED)
    assert Note.objects.filter(job=noting.id).count() == 1
    lines = site.log_lines(held.id, JobLog.Event.NOTE)
    assert len(lines) > 3
    assert _row(talking.id).progress == {"done": 1, "total": 2, "message": ""}
    assert len(first.workers) == 1
    Note.objects.all().delete()


def test_twenty_reconcilers_and_four_booting_workers_repair_each_job_once(site):
    past = timezone.now() - timedelta(minutes=1)
    now = timezone.now()
    gone = Worker.objects.create(
        host="gone", pid=1, slots=8, version="", started_at=past, heartbeat_at=past
    )
    jobs = [
        Job(
            task_path="tests.processes.tasks.quick",
            status=Status.PROCESSING,
            run_after=past,
            enqueued_at=past,
            started_at=past,
            attempted_at=past,
            attempt=1,
            max_attempts=5,
            lease_owner=gone.pk,
            lease_expires_at=past,
            worker="gone:1",
        )
        for _ in range(500)
    ]
    Job.objects.bulk_create(jobs)
    reconcilers = site.module("tests.processes.reconcilers", "20", str(site.folder / "start"))
    assert reconcilers.stdout.readline() == "READY\n"
    options = LONG_LEASE | {"heartbeat": 0.5}
    site.start("--processes", "4", options=options)
    # The workers take leases a heartbeat after they have booted: that is when the others begin.
    wait_until(lambda: Worker.objects.exclude(pk=gone.pk).count() == 4, "four workers")
    site.release("start")
    _said, complained = reconcilers.communicate(timeout=60)

    assert reconcilers.returncode == 0, complained
    assert complained == ""
    wait_until(
        lambda: not Job.objects.exclude(status=Status.COMPLETED).exists(),
        lambda: (
            f"all to complete; {Counter(Job.objects.values_list('status', flat=True))}; log:\n"
            + site.running[0].log
        ),
        60,
    )
    for event in site.events("begin"):
        assert event["attempt"] == 2
    assert len(site.events("begin")) == len({event["job"] for event in site.events("begin")}) == 500
    assert set(Job.objects.values_list("attempt", "given_back", "max_attempts")) == {(2, 0, 5)}
    lines = JobLog.objects.values_list("job", "event", "attempt", "worker")
    assert sorted(lines) == sorted((job.pk, "lost", 1, "gone:1") for job in jobs)
    assert now < JobLog.objects.earliest("created_at").created_at
    assert Worker.objects.get(pk=gone.pk).state == Worker.State.GONE


def test_rows_that_a_worker_owns_and_does_not_run_are_given_back(site):
    """Its claim was written and the answer was lost."""
    site.start_ready("--queues", "mine", options=LONG_LEASE)
    worker = Worker.objects.get()
    running = tasks.until.using(queue_name="mine").enqueue("go")
    site.wait_for("begin", running.id)
    strays = [tasks.quick.using(queue_name="other").enqueue() for _ in range(4)]
    cancelled, hopeless = strays.pop(), strays.pop(0)
    now = timezone.now()
    lease = {"lease_owner": worker.pk, "lease_expires_at": now + timedelta(minutes=2), "attempt": 1}
    for job in strays:
        Job.objects.filter(pk=job.id).update(status=Status.PROCESSING, **lease)
    # To queue this one would break a constraint, which is no reason to leave the others.
    Job.objects.filter(pk=hopeless.id).update(
        status=Status.PROCESSING, max_attempts=1, **lease | {"attempt": 3}
    )
    Job.objects.filter(pk=cancelled.id).update(status=Status.CANCELLED, finished_at=now, **lease)

    for job in strays:
        row = site.wait_status(job.id, Status.QUEUED)
        assert (row.attempt, row.given_back, row.lease_owner) == (1, 1, None)
        (line,) = site.log_lines(job.id, JobLog.Event.RELEASED)
        assert "did not know of it" in line.message
    wait_until(lambda: _row(cancelled.id).lease_owner is None, "the cancelled one to be let go")
    assert _row(cancelled.id).status == Status.CANCELLED
    site.release("go")
    assert_undisturbed(site, running.id)
