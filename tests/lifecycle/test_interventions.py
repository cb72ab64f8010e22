"""What people do: cancel, queue again, run now; one at a time or many."""

from __future__ import annotations

import logging
import time
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

import jobqueue
from jobqueue import conf, lifecycle
from jobqueue.attempts import Ending
from jobqueue.ids import uuid7
from jobqueue.models import Job, JobLog, Status
from jobqueue.task import attempts_of
from tests.app.models import Note
from tests.factories import JobFactory, JobLogFactory, now
from tests.lifecycle.acts import (
    STATUSES,
    WORKER,
    attempt_of,
    claimed,
    events,
    expire,
    held,
    ids,
    is_close,
    local_time_too,
    make_due,
    outcome,
    picture,
    row,
    together,
)


@pytest.mark.django_db
class TestCancel:
    @local_time_too
    @pytest.mark.parametrize("state", ["scheduled", "queued", "processing"])
    def test_it_is_cancelled_in_that_instant(self, state):
        job = JobFactory(**{state: True})
        assert jobqueue.cancel(job.pk, actor="Ann", reason="wrong order") is True
        after = row(job)
        assert (after.status, after.is_stopping) == ("cancelled", state == "processing")
        assert is_close(after.finished_at, now())
        line = after.log.get()
        assert (line.event, line.actor_name, line.message) == ("cancelled", "Ann", "wrong order")
        assert (line.data, line.attempt) == ({"from": state}, after.attempt)

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "stopping"])
    def test_what_has_ended_stays_as_it_is(self, state):
        job = JobFactory(**{state: True})
        before = picture(job)
        assert jobqueue.cancel(job.pk) is False
        assert (picture(job), events(job)) == (before, [])

    @pytest.mark.parametrize(
        "ending", [*Ending, "lost", "worker died", "told to stop", "handed back", "reconciled"]
    )
    def test_it_stays_cancelled_on_every_path_out_of_execution(self, ending):
        attempt = claimed(max_attempts=1)
        lifecycle.cancel(attempt.id)
        told = row(attempt)
        match ending:
            case "lost" | "reconciled":
                expire(attempt)
                assert lifecycle.recover([attempt.id]) == [attempt.id]
            case "worker died":
                assert lifecycle.lose(attempt.owner, "killed") == []
            case "told to stop":
                assert lifecycle.time_out(attempt.owner, [attempt.pair]) == []
            case "handed back":
                assert lifecycle.hand_back(attempt.owner) == []
            case _:
                assert len(lifecycle.settle([outcome(attempt, ending)]).dropped) == 1
        job = row(attempt)
        assert (job.status, job.lease_owner) == ("cancelled", None)
        assert (job.finished_at, job.attempt, job.error) == (told.finished_at, 1, "")
        # Nothing brings it back.
        lifecycle.promote([job.pk])
        assert lifecycle.claim("default", uuid.uuid4(), WORKER, 10) == []
        assert lifecycle.recover([job.pk]) == []

    def test_the_error_of_what_still_ran_is_kept_in_the_log(self):
        attempt = claimed()
        lifecycle.cancel(attempt.id)
        lifecycle.settle([outcome(attempt, Ending.ERRORED, data={"traceback": "line 1"})])
        line = JobLog.objects.get(event="fenced")
        assert line.message == "errored after it had been cancelled; dropped"
        assert line.data == {"error": "ValueError: no", "traceback": "line 1"}

    def test_a_cancelled_job_is_neither_due_nor_run_now(self):
        job = JobFactory(scheduled=True)
        lifecycle.cancel(job.pk)
        make_due(job)
        assert lifecycle.promote([job.pk]) == []
        assert lifecycle.run_now(job.pk) is False

    def test_it_is_told_once_it_is_committed(self, django_capture_on_commit_callbacks):
        told = []
        lifecycle.listen(told.extend)
        job = JobFactory()
        with django_capture_on_commit_callbacks(execute=True):
            lifecycle.cancel(job.pk)
            lifecycle.cancel(job.pk)
            assert told == []
        assert told == [job.pk]

    @pytest.mark.parametrize("job_id", [uuid.UUID(int=7), str(uuid.UUID(int=7)), "no id", ""])
    def test_a_job_that_is_not_there(self, job_id):
        for act in (jobqueue.cancel, jobqueue.requeue, lifecycle.run_now):
            with pytest.raises(Job.DoesNotExist):
                act(job_id)

    def test_an_id_may_be_text(self):
        job = JobFactory()
        assert jobqueue.cancel(str(job.pk)) is True


