"""How calls become jobs: enqueue and its transactions, keys, many at once, odd values, results."""

from __future__ import annotations

import enum
import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from datetime import timezone as zones
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.utils import timezone

import jobqueue
from jobqueue import JobResult, Task, enqueue_many, lifecycle, task
from jobqueue.attempts import Attempt, Ending, Outcome
from jobqueue.backend import JobQueueBackend
from jobqueue.compat import (
    TASKS_MODULE,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from jobqueue.compat import Task as AnyTask
from jobqueue.models import Job, JobLog, Status
from tests import tasks_sample as sample
from tests.app.models import Effect

pytestmark = pytest.mark.django_db

OWNER = uuid.UUID(int=1)


def claim(queue: str = "default", worker: str = "host:1:a", owner: uuid.UUID = OWNER) -> Attempt:
    (attempt,) = lifecycle.claim(queue, owner, worker, 1)
    return attempt


def settle(attempt: Attempt, ending: Ending, **fields: Any) -> Status:
    (written,) = lifecycle.settle([Outcome(attempt, ending, **fields)]).written
    return written[1]


def job_of(result: JobResult[Any, Any]) -> Job:
    return Job.objects.get(pk=result.id)


# Enqueue


def test_a_call_becomes_a_job() -> None:
    before = timezone.now() - timedelta(seconds=5)
    result = sample.add.using(timeout=7, max_attempts=2).enqueue(1, b=2)
    job = job_of(result)
    assert (job.task_path, job.args, job.kwargs) == ("tests.tasks_sample.add", [1], {"b": 2})
    assert (job.queue_name, job.priority, job.status) == ("maths", 5, Status.QUEUED)
    assert (job.timeout, job.max_attempts, job.attempt) == (7.0, 2, 0)
    assert before < job.enqueued_at == job.run_after < before + timedelta(seconds=60)


def test_what_enqueue_returns() -> None:
    result = sample.add.enqueue(1, b=2)
    assert isinstance(result, JobResult)
    assert uuid.UUID(result.id).version == 7
    assert result.id == str(uuid.UUID(result.id))
    assert result.created
    assert result.task is sample.add
    assert (result.args, result.kwargs) == ([1], {"b": 2})
    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at == job_of(result).enqueued_at
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert result.backend == "default"
    assert not result.is_finished
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_the_settings_defaults_are_stored(settings: Any) -> None:
    settings.TASKS = with_options(settings, max_attempts=3, timeout=None)
    job = job_of(sample.noop.enqueue())
    assert (job.max_attempts, job.timeout) == (3, None)
    settings.TASKS = with_options(settings, max_attempts=4, timeout=8)
    job = job_of(sample.noop.enqueue())
    assert (job.max_attempts, job.timeout) == (4, 8.0)
    assert job_of(sample.noop.using(timeout=None).enqueue()).timeout is None


def with_options(settings: Any, **options: Any) -> dict[str, Any]:
    return {"default": {**settings.TASKS["default"], "OPTIONS": options}}


def test_a_delayed_job_is_scheduled() -> None:
    later = timezone.now() + timedelta(hours=1)
    result = sample.noop.using(run_after=later).enqueue()
    job = job_of(result)
    assert (job.status, job.run_after) == (Status.SCHEDULED, later)
    assert result.status == TaskResultStatus.READY
    assert result.task.run_after == later


def test_a_time_that_has_passed_is_now() -> None:
    job = job_of(sample.noop.using(run_after=timezone.now() - timedelta(days=9)).enqueue())
    assert job.status == Status.QUEUED
    assert job.run_after == job.enqueued_at


def test_an_aware_time_is_converted_where_times_are_naive(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    noon = datetime(2040, 7, 1, 12, tzinfo=UTC)
    job = job_of(sample.noop.using(run_after=noon).enqueue())
    assert job.run_after == datetime(2040, 7, 1, 8)  # noqa: DTZ001
    naive = job_of(sample.noop.using(run_after=datetime(2040, 7, 1, 8)).enqueue())  # noqa: DTZ001
    assert naive.run_after == job.run_after
    assert naive.status == Status.SCHEDULED


@pytest.mark.parametrize("edge", [datetime(1970, 1, 1, 12), datetime(9000, 12, 31)])  # noqa: DTZ001
def test_the_edges_of_time_are_stored(settings: Any, edge: datetime) -> None:
    moment = edge.replace(tzinfo=zones(timedelta(hours=14))) if settings.USE_TZ else edge
    job = job_of(sample.noop.using(run_after=moment).enqueue())
    assert job.status == (Status.SCHEDULED if edge.year == 9000 else Status.QUEUED)


def test_aenqueue() -> None:
    result = async_to_sync(sample.async_add.aenqueue)(1, b=2)
    assert result.created
    assert job_of(result).kwargs == {"b": 2}
    assert async_to_sync(sample.async_add.aget_result)(result.id).args == [1]
    async_to_sync(result.arefresh)()
    assert result.created


def test_enqueue_takes_few_statements(django_assert_num_queries: Any) -> None:
    sample.noop.enqueue()
    with django_assert_num_queries(1):
        sample.noop.enqueue()


def test_a_job_may_have_queues_of_its_own(settings: Any) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "maths"]}}
    sample.add.enqueue(1)
    with pytest.raises(InvalidTask, match="Queue 'other' is not valid"):
        sample.add.using(queue_name="other")


