"""A call becomes a job: its columns, its time, its queue, and the caller's transaction."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from datetime import timezone as zones
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.utils import timezone

from jobqueue import JobResult, Task, lifecycle, task
from jobqueue.compat import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends
from jobqueue.compat import Task as AnyTask
from jobqueue.models import Job, Status
from tests import tasks_sample as sample
from tests.backend.acts import OWNER, job_of, with_options

pytestmark = pytest.mark.django_db


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
