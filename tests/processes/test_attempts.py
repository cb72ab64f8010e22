"""Which jobs run, and how often: code that comes and goes, retries, queues, and what one leaves the next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobqueue import clock, lifecycle
from jobqueue.lifecycle import NewJob
from jobqueue.models import Job, JobLog, Queue, Status
from tests.processes import odd, tasks
from tests.processes.conftest import wait_until
from tests.processes.test_endings import see_canary

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def enqueue_path(path: str, *args: Any, **kwargs: Any) -> Any:
    """A job as other code than ours would have enqueued it."""
    new = NewJob(list(args), kwargs, path, "default", 0, 5, 60.0)
    lifecycle.enqueue([new])
    return new


# Code that comes and goes.


def test_a_task_that_is_not_there_yet(site):
    """It waits unspent, says what was not found, and runs when the code arrives."""
    code = site.folder / "code"
    code.mkdir()
    site.start_ready("--concurrency", "1", PYTHONPATH=f"{code}:{Path.cwd()}")
    job = enqueue_path("arrives_later.greet", "Ada")
    row = site.wait_status(job.id, Status.SCHEDULED)
    assert "no module arrives_later" in row.error
    assert (row.attempt - row.given_back, row.max_attempts - row.given_back) == (0, 5)
    canary = tasks.quick.enqueue()
    site.wait_status(canary.id, Status.COMPLETED)

    written = code / "arrives_later.new"
    written.write_text(
        "from jobqueue import task\n\n@task\ndef greet(name):\n    return f'hello {name}'\n"
    )
    written.rename(code / "arrives_later.py")
    # Its next look is seconds away by now.
    Job.objects.filter(pk=job.id, status=Status.SCHEDULED).update(run_after=row.enqueued_at)
    row = site.wait_status(job.id, Status.COMPLETED)
    assert row.return_value == "hello Ada"
    assert row.attempt == row.given_back + 1
    assert set(site.log_events(job.id)) == {"not_found"}


def test_paths_that_lead_to_no_task(site):
    """Each is told from the others, none runs, and a good job after each does."""
    code = site.folder / "code"
    odd.write_modules(code)
    worker = site.start_ready("--concurrency", "1", PYTHONPATH=f"{code}:{Path.cwd()}")
    pids = worker.workers
    words = {
        "tests.processes.tasks.renamed": "has no renamed",
        "os.system": "not a task",
        "builtins.eval": "not a task",
        "__main__.f": "script that was started",
        "odd_syntax.f": "SyntaxError",
        "odd_raises.f": "not today",
        "odd_exits.f": "odd_exits cannot be imported: SystemExit",
        "odd_evasive.f": "is not here",
        "nowhere": "not the path",
    }
    for path, said in words.items():
        job = enqueue_path(path, "touch /tmp/jobqueue-was-here")
        see_canary(site, worker, pids)
        row = site.wait_status(job.id, Status.SCHEDULED)
        assert said in row.error
        lines = site.log_lines(job.id, JobLog.Event.NOT_FOUND)
        assert said in lines[0].message
        assert row.attempt == row.given_back


def test_an_argument_that_was_removed(site):
    worker = site.start_ready()
    job = enqueue_path("tests.processes.tasks.quick", 1, colour="red")
    row = site.wait_status(job.id, Status.FAILED)
    assert "colour" in row.error
    assert row.attempt == 5
    see_canary(site, worker, worker.workers)


# Trying again.


def test_attempts_are_counted_once(site):
    """As many runs as were asked for, numbered from 1, one line each, one end, told once."""
    site.start_ready(JOBQUEUE_TEST_RECEIVERS="1")
    for attempts in (1, 3):
        job = odd.failing.using(max_attempts=attempts).enqueue()
        row = site.wait_status(job.id, Status.FAILED)
        numbers = list(range(1, attempts + 1))
        assert row.attempt == attempts
        assert [event["attempt"] for event in site.events("begin", job.id)] == numbers
        lines = site.log_lines(job.id, JobLog.Event.ERRORED)
        assert [line.attempt for line in lines] == numbers
        assert [line.level for line in lines] == ["warning"] * (attempts - 1) + ["error"]
        assert [line.message for line in lines] == [f"ValueError: attempt {n}" for n in numbers]
        (finished,) = site.wait_for("task_finished", job.id)
        assert finished["status"] == "FAILED"
        assert finished["exc_info"] == f"ValueError: attempt {attempts}"
        assert len(site.events("task_started", job.id)) == attempts
    canary = tasks.quick.enqueue()
    (finished,) = site.wait_for("task_finished", canary.id)
    assert (finished["status"], finished["exc_info"]) == ("SUCCESSFUL", None)
    assert [len(site.events("task_finished", job.id)) for job in (job, canary)] == [1, 1]


def test_receivers_that_fail_change_nothing(site):
    """Whatever they raise is logged; the start is told in the slot, the end beside it."""
    worker = site.start_ready("--concurrency", "2", JOBQUEUE_TEST_RECEIVERS="failing")
    pids = worker.workers
    jobs = [tasks.quick.enqueue(), tasks.waiting.enqueue(0), odd.failing.enqueue()]
    statuses = [Status.COMPLETED, Status.COMPLETED, Status.FAILED]
    for job, status in zip(jobs, statuses, strict=True):
        row = site.wait_status(job.id, status)
        assert len(site.events("task_started", job.id)) == row.attempt
        assert len(site.wait_for("task_finished", job.id)) == 1
    assert Job.objects.get(pk=jobs[0].id).attempt == 1
    for job in jobs[:1]:
        (begin,), (started,) = site.events("begin", job.id), site.events("task_started", job.id)
        assert started["thread"] == begin["thread"]
        (finished,) = site.events("task_finished", job.id)
        assert finished["thread"] != begin["thread"]
    assert worker.workers == pids
    assert "a receiver's mistake" in worker.log


def test_what_errors_mean(site):
    site.start_ready()
    attempts = {"Flaky": 3, "VeryFlaky": 3, "Hopeless": 1, "QuiteHopeless": 1, "ValueError": 1}
    jobs = {name: odd.choosy.enqueue(name) for name in attempts}
    for name, job in jobs.items():
        row = site.wait_status(job.id, Status.FAILED)
        assert row.attempt == attempts[name] == len(site.events("begin", job.id))


def test_snoozes_spend_nothing(site):
    """Twenty of them, then an error: it waits as after a first error, and then succeeds."""
    options = {"backoff_base": 0.4, "backoff_max": 3600.0}
    site.start_ready(options=options)
    job = odd.snoozing.using(max_attempts=2).enqueue(20)
    row = site.wait_status(job.id, Status.COMPLETED, timeout=60)
    assert (row.attempt, row.given_back, row.return_value) == (22, 20, 22)
    assert len(site.events("begin", job.id)) == 22
    assert site.log_events(job.id) == ["snoozed"] * 20 + ["errored"]
    (line,) = site.log_lines(job.id, JobLog.Event.ERRORED)
    assert 0.36 <= line.data["delay"] <= 0.44


def test_a_job_that_has_failed_a_thousand_times(site):
    """Neither the sum nor the date runs over; its batch is written."""
    site.start_ready(options={"backoff_base": 2.0, "backoff_max": 3600.0})
    jobs = [odd.failing.using(max_attempts=32_000).enqueue() for _ in range(3)]
    canary = tasks.quick.enqueue()
    for job, attempt in zip(jobs, (20, 60, 1_100), strict=True):
        site.wait_status(job.id, Status.SCHEDULED)
        Job.objects.filter(pk=job.id).update(attempt=attempt)
        assert lifecycle.run_now(job.id)
    for job, attempt in zip(jobs, (20, 60, 1_100), strict=True):
        row: Job = wait_until(
            lambda job=job, attempt=attempt: Job.objects.filter(
                pk=job.id, status=Status.SCHEDULED, attempt=attempt + 1
            ).first(),
            f"attempt {attempt + 1}",
        )
        assert timedelta(0) < row.run_after - row.attempted_at <= timedelta(seconds=3_610)
    site.wait_status(canary.id, Status.COMPLETED)


# Queues.


def test_a_paused_queue_waits(site):
    site.start_ready("--concurrency", "2")
    paused = {"paused_at": clock.now("default"), "paused_by": "Ada"}
    Queue.objects.update_or_create(name="mail", defaults=paused)
    job = tasks.quick.using(queue_name="mail").enqueue()
    for _ in range(3):
        canary = tasks.quick.enqueue()
        site.wait_status(canary.id, Status.COMPLETED)
    assert Job.objects.get(pk=job.id).status == Status.QUEUED
    Queue.objects.filter(name="mail").update(paused_at=None)
    site.wait_status(job.id, Status.COMPLETED)
    now = clock.now("default")
    until = {"paused_at": now, "paused_until": now + timedelta(seconds=1)}
    Queue.objects.filter(name="mail").update(**until)
    again = tasks.quick.using(queue_name="mail").enqueue()
    row = site.wait_status(again.id, Status.COMPLETED)
    assert row.attempted_at >= until["paused_until"]


ODD_QUEUES = [
    "q" * 43,
    "q" * 63,
    "q" * 64,
    "q" * 63 + "a",
    "q" * 63 + "b",
    "q" * 100,
    "🐟" * 100,
    "e-mail queue",
    "UPPER",
    "upper",
    "a\"b'c",
    "50%",
    "%s",
    "a:b",
    "a,b",
    "*",
    "-dash",
    " blanks ",
    "line\nbreak",
    "{}",
    "\\",
]


def test_queues_with_odd_names(site):
    """Each works from enqueue to finish, with the usual latency."""
    site.start_ready()
    for name in ODD_QUEUES:
        job = tasks.quick.using(queue_name=name).enqueue(name)
        row = site.wait_status(job.id, Status.COMPLETED, timeout=10)
        assert (row.queue_name, row.return_value) == (name, name)
    # Each can be paused, however soon its jobs were gone.
    wait_until(
        lambda: set(Queue.objects.values_list("name", flat=True)) >= set(ODD_QUEUES),
        "a row for each queue",
    )


def test_odd_names_on_the_command_line(site):
    names = [name for name in ODD_QUEUES if "," not in name and name == name.strip()]
    site.start_ready(f"--queues={','.join(names)}")
    other = tasks.quick.using(queue_name="another").enqueue()
    jobs = [tasks.quick.using(queue_name=name).enqueue() for name in names]
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
    assert Job.objects.get(pk=other.id).status == Status.QUEUED
    wait_until(
        lambda: set(Queue.objects.values_list("name", flat=True)) >= set(names), "a row for each"
    )


# What a job leaves in its thread.


def test_language_and_time_zone_do_not_leak(site):
    site.start_ready("--concurrency", "1")
    before = odd.using_the_database.enqueue()
    leaving = odd.leaving.enqueue("another_language")
    after = odd.using_the_database.enqueue()
    for job in (before, leaving, after):
        site.wait_status(job.id, Status.COMPLETED)
    (first,), (second,) = site.events("end", before.id), site.events("end", after.id)
    assert first["thread"] == second["thread"]
    assert (first["language"], first["zone"]) == (second["language"], second["zone"])
    assert second["language"] != "de"