def test_a_queue_that_is_no_longer_allowed(settings: Any) -> None:
    result = sample.add.enqueue(1)
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}
    with pytest.raises(InvalidTask, match="Queue 'maths' is not valid"):
        sample.add.enqueue(1)
    result.refresh()
    assert task_backends["default"].get_result(result.id).task.queue_name == "maths"


# Unknown tasks


def test_a_task_that_workers_would_not_find_is_refused() -> None:
    with pytest.raises(InvalidTask, match="A worker would not find this task"):
        task(sample.not_a_task).enqueue()
    assert not Job.objects.exists()


def test_a_task_that_was_made_for_another_backend(settings: Any) -> None:
    foreign = AnyTask(func=sample.noop.func)
    assert not isinstance(foreign, Task)
    result = task_backends["default"].enqueue(foreign, [1], {})
    assert result.task is foreign
    job = job_of(result)
    assert (job.max_attempts, job.timeout, job.idempotency_key) == (5, 300.0, None)
    assert job.task_path == "tests.tasks_sample.noop"


def test_a_foreign_task_is_checked_too() -> None:
    with pytest.raises(InvalidTask, match="U\\+0000"):
        AnyTask(func=sample.noop.func, queue_name="a\0")


# Transactions


@pytest.mark.django_db(transaction=True)
def test_a_job_is_in_the_callers_transaction() -> None:
    with transaction.atomic():
        gone = sample.noop.enqueue()
        assert job_of(gone)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        gone.refresh()
    with transaction.atomic():
        kept = sample.noop.enqueue()
        with transaction.atomic():
            half = sample.noop.enqueue()
            transaction.set_rollback(True)
    assert list(Job.objects.values_list("pk", flat=True)) == [uuid.UUID(kept.id)]
    with pytest.raises(TaskResultDoesNotExist):
        sample.noop.get_result(half.id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres
def test_nobody_else_sees_a_job_before_the_commit() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(len(lifecycle.claim("default", OWNER, "w", 9)))
        connections.close_all()

    with transaction.atomic():
        sample.noop.enqueue()
        in_thread(look)
    in_thread(look)
    assert seen == [0, 1]


def in_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres
def test_a_thread_is_not_in_its_makers_transaction() -> None:
    """It has a connection of its own, as in all of Django; what it enqueues is accepted at once."""
    made: list[str] = []

    def enqueue() -> None:
        try:
            made.append(sample.noop.enqueue().id)
        finally:
            connections.close_all()

    with transaction.atomic():
        of_its_own = sample.noop.enqueue()
        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join(20)
        transaction.set_rollback(True)
    assert [str(job.pk) for job in Job.objects.all()] == made
    assert of_its_own.id not in made


@pytest.mark.django_db(transaction=True)
def test_async_code_is_in_the_transaction_of_its_sync_caller() -> None:
    with transaction.atomic():
        async_to_sync(sample.noop.aenqueue)()
        assert Job.objects.count() == 1
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "in autocommit"])
@pytest.mark.django_db(transaction=True)
def test_a_refused_call_leaves_the_transaction_alone(inside: bool) -> None:
    if inside:
        with transaction.atomic():
            with pytest.raises(ValueError, match="U\\+0000"):
                sample.noop.enqueue("\0")
            kept = sample.noop.enqueue("fine")
    else:
        with pytest.raises(ValueError, match="U\\+0000"):
            sample.noop.enqueue("\0")
        kept = sample.noop.enqueue("fine")
    assert [str(job.pk) for job in Job.objects.all()] == [kept.id]


