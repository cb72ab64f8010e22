"""`enqueue_many`: all calls or none, in few statements."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

import jobqueue
from jobqueue import enqueue_many, lifecycle, task
from jobqueue.compat import TASKS_MODULE, InvalidTask
from jobqueue.compat import Task as AnyTask
from jobqueue.models import Job, Status
from tests import tasks_sample as sample
from tests.backend.acts import OWNER, job_of

pytestmark = pytest.mark.django_db


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
