"""Processes that die: what they held is put right, once, and as soon as anyone can know."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue.models import Job, JobLog, Status, Worker
from tests.factories import JobFactory
from tests.processes import tasks
from tests.processes.conftest import OPTIONS, Site, is_alive, wait_gone, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

#: A lease that no test waits for: what comes back sooner did not wait for it.
LONG_LEASE = {"lease": 120.0, "heartbeat": 0.5}
#: Seconds within which what is repaired at once is repaired, on a busy machine.
AT_ONCE = 15.0


def assert_counted(site: Site, job: Any) -> Job:
    """Each attempt ran once or was lost before it began, and each but the last one was lost."""
    row = Job.objects.get(pk=str(job.id))
    assert row.attempt == 1 + site.log_events(job.id).count("lost")
    begun = [event["attempt"] for event in site.events("begin", job.id)]
    assert len(set(begun)) == len(begun) <= row.attempt
    return row


def test_all_processes_die_and_others_take_over(site):
    """Within lease + tick + backoff; not before the lease has ended; and the log names the dead."""
    options = {"lease": 2.0}
    first = site.start_ready("--processes", "2", "--concurrency", "2", options=options)
    jobs = [tasks.until.using(timeout=None).enqueue("go") for _ in range(4)]
    for job in jobs:
        site.wait_for("begin", job.id)
    names = dict(Job.objects.values_list("pk", "worker"))
    assert len(set(names.values())) == 2
    first.kill_all()
    killed_at = time.monotonic()

    site.start("--concurrency", "4", options=options)
    again = [site.wait_for("begin", job.id, 2)[-1] for job in jobs]
    site.release("go")

    bound = options["lease"] + OPTIONS["tick"] + OPTIONS["backoff_max"]
    for job, begin in zip(jobs, again, strict=True):
        waited = begin["at"] - killed_at
        assert options["lease"] - OPTIONS["heartbeat"] - 0.5 < waited < bound + 5
        row = site.wait_status(job.id, Status.COMPLETED)
        assert row.attempt == len(site.events("begin", job.id)) == 2
        (line,) = site.log_lines(job.id, JobLog.Event.LOST)
        assert line.worker == names[row.pk]
        assert line.attempt == 1
        assert "lease expired" in line.message
    # Their rows tell that they are gone, or have been removed.
    old = {name.rpartition(":")[2] for name in names.values()}
    wait_until(
        lambda: (
            not [
                row
                for row in Worker.objects.exclude(state=Worker.State.GONE)
                if row.pk.hex[:8] in old
            ]
        ),
        "the rows of the dead workers to say so",
    )


def test_a_worker_that_dies_is_replaced_and_its_jobs_are_back_at_once(site):
    supervised = site.start_ready("--processes", "2", "--concurrency", "2", options=LONG_LEASE)
    jobs = [tasks.until.enqueue("go") for _ in range(4)]
    pids = {job.id: site.wait_for("begin", job.id)[0]["pid"] for job in jobs}
    victim, other = sorted(set(pids.values()))
    os.kill(victim, signal.SIGKILL)
    killed_at = time.monotonic()

    hit = [job for job in jobs if pids[job.id] == victim]
    for job in hit:
        again = site.wait_for("begin", job.id, 2)[-1]
        assert again["at"] - killed_at < AT_ONCE
        assert again["pid"] != victim
    assert victim not in supervised.workers
    assert other in supervised.workers
    assert len(supervised.workers) == 2
    site.release("go")

    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
        row = assert_counted(site, job)
        assert row.attempt == (2 if job in hit else 1)
    for job in hit:
        (line,) = site.log_lines(job.id, JobLog.Event.LOST)
        assert "killed by SIGKILL" in line.message
        assert str(victim) in line.worker


def test_the_supervisor_dies_and_its_workers_hand_over(site):
    """They claim nothing more, let what can finish finish, give back the rest, and go."""
    supervised = site.start_ready(
        "--processes", "2", "--concurrency", "2", "--grace", "3", options=LONG_LEASE
    )
    workers = supervised.workers
    short, long = tasks.until.enqueue("short"), [tasks.until.enqueue("long") for _ in range(3)]
    for job in (short, *long):
        site.wait_for("begin", job.id)
    supervised.process.kill()
    supervised.wait()
    wait_until(lambda: supervised.log.count("has lost its supervisor") == 2, "both to notice")
    late = tasks.quick.enqueue()
    site.release("short")

    site.wait_status(short.id, Status.COMPLETED)
    wait_gone(*workers, timeout=3 + AT_ONCE)
    assert not site.events("begin", late.id)
    for job in long:
        row = Job.objects.get(pk=job.id)
        assert (row.status, row.attempt, row.given_back) == (Status.QUEUED, 1, 1)
        assert site.log_events(job.id) == ["released"]
    assert not Worker.objects.exists()

    site.release("long")
    site.start()
    for job in (short, late, *long):
        row = site.wait_status(job.id, Status.COMPLETED)
        assert len(site.events("begin", job.id)) == row.attempt == (2 if job in long else 1)
        assert len(site.events("end", job.id)) == 1


@pytest.mark.parametrize("host", ["the same", "elsewhere.example"])
def test_host_and_pid_mean_nothing(site, host):
    """After a restart a container's worker may have the name and pid that the dead one had; or
    another name. Neither gives it the dead one's jobs, nor keeps them from it."""
    options = {"lease": 2.0}
    first = site.start_ready(options=options)
    job = tasks.until.enqueue("go")
    site.wait_for("begin", job.id)
    first.kill_all()
    killed_at = time.monotonic()

    second = site.start("--concurrency", "1", options=options)
    (pid,) = wait_until(lambda: second.workers, "the new worker")
    dead = Worker.objects.exclude(pid=pid)
    if host == "the same":
        dead.update(pid=pid)
    else:
        dead.update(host=host)
    again = site.wait_for("begin", job.id, 2)[-1]
    site.release("go")

    assert again["at"] - killed_at > options["lease"] - OPTIONS["heartbeat"] - 0.5
    row = site.wait_status(job.id, Status.COMPLETED)
    assert row.attempt == 2
    assert site.log_events(job.id) == ["lost"]
    assert Worker.objects.filter(state=Worker.State.RUNNING).count() == 1