# Values


def label(value: Any) -> str:
    """A parameter's name, the same in every process."""
    return ascii(value)[:30] if isinstance(value, str | int | float) else type(value).__name__


class Colour(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    BIG = "big"


class Number(enum.IntEnum):
    ONE = 1


circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a\0b", ValueError, "U\\+0000"),
        ("\udce9.txt", ValueError, "surrogate"),
        (math.nan, ValueError, "nan"),
        (math.inf, ValueError, "inf"),
        (b"\xff", ValueError, "bytes"),
        ({1, 2}, TypeError, "set"),
        (Decimal("1.10"), TypeError, "Decimal"),
        (datetime(2030, 1, 1), TypeError, "datetime"),  # noqa: DTZ001
        (date(2030, 1, 1), TypeError, "date"),
        (timedelta(1), TypeError, "timedelta"),
        (uuid.UUID(int=1), TypeError, "UUID"),
        (Colour.RED, TypeError, "Colour"),
        (object(), TypeError, "object"),
        (Job(), TypeError, "primary key"),
        (circular, ValueError, "circular"),
        ({1: "a", "1": "b"}, TypeError, "key"),
        ({"a\0": 1}, ValueError, "U\\+0000"),
        ("x" * 5_000_000, ValueError, "more than 1000000 bytes"),
    ],
    ids=label,
)
def test_a_value_that_cannot_be_kept_is_refused(
    value: Any, error: type[Exception], words: str
) -> None:
    for call, path in [
        (lambda: sample.noop.enqueue(1, value), "args\\[1\\]"),
        (lambda: sample.noop.enqueue(order={"lines": [0, value]}), "kwargs.order(.lines\\[1\\])?"),
        (lambda: async_to_sync(sample.noop.aenqueue)(value), "args\\[0\\]"),
    ]:
        with pytest.raises(error, match=words) as raised:
            call()
        assert raised.match(path)
    with pytest.raises(error, match=words) as raised:
        enqueue_many([*(sample.noop.bind(n) for n in range(99)), sample.noop.bind(value)])
    assert raised.value.__notes__ == ["In call 99 of 100, of tests.tasks_sample.noop."]
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (6.022e23, 6.022e23),
        (1e16, 1e16),
        (9007199254740993, 9007199254740993),
        (-(10**30), -(10**30)),
        (0.1, 0.1),
        ((1, (2,)), [1, [2]]),
        (b"bytes", "bytes"),
        (Size.BIG, "big"),
        (Number.ONE, 1),
        ({"a": None, "": [True]}, {"a": None, "": [True]}),
        ("\U0001f600 \u2028 '", "\U0001f600 \u2028 '"),
        ("\\u0000", "\\u0000"),
    ],
    ids=label,
)
def test_a_value_comes_back_as_it_was_kept(value: Any, stored: Any) -> None:
    result = sample.noop.enqueue(value, key=value)
    job = job_of(result)
    for found in (result.args[0], job.args[0], job.kwargs["key"], claim().kwargs["key"]):
        assert found == stored
        assert type(found) is type(stored)


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, job_of(sample.noop.enqueue(-0.0)).args[0]) == -1


def test_the_callers_objects_are_not_shared() -> None:
    mine = [1, {"a": [2]}]
    result = sample.noop.enqueue(mine, key=mine)
    mine.append(3)
    mine[1]["a"].append(4)
    assert result.args == [[1, {"a": [2]}]]
    assert result.kwargs == {"key": [1, {"a": [2]}]}


def test_the_size_is_the_settings(settings: Any) -> None:
    settings.TASKS = with_options(settings, max_payload=100)
    sample.noop.enqueue("x" * 80)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        sample.noop.enqueue("x" * 101)


