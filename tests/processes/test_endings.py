"""However a task ends, its job's end is recorded, readable, and once; and the worker goes on."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from jobqueue.ids import uuid7
from jobqueue.models import Job, JobLog, Status
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
        # The line is written after the row.
        wait_until(lambda job=job: str(job.id) in worker.log, "a final failure to be logged")
        see_alive(site, worker, pids, canaries)


def test_the_words_of_a_failure_can_be_read(site):
    site.start_ready()
    jobs = {kind: odd.raising.enqueue(kind) for kind in ("plain", "nul", "surrogate", "long")}
    rows = {kind: site.wait_status(job.id, Status.FAILED) for kind, job in jobs.items()}
    assert rows["plain"].error == "ValueError: glāžš 🐟"
    assert rows["nul"].error == r"ValueError: bad byte \x00 here"
    assert rows["surrogate"].error == r"ValueError: bad \ud800 here"
    assert rows["long"].error.startswith("ValueError: xxx")


def test_a_console_that_knows_ascii_alone(site):
    """What a task raises can always be said, whatever the worker's output can hold."""
    worker = site.start_ready(LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    pids = worker.workers
    for kind in ("plain", "nul", "surrogate", "bytes"):
        job = odd.raising.enqueue(kind)
        assert site.wait_status(job.id, Status.FAILED).attempt == 1
    see_canary(site, worker, pids)
    assert "Logging error" not in worker.log
    assert "UnicodeEncodeError" not in worker.log


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


# Rows that this Python cannot read.


@pytest.mark.parametrize("concurrency", [1, 4])
def test_arguments_with_more_digits_than_the_worker_reads(site, concurrency):
    """Their attempts end as errors, by the ordinary rules; the others run, and the worker lives."""
    few = odd.taking.using(max_attempts=3).enqueue(10**1000)
    named = odd.taking.using(max_attempts=1).enqueue(number=[{"n": -(10**1000)}])
    others = [odd.taking.enqueue(number) for number in range(5)]
    worker = site.start_ready("--concurrency", str(concurrency), PYTHONINTMAXSTRDIGITS="640")
    pids = worker.workers
    # And where claims go together with outcomes, too.
    later = [odd.taking.enqueue(10**1000 if number == 3 else number) for number in range(6)]
    for job, attempts, name in ((few, 3, "args"), (named, 1, "kwargs")):
        row = site.wait_status(job.id, Status.FAILED)
        assert row.error.startswith(f"ValueError: The job's {name} cannot be read: Exceeds")
        assert (row.attempt, row.lease_owner) == (attempts, None)
        assert site.log_events(job.id) == ["errored"] * attempts
        (*_, error) = odd.taking.get_result(job.id).errors
        assert error.exception_class_path == "builtins.ValueError"
    assert not site.events("begin", few.id)
    assert not site.events("begin", named.id)
    see_alive(site, worker, pids, [*others, *later[:3], *later[4:]])
    site.wait_status(later[3].id, Status.FAILED)
    see_canary(site, worker, pids)


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
