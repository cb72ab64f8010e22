"""What the cases do to jobs and read from them, and how several of them act at once."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypeVar

from django.db import connection, connections, transaction

from jobqueue import lifecycle
from jobqueue.attempts import Attempt, Ending, Outcome, Pair
from jobqueue.lifecycle import NewJob
from jobqueue.models import Job, JobLog, Status
from tests.factories import JobFactory, ago, now

WORKER = "host:1:00000000"
Test = TypeVar("Test")
PATIENCE = 20.0  # seconds after which a thread that does not end is a failure


def local_time_too(test: Test) -> Test:
    """Run this test, or this class of them, in local time as well."""
    test.local_time = True  # type: ignore[attr-defined]
    return test


def new_job(**values: Any) -> NewJob:
    given: dict[str, Any] = {
        "task_path": "tests.tasks_sample.nothing",
        "args": [],
        "kwargs": {},
        "queue_name": "default",
        "priority": 0,
        "max_attempts": 5,
        "timeout": 60.0,
    }
    return NewJob(**given | values)


def claimed(**values: Any) -> Attempt:
    """A job that has just been claimed: its attempt."""
    job = JobFactory(**values)
    (attempt,) = lifecycle.claim(job.queue_name, uuid.uuid4(), WORKER, 1)
    assert attempt.id == job.pk
    return attempt


def attempt_of(job: Job) -> Attempt:
    """The attempt that runs, as its claim gave it."""
    job.refresh_from_db()
    columns = {each.name: getattr(job, each.name, None) for each in fields(Attempt) if each.init}
    return Attempt(**columns | {"owner": job.lease_owner or uuid.uuid4()})


@contextmanager
def reading_few_digits() -> Iterator[None]:
    """This process reads integers of 640 digits at most, as another may."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def outcome(attempt: Attempt, ending: Ending = Ending.COMPLETED, **values: Any) -> Outcome:
    if ending in (Ending.ERRORED, Ending.TIMED_OUT, Ending.NOT_FOUND):
        values.setdefault("error", "ValueError: no")
    return Outcome(attempt, ending, **values)


def picture(job: Job | Attempt) -> dict[str, Any]:
    """Every column of the row."""
    return Job.objects.filter(pk=job.id).values().get()


def row(job: Job | Attempt) -> Job:
    return Job.objects.get(pk=job.id)


def events(job: Job | Attempt) -> list[str]:
    return list(JobLog.objects.filter(job=job.id).values_list("event", flat=True))


def expire(*jobs: Job | Attempt) -> None:
    """The leases ran out a second ago."""
    Job.objects.filter(pk__in=[job.id for job in jobs]).update(lease_expires_at=ago(1))


def make_due(*jobs: Job | Attempt) -> None:
    """The time of these scheduled jobs came a second ago."""
    Job.objects.filter(pk__in=[job.id for job in jobs]).update(run_after=ago(1))


def pair(job: Job | Attempt) -> Pair:
    return Pair(job.id, job.attempt)


def ids(jobs: Sequence[Job | Attempt]) -> list[uuid.UUID]:
    return [job.id for job in jobs]


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start `work` with connections of its own; the list will hold its answer or its exception."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            answer.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answer


def answer_of(thread: threading.Thread, answer: list[Any]) -> Any:
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it does not end"
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all at the same moment, each with connections of its own; returns their answers."""
    start = threading.Barrier(len(works), timeout=PATIENCE)

    def begin(work: Callable[[], Any]) -> Any:
        connection.ensure_connection()
        start.wait()
        return work()

    started = [in_thread(lambda work=work: begin(work)) for work in works]
    return [answer_of(*each) for each in started]


def point_at(job: Job | Attempt) -> None:
    """Insert a row with a foreign key to the job, as a task may do in a transaction of its own. It
    locks the job's row FOR KEY SHARE once the key is checked: Django's are checked at the end."""
    JobLog.objects.create(job_id=job.id, event=JobLog.Event.NOTE, created_at=now())
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@contextmanager
def held(*rows: Any) -> Iterator[Callable[[], None]]:
    """Another transaction holds the rows, as `select_for_update` in a view would, until the end of
    the block or until what this yields is called. PostgreSQL only."""
    holding, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            for each in rows:
                type(each).objects.select_for_update().get(pk=each.pk)
            holding.set()
            assert let_go.wait(PATIENCE)

    thread, answer = in_thread(hold)
    assert holding.wait(PATIENCE), answer

    def release() -> None:
        let_go.set()
        answer_of(thread, answer)

    try:
        yield release
    finally:
        release()


def waiting_for_a_lock(count: int = 1) -> bool:
    """Whether so many connections to this database wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # in a transaction it would stay as it is
        cursor.execute(
            "SELECT count(*) FROM pg_locks AS wanted JOIN pg_stat_activity USING (pid) "
            "WHERE NOT granted AND datname = current_database()"
        )
        return cursor.fetchone()[0] >= count


def until_somebody_waits_for_a_lock(count: int = 1) -> None:
    deadline = threading.Event()
    timer = threading.Timer(PATIENCE, deadline.set)
    timer.start()
    try:
        while not waiting_for_a_lock(count):
            assert not deadline.is_set(), "nobody waits"
    finally:
        timer.cancel()


def is_close(moment: Any, expected: Any, seconds: float = 10.0) -> bool:
    return abs(moment - expected) < timedelta(seconds=seconds)


STATUSES = {
    "scheduled": Status.SCHEDULED,
    "queued": Status.QUEUED,
    "processing": Status.PROCESSING,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
    "stopping": Status.CANCELLED,
}