class TableLock:
    """Keeps everyone from changing jobs, as a migration does; what was enqueued under it is
    committed when it is let go."""

    def __enter__(self) -> TableLock:
        self._atomic = transaction.atomic()
        self._atomic.__enter__()
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE jobqueue_job IN SHARE MODE")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._atomic.__exit__(*exception)


def wait_for_blocked(words: str) -> None:
    """Wait until a statement with these words waits for a lock."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock' AND query LIKE %s"
    )

    def blocked() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(statement, [f"%{words}%"])
            return int(cursor.fetchone()[0])

    wait_until(blocked, f"a statement with {words!r} to wait for a lock")


@pytest.mark.postgres
def test_a_worker_dies_while_its_claim_is_under_way(site):
    """The dead one's claim is committed after its jobs have been repaired for the first time."""
    supervised = site.start_ready("--concurrency", "3", options=LONG_LEASE)
    (victim,) = supervised.workers
    owner = Worker.objects.get().pk
    site.wait_status(tasks.quick.enqueue().id, Status.COMPLETED)  # so that it knows the queue
    with TableLock():
        jobs = [tasks.quick.enqueue() for _ in range(3)]
        wait_for_blocked("%SET%processing%")
        supervised.send(signal.SIGUSR1)  # so that the next worker does not claim
        wait_until(lambda: "Quiet" in supervised.log, "the supervisor to be quiet")
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: Worker.objects.get(pk=owner).state == Worker.State.GONE, "the first repair"
        )
        released_at = time.monotonic()
    for job in jobs:
        wait_until(lambda job=job: "lost" in site.log_events(job.id), "the second repair", AT_ONCE)
    site.start()

    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
        row = assert_counted(site, job)
        assert (row.attempt, len(site.events("begin", job.id))) == (2, 1)
    assert time.monotonic() - released_at < LONG_LEASE["lease"] / 4


