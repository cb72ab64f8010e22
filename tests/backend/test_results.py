"""A result says what became of its job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

import jobqueue
from jobqueue import JobResult, lifecycle
from jobqueue.attempts import Ending, Outcome
from jobqueue.compat import (
    TASKS_MODULE,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from jobqueue.models import Job, JobLog, Status
from tests import tasks_sample as sample
from tests.backend.acts import OWNER, claim, job_of, settle

pytestmark = pytest.mark.django_db


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