def test_jobs_are_found_by_an_argument() -> None:
    sample.noop.enqueue(order_id=1)
    sample.noop.enqueue(order_id=2)
    assert Job.objects.get(kwargs__order_id=1).kwargs == {"order_id": 1}


# Idempotency keys


def test_a_key_gives_one_job() -> None:
    keyed = sample.add.using(idempotency_key="order-1")
    first, second = keyed.enqueue(1, b=2), keyed.enqueue(1, b=2)
    assert first.id == second.id
    assert (first.created, second.created) == (True, False)
    assert second.task == keyed
    assert second.enqueued_at == first.enqueued_at
    assert Job.objects.get().idempotency_key == "order-1"


def test_a_key_belongs_to_its_task() -> None:
    assert sample.noop.using(idempotency_key="k").enqueue().created
    assert sample.async_noop.using(idempotency_key="k").enqueue().created


def test_created_survives_a_refresh() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first, second = keyed.enqueue(), keyed.enqueue()
    settle(claim(), Ending.COMPLETED, return_value=7)
    for result in (first, second):
        result.refresh()
        assert result.return_value == 7
    assert (first.created, second.created) == (True, False)
    assert not sample.noop.get_result(first.id).created


def test_a_winner_that_has_ended_is_still_the_winner() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue()
    settle(claim(), Ending.COMPLETED, return_value=7)
    second = keyed.enqueue()
    assert (second.id, second.created, second.return_value) == (first.id, False, 7)


def test_the_same_key_with_other_arguments_is_an_error() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue(1)
    with transaction.atomic(), pytest.raises(ValueError, match=f"belongs to job {first.id}"):
        keyed.enqueue(2)
    assert sample.noop.enqueue().created  # the transaction around it is unharmed
    assert Job.objects.count() == 2


def test_a_key_is_free_when_its_job_is_gone() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue()
    Job.objects.all().delete()
    second = keyed.enqueue()
    assert second.created
    assert second.id != first.id


def test_a_key_of_the_greatest_length() -> None:
    keyed = sample.noop.using(idempotency_key="\U0001f600" * 255)
    assert keyed.enqueue().created
    assert not keyed.enqueue().created