@pytest.mark.django_db
class TestActor:
    def log_of(self, actor):
        job = JobFactory()
        lifecycle.cancel(job.pk, actor=actor)
        return row(job).log.get()

    def test_a_user_is_kept_as_text_and_outlives_the_row(self):
        user = get_user_model().objects.create_user("ann")
        line = self.log_of(user)
        key = str(user.pk)
        user.delete()
        line.refresh_from_db()
        assert (line.actor_id, line.actor_name) == (key, "ann")

    def test_a_name_the_application_and_anything_else(self):
        assert (self.log_of("cron").actor_id, self.log_of("cron").actor_name) == ("", "cron")
        assert (self.log_of(None).actor_id, self.log_of(None).actor_name) == ("", "")
        job = JobFactory()
        assert self.log_of(job).actor_id == str(job.pk)

    def test_text_that_a_database_refuses(self):
        job = JobFactory()
        lifecycle.cancel(job.pk, actor="a\0b" + "c" * 500, reason="\0\ud800" + "d" * 9_000)
        line = row(job).log.get()
        assert line.actor_name.startswith("a\\x00b")
        assert len(line.actor_name) == 200
        assert line.message.startswith("\\x00\\ud800d")
        assert len(line.message) == 2_000


@pytest.mark.django_db
class TestRequeue:
    @local_time_too
    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_it_is_queued_once_more_and_the_log_keeps_how_it_ended(self, state):
        job = JobFactory(**{state: True}, return_value={"a": 1}, progress={"done": 1})
        job.refresh_from_db()
        assert jobqueue.requeue(job.pk, actor="Ann", reason="again") is True
        after = row(job)
        assert (after.status, after.finished_at, after.error) == ("queued", None, "")
        assert (after.return_value, after.progress) == (None, None)
        assert is_close(after.run_after, now())
        assert after.started_at == job.started_at
        line = after.log.get()
        assert (line.event, line.actor_name, line.message) == ("requeued", "Ann", "again")
        assert line.data == {
            "from": state,
            "worker": job.worker,
            "attempted_at": job.attempted_at.isoformat(),
            "finished_at": job.finished_at.isoformat(),
            "return_value": {"a": 1},
            "error": job.error,
        }

    @pytest.mark.parametrize("state", ["scheduled", "queued", "processing", "stopping"])
    def test_what_has_not_ended_or_not_let_go_is_refused(self, state):
        job = JobFactory(**{state: True})
        before = picture(job)
        assert jobqueue.requeue(job.pk) is False
        assert (picture(job), events(job)) == (before, [])

    def test_a_cancelled_run_that_has_let_go_may_be_queued_again(self):
        attempt = claimed()
        lifecycle.cancel(attempt.id)
        assert lifecycle.requeue(attempt.id) is False
        lifecycle.settle([outcome(attempt)])
        assert lifecycle.requeue(attempt.id) is True

    @pytest.mark.parametrize(
        ("attempt", "max_attempts", "attempts", "expected"),
        [(1, 5, 1, 5), (5, 5, 1, 6), (7, 5, 1, 8), (5, 5, 3, 8), (1, 5, 10, 11), (0, 5, 1, 5)],
    )
    def test_there_is_an_attempt_left_then(self, attempt, max_attempts, attempts, expected):
        job = JobFactory(failed=True, attempt=attempt, max_attempts=max_attempts)
        lifecycle.requeue(job.pk, attempts=attempts)
        assert row(job).max_attempts == expected
        assert lifecycle.claim("default", uuid.uuid4(), WORKER, 1)[0].attempt == attempt + 1

    @pytest.mark.parametrize("attempts", [0, -1])
    def test_no_attempt_is_no_requeue(self, attempts):
        job = JobFactory(failed=True)
        with pytest.raises(ValueError, match="attempts must be 1 or more"):
            lifecycle.requeue(job.pk, attempts=attempts)
        assert row(job).status == Status.FAILED

    def test_the_key_stays_the_jobs(self):
        job = JobFactory(completed=True, idempotency_key="k")
        lifecycle.requeue(job.pk)
        assert row(job).idempotency_key == "k"


