"""However a task ends, its job's end is recorded, readable, and once; and the worker goes on."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from jobqueue import clock, lifecycle
from jobqueue.ids import uuid7
from jobqueue.lifecycle import NewJob
from jobqueue.models import Job, JobLog, Queue, Status
from tests.app.models import Effect
from tests.processes import odd, tasks
from tests.processes.conftest import Site, Supervised, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


def enqueue_canaries() -> list[Any]:
    """Jobs that run if the worker goes on, sync and async."""
    return [tasks.quick.enqueue(), tasks.waiting.enqueue(0)]


def see_alive(site: Site, worker: Supervised, pids: list[int], canaries: list[Any]) -> None:
    """The worker goes on: it has run these, and is the same process."""
    for canary in canaries:
        site.wait_status(canary.id, Status.COMPLETED)
    assert worker.workers == pids


def see_canary(site: Site, worker: Supervised, pids: list[int] | None = None) -> None:
    """The worker goes on: it runs another job, sync and async, and (with `pids`) is the same."""
    for canary in enqueue_canaries():
        site.wait_status(canary.id, Status.COMPLETED)
    if pids is not None:
        assert worker.workers == pids


def enqueue_path(path: str, *args: Any, **kwargs: Any) -> Any:
    """A job as other code than ours would have enqueued it."""
    new = NewJob(path, list(args), kwargs, "default", 0, 5, 60.0)
    lifecycle.enqueue([new])
    return new


# What tasks return and raise.


def test_return_values_that_cannot_be_stored(site):
    worker = site.start_ready("--concurrency", "2")
    pids = worker.workers
    jobs = [(odd.returning.enqueue(kind), enqueue_canaries()) for kind in odd.RETURNS]
    for job, canaries in jobs:
        row = site.wait_status(job.id, Status.FAILED)
        assert "what it returned cannot be stored" in row.error
        assert (row.attempt, row.return_value) == (1, None)
        (line,) = site.log_lines(job.id, JobLog.Event.ERRORED)
        assert line.data["return_value"]
        see_alive(site, worker, pids, canaries)
    much = odd.returning_much.enqueue(5_000_000)
    assert site.wait_status(much.id, Status.COMPLETED).return_value == "x" * 5_000_000


@pytest.mark.parametrize("name", ["raising", "raising_async"])
def test_exceptions_of_every_kind(site, name):
    worker = site.start_ready("--concurrency", "2", LANG="C", PYTHONIOENCODING="ascii")
    pids = worker.workers
    task = getattr(odd, name)
    jobs = [(task.enqueue(kind), enqueue_canaries()) for kind in odd.RAISES]
    for job, canaries in jobs:
        # A mistake in what a Snooze says is an error like others.
        row = site.wait_status(job.id, Status.FAILED)
        assert row.attempt == 1
        assert 0 < len(row.error) <= 300
        (line,) = site.log_lines(job.id, JobLog.Event.ERRORED)
        assert issubclass(import_string(line.data["exception"]), BaseException)
        assert line.level == "error"
        (error,) = task.get_result(job.id).errors
        assert "\0" not in error.traceback
        assert str(job.id) in worker.log, "a final failure is logged"
        see_alive(site, worker, pids, canaries)


def test_the_words_of_a_failure_can_be_read(site):
    site.start_ready()
    jobs = {kind: odd.raising.enqueue(kind) for kind in ("plain", "nul", "surrogate", "long")}
    rows = {kind: site.wait_status(job.id, Status.FAILED) for kind, job in jobs.items()}
    assert rows["plain"].error == "ValueError: glāžš 🐟"
    assert rows["nul"].error == r"ValueError: bad byte \x00 here"
    assert rows["surrogate"].error == r"ValueError: bad \ud800 here"
    assert rows["long"].error.startswith("ValueError: xxx")


def test_async_tasks_that_break_the_loop(site):
    worker = site.start_ready("--concurrency", "3")
    pids = worker.workers
    neighbour = odd.until_async.enqueue("go")
    site.wait_for("begin", neighbour.id)
    for how in odd.LOOP_BREAKERS:
        job = odd.breaking_the_loop.enqueue(how)
        row = site.wait_status(job.id, Status.FAILED)
        assert row.attempt == 1
        see_canary(site, worker, pids)
    site.release("go")
    assert site.wait_status(neighbour.id, Status.COMPLETED).attempt == 1


def test_an_exit_that_ends_the_process(site):
    worker = site.start_ready("--concurrency", "1")
    job = odd.exiting_at_once.enqueue()
    row = site.wait_status(job.id, Status.FAILED)
    assert "WorkerLost" in row.error
    assert "exited with status 3" in row.error
    see_canary(site, worker)


def test_an_outcome_that_the_database_refuses(site):
    """The rest of its batch is written, and of it at least that it could not be."""
    refuse_a_value()
    worker = site.start_ready("--concurrency", "4")
    jobs = [tasks.quick.enqueue(value) for value in ("good", "refused", "good too")]
    statuses = [Status.COMPLETED, Status.FAILED, Status.COMPLETED]
    for job, status in zip(jobs, statuses, strict=True):
        assert site.wait_status(job.id, status).attempt == 1
    row = Job.objects.get(pk=jobs[1].id)
    assert "outcome (completed) could not be written" in row.error
    see_canary(site, worker, worker.workers)


def refuse_a_value() -> None:
    """A trigger that refuses one return value, as a constraint of the database's would."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "CREATE TRIGGER tests_refuse BEFORE UPDATE ON jobqueue_job "
                "WHEN NEW.return_value = '\"refused\"' BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        else:
            cursor.execute(
                "CREATE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN RAISE EXCEPTION 'no'; END$$"
            )
            cursor.execute(
                "CREATE TRIGGER tests_refuse BEFORE UPDATE ON jobqueue_job FOR EACH ROW "
                "WHEN (NEW.return_value = '\"refused\"') EXECUTE FUNCTION tests_refuse()"
            )