@pytest.mark.postgres
def test_a_worker_dies_while_its_outcomes_are_being_written(site):
    supervised = site.start_ready("--concurrency", "3", options=LONG_LEASE)
    (victim,) = supervised.workers
    jobs = [tasks.until.enqueue("go") for _ in range(3)]
    for job in jobs:
        site.wait_for("begin", job.id)
    with TableLock():
        site.release("go")
        wait_for_blocked("%SET%completed%")
        os.kill(victim, signal.SIGKILL)
        wait_gone(victim)
        released_at = time.monotonic()

    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED, timeout=LONG_LEASE["lease"] / 4)
        row = assert_counted(site, job)
        # Whichever came first, the dead one's statement or the repair: it is counted right.
        assert len(site.events("begin", job.id)) == row.attempt
    assert time.monotonic() - released_at < LONG_LEASE["lease"] / 4


def test_a_deadly_job_runs_out_of_attempts_and_the_others_complete(site):
    supervised = site.start_ready("--concurrency", "4", options=LONG_LEASE)
    first = supervised.workers
    sharers = [tasks.until.using(max_attempts=9).enqueue("go") for _ in range(3)]
    for job in sharers:
        site.wait_for("begin", job.id)
    deadly = tasks.deadly.using(max_attempts=3).enqueue()
    behind = [tasks.quick.using(max_attempts=9).enqueue() for _ in range(5)]

    row = site.wait_status(deadly.id, Status.FAILED)
    site.release("go")

    begins = site.events("begin", deadly.id)
    assert [begin["attempt"] for begin in begins] == [1, 2, 3]
    assert len({begin["pid"] for begin in begins} - {*supervised.workers}) == 3
    assert begins[0]["pid"] in first
    assert row.attempt == 3
    assert "killed by SIGKILL" in row.error
    assert site.log_events(deadly.id) == ["lost"] * 3
    # Its receivers are told, once, in a worker: the supervisor runs nobody else's code.
    (told,) = site.wait_for("finished", deadly.id)
    assert told["pid"] in supervised.workers
    for job in sharers + behind:
        site.wait_status(job.id, Status.COMPLETED)
        assert assert_counted(site, job).attempt <= 4
        assert len(site.events("end", job.id)) == 1


def test_workers_are_killed_at_random(site):
    """What was enqueued is there at the end, completed; and no job ever ran beside itself."""
    chance = random.Random(seed := random.SystemRandom().randrange(10**6))
    options = {"lease": 2.0, "backoff_base": 0.01, "backoff_max": 0.05}
    supervised = site.start_ready("--processes", "3", "--concurrency", "2", options=options)
    killed: dict[int, float] = {}
    jobs = []
    until = time.monotonic() + 40
    while len(killed) < 8 and time.monotonic() < until:
        task = tasks.quick.using(max_attempts=100)
        jobs += [task.enqueue() for _ in range(5)]
        jobs += [tasks.lasting.using(max_attempts=100).enqueue(0.05 * chance.random())]
        if workers := [pid for pid in supervised.workers if pid not in killed]:
            victim = chance.choice(workers)
            os.kill(victim, signal.SIGKILL)
            wait_gone(victim)
            killed[victim] = time.monotonic()
        ended = len(site.events("end"))
        wait_until(
            lambda ended=ended: (
                len(site.events("end")) > ended + chance.randrange(6) or time.monotonic() > until
            ),
            "something to end",
        )

    wait_until(
        lambda: not Job.objects.exclude(status=Status.COMPLETED).exists(), f"all to end ({seed=})"
    )
    assert len(killed) == 8
    assert Job.objects.count() == len(jobs)
    for job in jobs:
        assert_counted(site, job)
        begins = site.events("begin", job.id)
        assert site.events("end", job.id)
        for earlier, later in itertools.pairwise(begins):
            assert later["at"] > killed[earlier["pid"]] - 0.5, seed
            assert not is_alive(earlier["pid"])


def test_jobs_of_the_dead_take_no_slot(site):
    """Slots are counted from what a process runs, not from what the table says is running."""
    stranded = JobFactory.create_batch(2, processing=True)
    site.start_ready("--concurrency", "2")
    jobs = [tasks.until.enqueue("go") for _ in range(2)]
    for job in jobs:
        site.wait_for("begin", job.id)
    site.release("go")
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
    still = Job.objects.filter(pk__in=[job.pk for job in stranded])
    assert set(still.values_list("status", flat=True)) == {Status.PROCESSING}
