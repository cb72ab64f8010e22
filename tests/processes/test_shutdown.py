"""How workers are told to go, and when they go by themselves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from jobqueue import clock
from jobqueue.models import Job, JobLog, Status, Worker
from tests.processes import odd, tasks
from tests.processes.conftest import is_alive, wait_gone, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


# Signals.


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT to the group", "SIGHUP"])
def test_a_stop_with_grace(site, way):
    """What ends within the grace time is completed, the rest is given back unspent, and not
    started elsewhere before its process is dead."""
    first = site.start_ready("--concurrency", "4", "--grace", "2")
    (pid,) = first.workers
    short = tasks.blocking.using(queue_name="late").enqueue(0.5)
    on_loop = tasks.waiting.enqueue(0.5)
    beating = odd.beating.using(max_attempts=1).enqueue()
    long = tasks.blocking.using(max_attempts=1).enqueue(60)
    for job in (short, on_loop, beating, long):
        site.wait_for("begin", job.id)
    # Idle, and eager to take over.
    site.start_ready("--concurrency", "4", "--queues", "default")
    sent_at = time.monotonic()
    if way == "SIGINT to the group":
        os.killpg(first.pid, signal.SIGINT)
    else:
        first.send(signal.Signals[way])
    stopping = Worker.objects.filter(pid=pid, state=Worker.State.STOPPING)
    wait_until(stopping.exists, "the worker to know")
    late = tasks.quick.using(queue_name="late").enqueue()  # nobody else takes that

    assert first.wait() == 0
    # Four seconds, and what a busy machine adds.
    assert time.monotonic() - sent_at < 4.0 + 3.0
    for job in (short, on_loop):
        row = site.wait_status(job.id, Status.COMPLETED)
        assert (row.attempt, row.given_back) == (1, 0)
        assert site.events("end", job.id)[0]["pid"] == pid
    for job in (beating, long):
        again = site.wait_for("begin", job.id, 2)[-1]
        row = Job.objects.get(pk=job.id)
        assert (row.attempt, row.given_back, row.max_attempts) == (2, 1, 2)
        assert site.log_events(job.id) == ["released"]
        assert again["pid"] != pid
        assert again["at"] > sent_at + 2.0
    beats = [beat["at"] for beat in site.events("beat", beating.id) if beat["pid"] == pid]
    assert beats[-1] < site.events("begin", beating.id)[-1]["at"], "it still ran"
    assert beats[-1] > sent_at + 1.0, "it had the grace time"
    assert not is_alive(pid)
    row = Job.objects.get(pk=late.id)
    assert (row.status, row.attempt) == (Status.QUEUED, 0), "claimed after the signal"


@pytest.mark.parametrize("numbers", [["SIGTERM", "SIGTERM"], ["SIGINT", "SIGTERM"], ["SIGQUIT"]])
def test_a_stop_without_grace(site, numbers):
    """A second signal, and SIGQUIT at once, hand back now."""
    worker = site.start_ready("--concurrency", "3", "--grace", "60")
    soft, on_loop = tasks.lasting.enqueue(60), tasks.waiting.enqueue(60)
    hard = tasks.blocking.enqueue(60)
    for job in (soft, on_loop, hard):
        site.wait_for("begin", job.id)
    for number in numbers:
        worker.send(signal.Signals[number])
        # Two at the same moment are one to the system.
        wait_until(lambda number=number: f"{number}:" in worker.log, f"{number} to be noticed")
    assert worker.wait(20) == 0
    for job in (soft, on_loop, hard):
        row = Job.objects.get(pk=job.id)
        assert row.status == Status.QUEUED
        assert (row.attempt, row.given_back) == (1, 1)
        assert site.log_events(job.id) == ["released"]
    assert not Worker.objects.exclude(state=Worker.State.GONE).exists()


def test_what_ends_in_the_grace_time_is_not_run_again(site):
    worker = site.start_ready("--grace", "30")
    jobs = [tasks.lasting.enqueue(1.0), tasks.waiting.enqueue(1.0), tasks.blocking.enqueue(1.0)]
    for job in jobs:
        site.wait_for("begin", job.id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    for job in jobs:
        row = Job.objects.get(pk=job.id)
        assert (row.status, row.attempt) == (Status.COMPLETED, 1)
    assert not Worker.objects.exists(), "a worker that leaves takes its row along"


def test_an_idle_worker_leaves_at_once(site):
    worker = site.start_ready("--processes", "2", "--grace", "60")
    pids = worker.workers
    worker.send(signal.SIGTERM)
    assert worker.wait(15) == 0
    wait_gone(*pids)
    assert not Worker.objects.exists()


def test_who_asks_until_it_is_gone_changes_nothing(site):
    """The last signals meet an interpreter that takes itself down, and has given its handlers back."""
    worker = site.start_ready()
    code = None
    while code is None:
        worker.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = worker.wait(0.001)
    assert code == 0


def test_quiet(site):
    """SIGUSR1: nothing more is claimed, what runs goes on; the row says so."""
    worker = site.start_ready("--concurrency", "2")
    (pid,) = worker.workers
    job = tasks.until.enqueue("go")
    site.wait_for("begin", job.id)
    worker.send(signal.SIGUSR1)
    wait_until(lambda: Worker.objects.filter(state=Worker.State.QUIET).exists(), "it to be quiet")
    waiting = tasks.quick.enqueue()
    other = site.start_ready()
    row = site.wait_status(waiting.id, Status.COMPLETED)
    assert f":{pid}:" not in row.worker
    other.kill_all()
    more = tasks.quick.enqueue()
    site.release("go")
    assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
    assert Job.objects.get(pk=more.id).status == Status.QUEUED
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_signals_to_a_worker_alone_do_nothing(site):
    worker = site.start_ready("--concurrency", "2")
    (pid,) = worker.workers
    job = tasks.until.enqueue("go")
    site.wait_for("begin", job.id)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        os.kill(pid, number)
    canary = tasks.quick.enqueue()
    site.wait_status(canary.id, Status.COMPLETED)
    site.release("go")
    assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
    assert worker.workers == [pid]


def test_programs_that_tasks_start_can_be_stopped(site):
    """They have the default handlers: nothing is blocked, ignored or caught for them."""
    site.start_ready()
    job = odd.signals_of_a_program.enqueue()
    shown = site.wait_status(job.id, Status.COMPLETED).return_value
    masks = {name: int(mask, 16) for name, mask in re.findall(r"(\w+):\s*(\w+)", shown)}
    ours = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]
    for number in (*ours, signal.SIGCHLD):
        bit = 1 << (number - 1)
        assert not any(masks[name] & bit for name in ("SigBlk", "SigIgn", "SigCgt")), number


def test_unstarted_jobs_are_there_at_once(site):
    """One slot, many jobs, a stop at any moment: all run once, and no attempt is spent on a stop."""
    jobs = [tasks.lasting.enqueue(0.05) for _ in range(40)]
    for round_ in range(2):
        worker = site.start_ready("--concurrency", "1", "--grace", "5")
        wait_until(
            lambda round_=round_: (
                Job.objects.filter(status=Status.COMPLETED).count() >= 3 + 8 * round_
            ),
            "some to be done",
        )
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert not Job.objects.filter(status=Status.PROCESSING).exists()
    assert Job.objects.filter(status=Status.QUEUED).exists(), "the stops came too late"
    site.start("--concurrency", "4")
    for job in jobs:
        row = site.wait_status(job.id, Status.COMPLETED)
        assert row.attempt - row.given_back == 1
        assert len(site.events("end", job.id)) == 1


# Leaving by itself.


def test_burst(site):
    """It ends when nothing can be claimed; what is due later is not waited for."""
    later = tasks.quick.using(run_after=clock.now("default") + timedelta(hours=1)).enqueue()
    jobs = [tasks.quick.using(queue_name=f"q{n % 3}").enqueue() for n in range(30)]
    jobs += [tasks.waiting.enqueue(0.3), tasks.lasting.enqueue(0.5)]
    failing = odd.failing.using(max_attempts=1).enqueue()
    worker = site.start("--burst", "--processes", "2", "--concurrency", "3")
    assert worker.wait(60) == 0
    for job in jobs:
        assert Job.objects.get(pk=job.id).status == Status.COMPLETED
    assert Job.objects.get(pk=failing.id).status == Status.FAILED
    assert Job.objects.get(pk=later.id).status == Status.SCHEDULED
    assert not Worker.objects.exists()
    assert site.start("--burst").wait() == 0, "there is nothing to do"


def test_burst_with_a_limit_of_jobs(site):
    """A replaced worker is no end of the burst."""
    jobs = [tasks.quick.enqueue() for _ in range(10)]
    worker = site.start("--burst", "--max-jobs", "3", "--concurrency", "2")
    assert worker.wait(60) == 0
    pids = {site.events("begin", job.id)[0]["pid"] for job in jobs}
    assert len(pids) >= 4
    assert Job.objects.filter(status=Status.COMPLETED).count() == 10


def test_a_new_process_for_every_job(site):
    """A limit of one, half of them fail: each job in a process of its own with a connection that
    works."""
    site.start("--max-jobs", "1", "--concurrency", "4", "--processes", "2")
    good = [odd.using_the_database.enqueue() for _ in range(12)]
    bad = [odd.raising.enqueue("plain") for _ in range(12)]
    for job in good:
        assert site.wait_status(job.id, Status.COMPLETED, timeout=100).attempt == 1
    for job in bad:
        assert site.wait_status(job.id, Status.FAILED, timeout=100).attempt == 1
    pids = [site.events("begin", job.id)[0]["pid"] for job in good + bad]
    assert len(set(pids)) == len(pids)
    assert not JobLog.objects.filter(event="lost").exists()


def test_too_much_memory(site):
    """Beyond --max-rss a worker drains and is replaced; what runs ends in peace."""
    worker = site.start_ready("--max-rss", "300", "--concurrency", "2")
    pids = worker.workers
    running = tasks.until.enqueue("go")
    site.wait_for("begin", running.id)
    hoarding = odd.hoarding.enqueue(400)
    site.wait_status(hoarding.id, Status.COMPLETED)
    wait_until(lambda: "--max-rss" in worker.log, "it to be noticed")
    assert worker.workers == pids
    site.release("go")
    assert site.wait_status(running.id, Status.COMPLETED).attempt == 1
    wait_until(lambda: worker.workers and worker.workers != pids, "a fresh process")
    canary = tasks.quick.enqueue()
    site.wait_status(canary.id, Status.COMPLETED)


# What the options do.


def test_queues_take_turns(site):
    """A full queue does not keep the others waiting; queues that were not named are left alone."""
    many = [tasks.quick.using(queue_name="a").enqueue() for _ in range(40)]
    few = [tasks.quick.using(queue_name="b").enqueue() for _ in range(4)]
    other = tasks.quick.using(queue_name="c").enqueue()
    site.start("--queues", "a,b", "--concurrency", "1")
    for job in many + few:
        site.wait_status(job.id, Status.COMPLETED)
    order = [event["job"] for event in site.events("begin")]
    last = max(order.index(str(job.id)) for job in few)
    assert last <= 10
    assert Job.objects.get(pk=other.id).status == Status.QUEUED


def test_one_slot_runs_one_job_at_a_time(site):
    site.start_ready("--concurrency", "1")
    jobs = [task.enqueue(0.05) for task in (tasks.lasting, tasks.waiting) * 4]
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
    events = [event["event"] for event in site.events()]
    assert events == ["begin", "end"] * len(jobs)


def test_processes_and_slots(site):
    """Two processes of three slots: six jobs at a time, three in each."""
    worker = site.start_ready("--processes", "2", "--concurrency", "3")
    assert len(worker.workers) == 2
    jobs = [tasks.until.enqueue("go") for _ in range(8)]
    wait_until(lambda: len(site.events("begin")) == 6, "six to run")
    assert Job.objects.filter(status=Status.PROCESSING).count() == 6
    pids = [event["pid"] for event in site.events("begin")]
    assert sorted(pids.count(pid) for pid in set(pids)) == [3, 3]
    assert set(Worker.objects.values_list("slots", flat=True)) == {3}
    site.release("go")
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)


# What it says.


def test_its_own_log_when_nobody_handles_it(site):
    worker = site.start_ready()
    job = odd.raising.enqueue("plain")
    site.wait_status(job.id, Status.FAILED)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    lines = [line for line in worker.log.splitlines() if str(job.id) in line and " ERROR " in line]
    (line,) = [each for each in lines if "failed in attempt" in each]
    assert "tests.processes.odd.raising" in line
    assert "attempt 1" in line
    assert "INFO Supervisor" in worker.log


def test_the_log_that_the_site_has_configured(site):
    """What handles the logger, or its parents, is left alone, and nothing is printed twice."""
    worker = site.start_ready(JOBQUEUE_TEST_LOG=str(site.folder / "site.log"))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Supervisor" not in worker.log
    assert (site.folder / "site.log").read_text().count("has stopped") == 1


def test_missing_migrations(site, tmp_path):
    """A plain word instead of SQL errors in a loop."""
    database = tmp_path / "empty.sqlite3"
    sqlite3.connect(database).close()
    worker = site.start(DATABASE_URL=f"sqlite:///{database}")
    assert worker.wait() == 1
    assert "manage.py migrate" in worker.log
    assert "Traceback" not in worker.log


def test_sqlite_in_memory(site):
    worker = site.start(DATABASE_URL="sqlite://:memory:")
    assert worker.wait() == 1
    assert "SQLite in memory" in worker.log
    assert "run_jobs" in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    "arguments",
    [
        ("--concurrency", "0"),
        ("--processes", "-1"),
        ("--max-jobs", "x"),
        ("--grace", "-1"),
        ("--grace", "nan"),
        ("--queues", ""),
        ("--queues", "a,,b"),
        ("--queues", "q" * 101),
    ],
)
def test_arguments_that_make_no_sense(site, arguments):
    with pytest.raises(CommandError):
        call_command("runworker", *(f"{arguments[0]}={arguments[1]}",))