@pytest.fixture(autouse=True)
def _no_trigger(site: Site) -> Any:
    yield
    for supervised in site.running:
        supervised.kill_all()
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("DROP TRIGGER IF EXISTS tests_refuse")
        else:
            cursor.execute("DROP TRIGGER IF EXISTS tests_refuse ON jobqueue_job")
            cursor.execute("DROP FUNCTION IF EXISTS tests_refuse()")


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


# What is left in the log.


def test_the_lines_of_a_task_that_fails(site):
    """All of them, in their order, outside its transaction, and the error last."""
    site.start_ready()
    job = odd.chatty.enqueue(5, "raise")
    site.wait_status(job.id, Status.FAILED)
    log = list(JobLog.objects.filter(job=job.id).order_by("pk").values_list("event", "message"))
    assert log[:-1] == [("note", f"line {number}") for number in range(1, 6)]
    assert log[-1] == ("errored", "PermanentError: after its lines")
    assert not Effect.objects.filter(key__startswith="line").exists()


# All or nothing.


def test_an_atomic_task(site):
    site.start_ready()
    job = odd.writing.enqueue("")
    assert site.wait_status(job.id, Status.COMPLETED).return_value == "written"
    failed = odd.writing.enqueue("", "raise")
    unstorable = odd.writing.enqueue("", "unstorable")
    for each in (failed, unstorable):
        site.wait_status(each.id, Status.FAILED)
    assert list(Effect.objects.values_list("key", flat=True)) == [str(job.id)]


def test_an_atomic_task_under_sigkill(site):
    """Killed again and again, at random; what it wrote is there once, when it has completed."""
    jobs = [odd.writing_slowly.using(max_attempts=100).enqueue(0.05) for _ in range(12)]
    for round_ in range(3):
        worker = site.start("--concurrency", "2", options={"lease": 1.0, "heartbeat": 0.3})
        wait_until(
            lambda round_=round_: (
                Job.objects.filter(status=Status.COMPLETED).count() > 2 * round_
                or not Job.objects.exclude(status=Status.COMPLETED).exists()
            ),
            "some progress",
        )
        worker.kill_all()
    site.start("--concurrency", "2", options={"lease": 1.0, "heartbeat": 0.3})
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED, timeout=60)
        assert Effect.objects.filter(key=str(job.id)).count() == 1


@pytest.mark.postgres
def test_an_atomic_task_whose_lease_is_gone(site):
    """Its transaction is rolled back: it was somebody else's job by then."""
    worker = site.start_ready("--concurrency", "2", options={"lease": 60.0, "heartbeat": 20.0})
    job = odd.writing.enqueue("go")
    site.wait_for("written", job.id)
    # As recovery leaves it, and another worker's claim.
    Job.objects.filter(pk=job.id).update(attempt=2, lease_owner=uuid7())
    site.release("go")
    site.wait_for("end", job.id)
    wait_until(lambda: site.log_lines(job.id, JobLog.Event.FENCED), "the late end to be logged")
    assert not Effect.objects.exists()
    assert Job.objects.get(pk=job.id).status == Status.PROCESSING
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


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