@pytest.mark.django_db
class TestRunNow:
    @local_time_too
    def test_a_scheduled_job_need_not_wait(self):
        job = JobFactory(scheduled=True)
        assert lifecycle.run_now(job.pk, actor="Ann") is True
        assert row(job).status == Status.QUEUED
        assert is_close(row(job).run_after, now())
        line = row(job).log.get()
        assert (line.event, line.actor_name, line.message) == ("note", "Ann", "run now")

    @pytest.mark.parametrize("state", [s for s in STATUSES if s != "scheduled"])
    def test_others_are_refused(self, state):
        job = JobFactory(**{state: True})
        before = picture(job)
        assert lifecycle.run_now(job.pk) is False
        assert (picture(job), events(job)) == (before, [])


@pytest.mark.django_db
class TestMany:
    def test_cancel_changes_what_it_may_and_counts_the_rest(self):
        jobs = {state: JobFactory.create_batch(2, **{state: True}) for state in STATUSES}
        before = {job.pk: picture(job) for each in jobs.values() for job in each}
        counts = Job.objects.all().cancel(actor="Ann", reason="all")
        assert (counts.changed, counts.total_skipped) == (6, 8)
        allowed = "only these can be cancelled: processing, queued, scheduled"
        assert counts.skipped == {
            f"it is completed; {allowed}": 2,
            f"it is failed; {allowed}": 2,
            f"it is cancelled; {allowed}": 4,
        }
        for state in ("completed", "failed", "cancelled", "stopping"):
            for job in jobs[state]:
                assert picture(job) == before[job.pk]
        again = Job.objects.all().cancel()
        assert (again.changed, again.total_skipped) == (0, 14)
        assert JobLog.objects.count() == 6

    def test_requeue_changes_what_it_may_and_counts_the_rest(self):
        for state in STATUSES:
            JobFactory(**{state: True})
        counts = Job.objects.all().requeue()
        assert (counts.changed, counts.total_skipped) == (3, 4)
        assert any("not let go" in reason for reason in counts.skipped)

    def test_the_filter_that_the_change_itself_moves_rows_out_of(self, monkeypatch):
        monkeypatch.setattr("jobqueue.lifecycle.batches.BATCH", 2)
        jobs = JobFactory.create_batch(5, queued=True)
        other = JobFactory(queued=True, queue_name="other")
        queued = Job.objects.filter(status=Status.QUEUED, queue_name="default")
        assert queued.cancel().changed == 5
        assert Job.objects.filter(pk__in=ids(jobs), status=Status.CANCELLED).count() == 5
        assert row(other).status == Status.QUEUED

    def test_slices_and_other_orders_work_too(self):
        jobs = JobFactory.create_batch(4, queued=True)
        counts = Job.objects.order_by("-pk")[:2].cancel()
        assert counts.changed == 2
        cancelled = Job.objects.filter(status=Status.CANCELLED).order_by("pk")
        assert ids(cancelled) == ids(jobs[2:])

    def test_none(self):
        assert Job.objects.none().cancel() == lifecycle.Counts()


