"""`run_jobs`: what an application's tests see of their jobs."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta
from typing import Any

import django.test
import pytest
from django.db import transaction
from django.utils import timezone

import jobqueue
from jobqueue import lifecycle
from jobqueue.compat import TaskResultStatus
from jobqueue.models import Job, JobLog, Queue, Status
from jobqueue.testing import run_jobs
from tests import tasks_sample as sample
from tests.app.models import Effect

pytestmark = pytest.mark.django_db


def paths(jobs: list[Job]) -> list[str]:
    return [job.task_path.rpartition(".")[2] for job in jobs]


class InsideATestCase(django.test.TestCase):
    """Where nothing is ever committed."""

    def test_what_is_due_runs(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            result = sample.effect.enqueue("done")
            (job,) = run_jobs()
        assert str(job.pk) == result.id
        assert job.status == Status.COMPLETED
        assert Effect.objects.filter(key="done").exists()
        assert not [each for each in callbacks if "finished" in str(each)]

    def test_a_task_that_breaks_the_transaction(self) -> None:
        Effect.objects.create(key="of the test")
        broken = sample.break_transaction.using(max_attempts=1).enqueue()
        after = sample.add.enqueue(1)
        run_jobs()
        broken.refresh()
        after.refresh()
        assert broken.status == TaskResultStatus.FAILED
        assert "IntegrityError" in broken.errors[0].exception_class_path
        assert after.return_value == 2
        assert Effect.objects.filter(key="of the test").exists()


@pytest.mark.django_db(transaction=True)
def test_it_runs_where_transactions_are_real_too() -> None:
    sample.effect.enqueue("a")
    broken = sample.break_transaction.using(max_attempts=1).enqueue()
    assert len(run_jobs()) == 2
    broken.refresh()
    assert broken.status == TaskResultStatus.FAILED
    assert Effect.objects.filter(key="a").exists()


def test_sync_and_async_tasks_run() -> None:
    sync, asynchronous = sample.add.enqueue(1, b=2), sample.async_add.enqueue(3, b=4)
    assert len(run_jobs()) == 2
    sync.refresh()
    asynchronous.refresh()
    assert (sync.return_value, asynchronous.return_value) == (3, 7)
    assert sync.worker_ids == ["run_jobs"]


def test_the_order_is_a_workers() -> None:
    for priority in (0, 5, -5):
        sample.effect.using(priority=priority).enqueue(str(priority))
    sample.effect.enqueue("0 again")
    run_jobs()
    keys = Effect.objects.order_by("pk").values_list("key", flat=True)
    assert list(keys) == ["5", "0", "0 again", "-5"]


def test_jobs_that_jobs_enqueue_run_too() -> None:
    sample.enqueue_more.enqueue(3)
    jobs = run_jobs()
    assert [job.return_value for job in jobs] == [3, 2, 1, 0]
    assert run_jobs() == []


def test_a_task_that_never_stops() -> None:
    sample.enqueue_more.enqueue(9)
    with pytest.raises(RuntimeError, match="has made 5 attempts.*enqueue_more"):
        run_jobs(limit=5)
    assert not Job.objects.filter(status=Status.PROCESSING).exists()
    assert len(run_jobs(limit=5)) == 5


def test_what_is_due_later_stays() -> None:
    later = sample.noop.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    failing = sample.fail.enqueue()
    (ran,) = run_jobs()
    assert (str(ran.pk), ran.status, ran.attempt) == (failing.id, Status.SCHEDULED, 1)
    later.refresh()
    assert later.status == TaskResultStatus.READY


def test_until_lets_time_pass() -> None:
    now = timezone.now()
    failing = sample.fail.enqueue()  # again after 60, and then 120 seconds
    early = sample.effect.using(run_after=now + timedelta(seconds=30)).enqueue("early")
    sample.effect.using(run_after=now + timedelta(seconds=90)).enqueue("middle")
    late = sample.effect.using(run_after=now + timedelta(days=2)).enqueue("late")
    jobs = run_jobs(until=now + timedelta(days=1))
    assert [str(job.pk) for job in jobs][:2] == [failing.id, early.id]
    assert jobs[0].status == Status.FAILED
    assert jobs[0].attempt == 3
    assert list(Effect.objects.order_by("pk").values_list("key", flat=True)) == ["early", "middle"]
    assert Job.objects.get(pk=late.id).status == Status.SCHEDULED
    delays = [line.data.get("delay") for line in JobLog.objects.filter(job=failing.id)]
    assert delays == [60, 120, None]


def test_until_ends_with_a_task_that_snoozes_for_ever() -> None:
    result = sample.snooze.enqueue(3600)
    run_jobs(until=timezone.now() + timedelta(hours=5, minutes=30))
    job = Job.objects.get(pk=result.id)
    assert (job.status, job.attempt, job.given_back) == (Status.SCHEDULED, 6, 6)


def test_until_ends_with_a_task_that_is_not_found() -> None:
    result = sample.noop.enqueue()
    Job.objects.update(task_path="tests.gone.away")
    run_jobs(until=timezone.now() + timedelta(minutes=10))
    job = Job.objects.get(pk=result.id)
    assert job.status == Status.SCHEDULED
    assert "tests.gone" in job.error


def test_until_is_a_time_as_the_settings_say(settings: Any) -> None:
    settings.USE_TZ = True
    with pytest.raises(ValueError, match="until must be an aware datetime"):
        run_jobs(until=datetime(2030, 1, 1))  # noqa: DTZ001
    settings.USE_TZ = False
    with pytest.raises(ValueError, match="until must be a naive datetime"):
        run_jobs(until=datetime.now().astimezone())


def test_where_times_are_naive(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    result = sample.fail.enqueue()
    run_jobs(until=datetime.now() + timedelta(hours=1))  # noqa: DTZ005
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == 3


def test_each_job_is_returned_once() -> None:
    sample.fail.enqueue()
    (job,) = run_jobs(until=timezone.now() + timedelta(days=1))
    assert job.attempt == 3


def test_every_way_to_end() -> None:
    ends = {
        sample.fail_for_good.enqueue().id: Status.FAILED,
        sample.fail.enqueue().id: Status.SCHEDULED,
        sample.retry_in.enqueue(60).id: Status.SCHEDULED,
        sample.snooze.enqueue(60).id: Status.SCHEDULED,
        sample.noop.enqueue().id: Status.COMPLETED,
    }
    assert {str(job.pk): job.status for job in run_jobs()} == ends


def test_an_atomic_task_is_all_or_nothing() -> None:
    kept = sample.effect_atomically.enqueue("kept")
    undone = sample.effect_atomically.enqueue("undone", error="no")
    run_jobs()
    kept.refresh()
    undone.refresh()
    assert kept.status == TaskResultStatus.SUCCESSFUL
    assert undone.status == TaskResultStatus.FAILED
    assert list(Effect.objects.values_list("key", flat=True)) == ["kept"]


def test_the_context_is_real() -> None:
    result = sample.describe.using(idempotency_key="k").enqueue(word="w")
    run_jobs()
    result.refresh()
    assert result.return_value == {
        "job_id": result.id,
        "attempt": 1,
        "max_attempts": 5,
        "idempotency_key": "tests.tasks_sample.describe:k",
        "cancelled": False,
        "status": "RUNNING",
        "word": "w",
    }


def test_notes_are_written() -> None:
    result = sample.tell.enqueue(2)
    run_jobs()
    job = Job.objects.get(pk=result.id)
    assert job.progress == {"done": 2, "total": 2, "message": "step 2"}
    lines = [(line.event, line.level, line.message) for line in job.log.all()]
    assert lines == [("note", "warning", "did 1"), ("note", "warning", "did 2")]


def test_what_is_cancelled_or_paused_does_not_run(caplog: pytest.LogCaptureFixture) -> None:
    jobqueue.cancel(sample.effect.enqueue("cancelled").id)
    sample.effect.using(queue_name="paused").enqueue("paused")
    sample.effect.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("later")
    Queue.objects.create(name="paused", paused_at=timezone.now() - timedelta(seconds=1))
    with caplog.at_level(logging.INFO, "jobqueue"):
        assert run_jobs() == []
    assert not Effect.objects.exists()
    said = caplog.messages[-1]
    assert "nothing to run: 1 jobs in queues that are paused; 1 jobs are due later" in said


def test_jobs_of_others_are_left_alone() -> None:
    sample.effect.enqueue("theirs")
    lifecycle.claim("default", uuid.uuid4(), "another", 1)
    assert run_jobs() == []


def test_ctrl_c_ends_the_tests() -> None:
    interrupted, after = sample.interrupt.enqueue(), sample.noop.enqueue()
    with pytest.raises(KeyboardInterrupt):
        run_jobs()
    interrupted.refresh()
    after.refresh()
    assert interrupted.errors[0].exception_class is KeyboardInterrupt
    assert after.attempts == 0


def test_a_rolled_back_job_does_not_run() -> None:
    with transaction.atomic():
        sample.effect.enqueue("undone")
        transaction.set_rollback(True)
    assert run_jobs() == []