def enqueue_together(
    keyed: Task[Any, Any], barrier: threading.Barrier, results: list[JobResult[Any, Any]]
) -> None:
    connection.ensure_connection()
    barrier.wait(20)
    try:
        results.append(keyed.enqueue(1))
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_eight_threads_and_one_key() -> None:
    keyed = sample.noop.using(idempotency_key="race")
    for _ in range(5):
        barrier = threading.Barrier(8)
        results: list[JobResult[Any, Any]] = []

        threads = [
            threading.Thread(target=enqueue_together, args=(keyed, barrier, results))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8
        assert len({result.id for result in results}) == 1
        assert sum(result.created for result in results) == 1
        Job.objects.all().delete()


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres
def test_the_loser_waits_for_the_winners_end() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    results: list[JobResult[Any, Any]] = []
    started = threading.Event()

    def enqueue() -> None:
        with transaction.atomic():
            Effect.objects.create(key="in the same transaction")
            started.set()
            results.append(keyed.enqueue())
            Effect.objects.create(key="still usable")
        connections.close_all()

    for commits in (False, True):
        started.clear()
        thread = threading.Thread(target=enqueue)
        with transaction.atomic():
            winner = keyed.enqueue()
            thread.start()
            started.wait(10)
            wait_for_a_waiting_backend()
            if not commits:
                transaction.set_rollback(True)
        thread.join(10)
        if commits:
            assert results[-1].id == winner.id
            assert not results[-1].created
        else:
            assert results[-1].id != winner.id
            assert results[-1].created
        Job.objects.all().delete()
    assert Effect.objects.filter(key="still usable").count() == 2


def wait_for_a_waiting_backend() -> None:
    with connection.cursor() as cursor:
        for _ in range(10_000):
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
    raise AssertionError("nobody waits")


# Many at once


def test_many_calls_are_one_transaction(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(20):  # SQLite takes about 50 rows a statement
        results = enqueue_many(sample.add.bind(n, b=n) for n in range(500))
    assert [result.args for result in results] == [[n] for n in range(500)]
    assert all(result.created and result.task is sample.add for result in results)
    jobs = Job.objects.in_bulk([result.id for result in results])
    assert [jobs[uuid.UUID(result.id)].kwargs["b"] for result in results] == list(range(500))
    assert [attempt.args for attempt in lifecycle.claim("maths", OWNER, "w", 3)] == [[0], [1], [2]]


def test_more_than_one_statement_holds() -> None:
    results = enqueue_many([sample.noop.bind(n) for n in range(2_100)])
    assert len({result.id for result in results}) == 2_100
    assert Job.objects.count() == 2_100


def test_no_calls_are_no_jobs() -> None:
    assert enqueue_many([]) == []


def test_tasks_may_be_mixed() -> None:
    later = timezone.now() + timedelta(hours=1)
    results = enqueue_many(
        [
            sample.add.bind(1),
            sample.noop.using(run_after=later).bind(),
            sample.async_noop.using(priority=-3, queue_name="slow").bind("x"),
        ]
    )
    assert [result.task.queue_name for result in results] == ["maths", "default", "slow"]
    statuses = [job_of(result).status for result in results]
    assert statuses == [Status.QUEUED, Status.SCHEDULED, Status.QUEUED]


def test_keys_in_a_batch() -> None:
    keyed = [sample.add.using(idempotency_key=f"k{n % 3}") for n in range(6)]
    before = keyed[1].enqueue(1)
    results = enqueue_many([each.bind(n % 3) for n, each in enumerate(keyed)])
    assert [result.created for result in results] == [True, False, True, False, False, False]
    assert results[0].id == results[3].id
    assert results[1].id == results[4].id == before.id
    assert Job.objects.count() == 3


def test_all_or_none() -> None:
    sample.noop.using(idempotency_key="k").enqueue(1)
    calls = [sample.noop.bind(n) for n in range(5)]
    with pytest.raises(ValueError, match="belongs to job"):
        enqueue_many([*calls, sample.noop.using(idempotency_key="k").bind(2)])
    assert Job.objects.count() == 1
    with pytest.raises(InvalidTask) as raised:
        enqueue_many([*calls, task(sample.not_a_task).bind()])
    assert raised.value.__notes__ == ["In call 5 of 6, of tests.tasks_sample.not_a_task."]
    assert Job.objects.count() == 1


def test_calls_belong_to_one_backend(settings: Any) -> None:
    settings.TASKS = {
        **settings.TASKS,
        "now": {"BACKEND": f"{TASKS_MODULE}.backends.immediate.ImmediateBackend"},
    }
    with pytest.raises(ValueError, match="several backends \\(default, now\\)"):
        enqueue_many([sample.noop.bind(), sample.noop.using(backend="now").bind()])
    assert not Job.objects.exists()


def test_other_backends_get_the_calls_one_by_one(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{TASKS_MODULE}.backends.immediate.ImmediateBackend"}}
    calls = [sample.echo.bind(n) for n in range(3)]
    assert [result.return_value for result in enqueue_many(calls)] == [0, 1, 2]


@pytest.mark.parametrize("call", [sample.noop, (sample.noop, (), {}), None])
def test_what_is_not_bound_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="takes what task.bind"):
        enqueue_many([call])


def test_a_foreign_task_can_be_bound() -> None:
    foreign = AnyTask(func=sample.noop.func)
    (result,) = enqueue_many([jobqueue.BoundTask(foreign, (1,), {})])
    assert job_of(result).args == [1]


# Results


def test_a_result_by_its_id() -> None:
    made = sample.add.enqueue(1, b=2)
    found = sample.add.get_result(made.id)
    assert isinstance(found, JobResult)
    assert found.task == sample.add
    assert replace(found, created=True) == made
    assert sample.add.get_result(made.id.upper().replace("-", "")).id == made.id


@pytest.mark.parametrize(
    "result_id", ["", "x", "123", str(OWNER), str(OWNER)[:-1], None, 7, "a\0", "é"]
)
def test_no_such_result(result_id: Any) -> None:
    backend = task_backends["default"]
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(backend.aget_result)(result_id)


def test_a_result_of_another_task() -> None:
    made = sample.noop.enqueue()
    with pytest.raises(TaskResultMismatch, match="tests.tasks_sample.noop"):
        sample.add.get_result(made.id)


def test_the_task_of_a_result_is_as_it_was_enqueued(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": f"{TASKS_MODULE}.backends.immediate.ImmediateBackend"},
        "later": settings.TASKS["default"],
    }
    changed = sample.add.using(
        backend="later", priority=-7, queue_name="other", idempotency_key="k"
    )
    found = changed.get_result(changed.enqueue(1).id)
    assert found.task == changed
    assert found.backend == "later"
    found.refresh()


def test_a_job_whose_function_is_gone_has_a_result() -> None:
    made = sample.noop.enqueue(1)
    Job.objects.update(task_path="tests.gone.away")
    found = task_backends["default"].get_result(made.id)
    assert found.task.module_path == "tests.gone.away"
    assert found.args == [1]
    found.refresh()
    with pytest.raises(TaskResultMismatch):
        sample.noop.get_result(made.id)


def test_the_states_of_a_job_as_a_result_tells_them() -> None:
    result = sample.noop.using(max_attempts=3).enqueue()
    attempt = claim(worker="host:1:a")
    result.refresh()
    assert result.status == TaskResultStatus.RUNNING
    assert result.started_at == attempt.started_at
    assert result.last_attempted_at == attempt.attempted_at
    assert result.worker_ids == ["host:1:a"]

    failed = {"exception": "builtins.ValueError", "traceback": "Traceback ... ValueError: no"}
    settle(attempt, Ending.ERRORED, error="ValueError: no", data=failed)
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert result.finished_at is None
    assert [error.exception_class for error in result.errors] == [ValueError]
    assert result.errors[0].traceback == "Traceback ... ValueError: no"

    due()
    second = claim(worker="host:2:b")
    settle(second, Ending.COMPLETED, return_value={"a": 1})
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value == {"a": 1}
    assert result.worker_ids == ["host:1:a", "host:2:b"]
    assert result.attempts == 2
    assert result.started_at == attempt.started_at
    assert result.last_attempted_at == second.attempted_at
    assert len(result.errors) == 1


def test_every_way_to_fail_is_an_error_with_a_class() -> None:
    result = sample.noop.using(max_attempts=9).enqueue()
    settle(
        claim(), Ending.TIMED_OUT, error="TimedOut: 1 s", data={"exception": "jobqueue.TimedOut"}
    )
    due()
    claim(worker="host:3:c")
    lifecycle.lose(OWNER, "it died")
    due()
    settle(claim(), Ending.NOT_FOUND, error="TaskNotFound: no x", data={"traceback": "none"})
    due()
    for path in ("tests.gone.Error", "os.system"):
        settle(claim(), Ending.ERRORED, data={"exception": path})
        due()
    settle(claim(), Ending.ERRORED, final=True)
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == [
        "jobqueue.TimedOut",
        "jobqueue.WorkerLost",
        "jobqueue.TaskNotFound",
        "builtins.Exception",
        "builtins.Exception",
        "builtins.Exception",
    ]
    assert all(issubclass(error.exception_class, BaseException) for error in result.errors)
    assert result.errors[0].traceback == "TimedOut: 1 s"
    assert "it died" in result.errors[1].traceback
    assert result.errors[2].traceback == "none"
    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == 6
    assert result.worker_ids[1] == "host:3:c"
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def due() -> None:
    """Let the scheduled jobs be due, and queue them."""
    Job.objects.filter(status=Status.SCHEDULED).update(run_after=timezone.now())
    lifecycle.promote([job.pk for job in Job.objects.filter(status=Status.SCHEDULED)])


def test_attempts_that_were_given_back_are_counted() -> None:
    result = sample.noop.enqueue()
    settle(claim(worker="a"), Ending.SNOOZED)
    due()
    settle(claim(worker="b"), Ending.RELEASED)
    claim(worker="c")
    result.refresh()
    assert result.worker_ids == ["a", "b", "c"]
    assert result.attempts == job_of(result).attempt == 3
    assert result.errors == []


def test_a_cancelled_job_has_failed() -> None:
    waiting, running = sample.noop.enqueue(), sample.async_noop.using(queue_name="b").enqueue()
    attempt = claim("b", worker="host:1:a")
    assert jobqueue.cancel(waiting.id, actor="Ada", reason="not needed")
    assert jobqueue.cancel(running.id)
    lifecycle.settle([Outcome(attempt, Ending.COMPLETED, return_value=1)])
    for result in (waiting, running):
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert result.finished_at is not None
        assert [error.exception_class for error in result.errors] == [jobqueue.Cancelled]
    assert waiting.errors[0].traceback == "The job was cancelled by Ada: not needed"
    assert running.errors[0].traceback == "The job was cancelled"
    assert (waiting.worker_ids, running.worker_ids) == ([], ["host:1:a"])
    assert not jobqueue.cancel(waiting.id)


def test_a_requeued_job_remembers_its_workers() -> None:
    result = sample.noop.enqueue()
    settle(claim(worker="first"), Ending.COMPLETED, return_value=1)
    assert jobqueue.requeue(result.id, actor="Ada")
    result.refresh()
    assert result.status == TaskResultStatus.READY
    settle(claim(worker="second"), Ending.COMPLETED, return_value=2)
    result.refresh()
    assert (result.worker_ids, result.return_value) == (["first", "second"], 2)
    assert not jobqueue.requeue(sample.noop.enqueue().id)


def test_workers_that_the_log_has_forgotten() -> None:
    result = sample.noop.enqueue()
    settle(claim(worker="first"), Ending.SNOOZED)
    due()
    claim(worker="second")
    JobLog.objects.all().delete()
    result.refresh()
    assert result.worker_ids == ["", "second"]


def test_a_fresh_result_needs_no_log(django_assert_num_queries: Any) -> None:
    result = sample.noop.enqueue()
    with django_assert_num_queries(1):
        result.refresh()
    settle(claim(), Ending.COMPLETED)
    with django_assert_num_queries(1):
        result.refresh()


# The backend itself


def test_what_the_backend_can_do() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, JobQueueBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert backend.task_class is Task


@pytest.mark.parametrize("options", [None, 7, {"nonsense": object()}, {"lease": "x"}])
def test_wrong_options_do_not_stop_the_constructor(options: Any) -> None:
    assert JobQueueBackend("default", {"OPTIONS": options}).alias == "default"


def test_an_alias_without_queues_takes_the_default_one() -> None:
    assert JobQueueBackend("default", {}).queues == {"default"}


def test_the_check_finds_nothing_wrong() -> None:
    assert task_backends["default"].check() == []


def test_the_check_tells_that_the_app_is_missing(settings: Any) -> None:
    from django.test.utils import modify_settings

    with modify_settings(INSTALLED_APPS={"remove": ["jobqueue", "tests.app"]}):
        (found,) = task_backends["default"].check()
    assert found.id == "jobqueue.E013"
    assert 'Add "jobqueue" to INSTALLED_APPS' in found.hint


@pytest.fixture
def _queue_elsewhere(settings: Any) -> None:
    settings.TASKS = with_options(settings, database="elsewhere")


@pytest.mark.usefixtures("_queue_elsewhere")
def test_the_check_tells_of_atomic_tasks_beside_the_queue() -> None:
    found = task_backends["default"].check()
    assert {each.id for each in found} == {"jobqueue.E014"}
    assert any("tests.tasks_sample.effect_atomically is atomic" in each.msg for each in found)


def test_the_signal_is_in_the_transaction() -> None:
    heard: list[tuple[str, bool, Any]] = []

    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((task_result.id, connection.in_atomic_block, sender))

    task_enqueued.connect(receiver)
    try:
        keyed = sample.noop.using(idempotency_key="k")
        first = keyed.enqueue()
        keyed.enqueue()
        many = enqueue_many([keyed.bind(), sample.noop.bind()])
    finally:
        task_enqueued.disconnect(receiver)
    assert heard == [(first.id, True, JobQueueBackend), (many[1].id, True, JobQueueBackend)]


def test_the_result_of_a_new_job_is_what_the_class_would_make(db: None) -> None:
    made = sample.noop.enqueue(1, name="a")
    names = [each.name for each in fields(made)]
    values = {name: getattr(made, name) for name in names if name != "_return_value"}
    usual = JobResult(**values)
    assert made == usual
    assert type(made) is type(usual)
    assert [getattr(made, name) for name in names] == [getattr(usual, name) for name in names]
    assert (made.created, made.errors, made.worker_ids) == (True, [], [])