def batches_of(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.lifecycle.batches.BATCH", number)


#: What can be done to many, a state in which it may, and one in which it may not.
MANY = {
    "cancel": (lifecycle.cancel_many, "queued", "failed"),
    "requeue": (lifecycle.requeue_many, "failed", "queued"),
    "run now": (lifecycle.run_now_many, "scheduled", "queued"),
    "purge": (lifecycle.purge_many, "completed", "queued"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("verb", MANY)
class TestEachOfMany:
    def test_the_caller_has_a_say_in_each_batch(self, verb, monkeypatch):
        change, right, wrong = MANY[verb]
        batches_of(3, monkeypatch)
        JobFactory.create_batch(5, **{right: True})
        JobFactory.create_batch(2, **{wrong: True})
        told = []
        counts = change(Job.objects.all(), actor="Ann", reason="all", on_batch=told.append)
        assert [(each.changed, each.total_skipped) for each in told] == [(3, 0), (2, 1), (0, 1)]
        assert (counts.changed, counts.total_skipped, counts.left) == (5, 2, 0)
        assert next(iter(counts.skipped)).startswith(f"it is {wrong}; only these can be ")

    def test_what_it_raises_undoes_that_batch_alone(self, verb, monkeypatch):
        change, right, _ = MANY[verb]
        batches_of(2, monkeypatch)
        jobs = JobFactory.create_batch(6, **{right: True})
        before = [picture(job) for job in jobs]
        told = []

        def refuse(counts: lifecycle.Counts) -> None:
            told.append(counts)
            if len(told) == 2:
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            change(Job.objects.all(), on_batch=refuse)
        assert [picture(job) for job in jobs[2:]] == before[2:]
        assert not Job.objects.filter(pk__in=ids(jobs[:2]), status=jobs[0].status).exists()
        assert JobLog.objects.count() == (0 if verb == "purge" else 2)

    def test_no_batch_begins_when_the_time_is_up(self, verb, monkeypatch):
        change, right, _ = MANY[verb]
        batches_of(2, monkeypatch)
        JobFactory.create_batch(5, **{right: True})
        assert change(Job.objects.all(), until=time.monotonic() - 1) == lifecycle.Counts(left=5)
        clock = iter([0.0, 1.0, 2.0])
        monkeypatch.setattr("jobqueue.lifecycle.batches.time.monotonic", lambda: next(clock))
        counts = change(Job.objects.all(), until=1.5)
        assert (counts.changed, counts.left) == (4, 1)

    def test_one_that_has_gone_meanwhile_is_counted(self, verb, monkeypatch):
        change, right, _ = MANY[verb]
        batches_of(1, monkeypatch)
        first, second = JobFactory.create_batch(2, **{right: True})
        counts = change(
            Job.objects.all(), on_batch=lambda _: Job.objects.filter(pk=second.pk).delete()
        )
        assert counts == lifecycle.Counts(1, {"it has been removed meanwhile": 1})
        assert first.pk < second.pk

    def test_statements_grow_with_batches_and_not_with_jobs(self, verb):
        change, right, _ = MANY[verb]

        def statements(number: int) -> int:
            Job.objects.all().delete()
            _make(number, right)
            with CaptureQueriesContext(connection) as queries:
                assert change(Job.objects.all(), actor="Ann").changed == number
            return len(queries)

        few = statements(20)
        # SQLite takes no more than so many values in one INSERT, and Django deletes a hundred at once.
        assert statements(490) <= few + (30 if connection.vendor == "sqlite" else 10)


def _make(number: int, state: str) -> None:
    one = JobFactory.build(**{state: True})
    values = {field.attname: getattr(one, field.attname) for field in Job._meta.fields}
    made = [Job(**values | {"id": uuid7()}) for _ in range(number)]
    Job.objects.bulk_create(made, batch_size=500)


@pytest.mark.django_db
@pytest.mark.parametrize("verb", MANY)
def test_thousands_in_seconds(verb):
    change, right, _ = MANY[verb]
    # SQLite makes rows slowly, and batches are the same ones.
    number = 2_500 if connection.vendor == "sqlite" else 10_000
    _make(number, right)
    began = time.monotonic()
    assert change(Job.objects.all(), actor="Ann", reason="all of them").changed == number
    assert time.monotonic() - began < 30.0, "generous: a quiet machine takes a tenth of it"


@pytest.mark.django_db
class TestRequeueMany:
    def test_as_many_attempts_as_the_task_gives(self):
        one = JobFactory(failed=True, attempt=3, max_attempts=3)
        other = JobFactory(failed=True, attempt=1, max_attempts=5, task_path="gone.task")
        given = {one.task_path: 4, "gone.task": 2}
        counts = lifecycle.requeue_many(Job.objects.all(), attempts=given.__getitem__)
        assert counts.changed == 2
        assert [row(one).max_attempts, row(other).max_attempts] == [7, 5]

    def test_a_number_of_attempts(self):
        job = JobFactory(failed=True, attempt=3, max_attempts=3)
        lifecycle.requeue_many(Job.objects.all(), attempts=3)
        assert row(job).max_attempts == 6
        with pytest.raises(ValueError, match="attempts must be 1 or more"):
            lifecycle.requeue_many(Job.objects.all(), attempts=0)

    def test_the_log_keeps_how_each_ended(self):
        JobFactory.create_batch(3, completed=True, return_value={"a": [1]})
        lifecycle.requeue_many(Job.objects.all(), actor="Ann", reason="again")
        for line in JobLog.objects.all():
            assert (line.event, line.actor_name, line.message) == ("requeued", "Ann", "again")
            assert (line.data["from"], line.data["return_value"]) == ("completed", {"a": [1]})

    def test_tasks_own_numbers(self):
        assert attempts_of("tests.tasks_sample.nothing") == conf.options().max_attempts
        assert attempts_of("nowhere.at.all") == conf.options().max_attempts


@pytest.mark.django_db
class TestPurge:
    def test_ended_jobs_go_with_their_log(self):
        kept = JobFactory.create_batch(2, queued=True)
        for state in ("completed", "failed", "cancelled"):
            JobLogFactory(job=JobFactory(**{state: True}))
        stopping = JobFactory(stopping=True)
        counts = lifecycle.purge_many(Job.objects.all())
        assert counts.changed == 3
        assert counts.skipped == {
            "it is queued; only these can be purged: cancelled, completed, failed": 2,
            "its cancelled run has not let go yet; try again when it has": 1,
        }
        assert set(Job.objects.values_list("pk", flat=True)) == {*ids(kept), stopping.pk}
        assert not JobLog.objects.exists()

    def test_rows_that_others_refer_to_are_left(self):
        jobs = JobFactory.create_batch(6, completed=True)
        Note.objects.create(text="mine", job_id=jobs[2].pk)
        counts = lifecycle.purge_many(Job.objects.all())
        assert (counts.changed, counts.skipped) == (5, {"a row of another table refers to it": 1})
        assert list(Job.objects.all()) == [jobs[2]]

    def test_python_tells_who_did_it(self, caplog):
        JobFactory(completed=True)
        with caplog.at_level(logging.INFO, "jobqueue"):
            lifecycle.purge_many(Job.objects.all(), actor="Ann", reason="a wrong import")
        assert "1 jobs were purged by Ann: a wrong import" in caplog.text

    def test_a_key_is_free_again(self):
        JobFactory(completed=True, idempotency_key="k")
        lifecycle.purge_many(Job.objects.all())
        JobFactory(idempotency_key="k")


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
class TestHeldRows:
    @pytest.mark.parametrize("verb", MANY)
    def test_a_row_that_stays_locked_is_waited_for_until_the_time_is_up(self, verb, monkeypatch):
        change, right, _ = MANY[verb]
        batches_of(2, monkeypatch)
        jobs = JobFactory.create_batch(6, **{right: True})
        with held(jobs[3]):
            counts = change(Job.objects.all(), until=time.monotonic() + 0.5)
        assert (counts.changed, counts.left) == (2, 4)
        assert change(Job.objects.all(), until=time.monotonic() + 20).changed == 4


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_cancel_and_claim(self):
        """Cancelled before the start, and it never starts; or while it runs, and it is told."""
        for _ in range(10):
            job = JobFactory()
            told, attempts = together(
                lambda j=job: lifecycle.cancel(j.pk),
                lambda: lifecycle.claim("default", uuid.uuid4(), WORKER, 1),
            )
            after = row(job)
            assert (told, after.status) == (True, "cancelled")
            assert after.is_stopping is (len(attempts) == 1)

    def test_cancel_and_completion(self):
        for _ in range(10):
            attempt = claimed()
            told, settled = together(
                lambda a=attempt: lifecycle.cancel(a.id),
                lambda a=attempt: lifecycle.settle([outcome(a)], wait=True),
            )
            job = row(attempt)
            assert job.lease_owner is None
            assert job.status == ("cancelled" if told else "completed")
            assert len(settled.dropped) == int(told)

    def test_many_requeues_queue_it_once(self):
        job = JobFactory(failed=True)
        answers = together(*[lambda: lifecycle.requeue(job.pk)] * 4)
        assert sorted(answers) == [False, False, False, True]
        assert events(job) == ["requeued"]

    @pytest.mark.postgres
    def test_people_wait_for_a_locked_row(self):
        job = JobFactory()
        with transaction.atomic(), held(job) as release:
            release()
            assert lifecycle.cancel(job.pk) is True

    def test_two_who_cancel_many_in_other_orders_do_not_wait_for_each_other(self):
        JobFactory.create_batch(30)
        counts = together(
            lambda: Job.objects.order_by("pk").cancel(),
            lambda: Job.objects.order_by("-pk").cancel(),
        )
        assert sum(each.changed for each in counts) == 30


@pytest.mark.django_db
def test_attempts_that_were_not_spent_do_not_shorten_the_life_after_a_requeue():
    attempt = claimed(max_attempts=1)
    lifecycle.settle([outcome(attempt, Ending.RELEASED)])
    (second,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
    lifecycle.settle([outcome(second, Ending.ERRORED)])
    lifecycle.requeue(attempt.id)
    third = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)[0]
    assert (third.attempt, third.given_back, third.max_attempts) == (3, 1, 3)
    assert attempt_of(row(attempt)).pair == third.pair
    assert row(attempt).lease_expires_at - now() < timedelta(seconds=31)
