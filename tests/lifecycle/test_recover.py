"""Jobs whose worker is gone, and those whose time has come: taken back once, by whoever is first."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from jobqueue import lifecycle
from jobqueue.attempts import Pair
from jobqueue.models import Job, JobLog, Status
from tests.factories import JobFactory, ago, now
from tests.lifecycle.acts import (
    WORKER,
    answer_of,
    claimed,
    events,
    expire,
    held,
    ids,
    in_thread,
    is_close,
    local_time_too,
    make_due,
    outcome,
    pair,
    picture,
    row,
    together,
    until_somebody_waits_for_a_lock,
)


def backoff(settings, **options) -> None:
    options = {"backoff_base": 100, "backoff_max": 1000} | options
    settings.TASKS = {
        "default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
    }


@local_time_too
@pytest.mark.django_db
class TestRecover:
    def test_an_expired_lease_costs_the_attempt(self, settings):
        backoff(settings)
        attempt = claimed()
        expire(attempt)
        assert lifecycle.recover([attempt.id]) == [attempt.id]
        job = row(attempt)
        assert (job.status, job.attempt, job.given_back) == ("scheduled", 1, 0)
        assert (job.lease_owner, job.lease_expires_at, job.worker) == (None, None, WORKER)
        assert is_close(job.run_after, now() + timedelta(seconds=100), 20)
        said = f"WorkerLost: worker {WORKER} was lost during attempt 1: its lease expired"
        assert job.error == said
        line = job.log.get()
        assert (line.event, line.level, line.attempt) == ("lost", "warning", 1)
        assert (line.worker, line.message) == (WORKER, said)
        assert (line.data["exception"], line.data["reason"]) == (
            "jobqueue.WorkerLost",
            "its lease expired",
        )
        assert 90 <= line.data["delay"] <= 110

    def test_the_backoff_grows_with_what_was_spent_and_ends_somewhere(self, settings):
        backoff(settings)
        delays = []
        for attempts, given_back in [(1, 0), (3, 2), (2, 0), (3, 0), (1100, 0), (1100, 1099)]:
            job = JobFactory(
                processing=True, attempt=attempts, given_back=given_back, max_attempts=2000
            )
            expire(job)
            lifecycle.recover([job.pk])
            delays.append((row(job).run_after - now()).total_seconds())
        for delay, expected in zip(delays, (100, 100, 200, 400, 1000, 100), strict=True):
            assert expected * 0.9 - 10 < delay <= expected * 1.1

    def test_the_last_attempt_fails(self):
        attempt = claimed(max_attempts=1, idempotency_key="k")
        expire(attempt)
        told = []
        lifecycle.listen(told.extend)
        assert lifecycle.recover([attempt.id]) == [attempt.id]
        job = row(attempt)
        assert (job.status, job.lease_owner) == ("failed", None)
        assert "lost" in job.error
        assert is_close(job.finished_at, now())
        assert job.log.get().level == "error"

    def test_a_cancelled_job_is_let_go_and_stays_cancelled(self):
        attempt = claimed()
        lifecycle.cancel(attempt.id)
        expire(attempt)
        before = picture(attempt)
        assert lifecycle.recover([attempt.id]) == [attempt.id]
        assert picture(attempt) == before | {"lease_owner": None, "lease_expires_at": None}
        assert events(attempt) == ["cancelled", "repaired"]
        assert "never said" in JobLog.objects.get(event="repaired").message

    def test_a_lease_that_holds_is_left_whoever_asks(self):
        attempt = claimed()
        Job.objects.filter(pk=attempt.id).update(lease_expires_at=ago(-2))
        before = picture(attempt)
        assert lifecycle.recover([attempt.id]) == []
        assert not lifecycle.expired("default", now()).exists()
        assert picture(attempt) == before

    def test_it_takes_none_but_those_it_was_given(self):
        one, two = claimed(), claimed()
        expire(one, two)
        assert lifecycle.recover([one.id, uuid.uuid4()]) == [one.id]
        assert row(two).status == Status.PROCESSING

    def test_expired_finds_lost_and_stopping_ones_in_order(self):
        jobs = [JobFactory(**{state: True}) for state in ("processing", "stopping", "processing")]
        JobFactory(queued=True)
        JobFactory(processing=True)
        expire(*jobs)
        assert ids(lifecycle.expired("default", now())) == ids(jobs)

    def test_due_jobs_are_queued_and_keep_the_time_they_were_due(self):
        one, two, later = JobFactory.create_batch(3, scheduled=True)
        make_due(one, two)
        due_since = row(one).run_after
        assert set(ids(lifecycle.due("default", now()))) == {one.pk, two.pk}
        assert sorted(lifecycle.promote(ids([one, two, later]))) == ids([one, two])
        assert (row(one).status, row(one).run_after) == ("queued", due_since)
        assert row(later).status == Status.SCHEDULED
        assert events(one) == []

    def test_a_job_due_in_a_moment_is_not_due(self):
        job = JobFactory(scheduled=True, run_after=ago(-2))
        assert lifecycle.promote([job.pk]) == []


@pytest.mark.django_db
class TestTheDead:
    """What the supervisor writes for a worker whose process it saw die."""

    def mixed(self):
        owner = uuid.uuid4()
        JobFactory.create_batch(3)
        attempts = lifecycle.claim("default", owner, WORKER, 3)
        lifecycle.cancel(attempts[2].id)
        return owner, attempts, claimed()

    def test_lose_takes_all_that_it_had_without_waiting_for_a_lease(self):
        owner, attempts, other = self.mixed()
        taken = lifecycle.lose(owner, "process 7 was killed by signal 9")
        assert taken == [each.pair for each in attempts[:2]]
        for attempt in attempts[:2]:
            job = row(attempt)
            assert (job.status, job.given_back, events(attempt)) == ("scheduled", 0, ["lost"])
            assert "signal 9" in job.error
        assert (row(attempts[2]).status, row(attempts[2]).lease_owner) == ("cancelled", None)
        assert events(attempts[2]) == ["cancelled", "repaired"]
        assert row(other).status == Status.PROCESSING
        assert lifecycle.lose(owner, "again") == []

    def test_a_statement_that_commits_after_its_process_died_is_found_by_the_next_call(self):
        owner = uuid.uuid4()
        assert lifecycle.lose(owner, "died") == []
        JobFactory()
        lifecycle.claim("default", owner, WORKER, 1)
        assert len(lifecycle.lose(owner, "died")) == 1

    def test_hand_back_spends_nothing(self):
        owner, attempts, other = self.mixed()
        assert lifecycle.hand_back(owner, reason="stopped") == [each.pair for each in attempts[:2]]
        for attempt in attempts[:2]:
            job = row(attempt)
            assert (job.status, job.attempt, job.given_back, job.max_attempts) == (
                "queued",
                1,
                1,
                6,
            )
            assert (events(attempt), job.log.get().message) == (["released"], "stopped")
        # It was told to stop, and it has: nothing to remark.
        assert events(attempts[2]) == ["cancelled"]
        assert row(attempts[2]).lease_owner is None
        assert row(other).status == Status.PROCESSING

    def test_hand_back_of_some(self):
        owner, (one, two, _), _ = self.mixed()
        old = Pair(two.id, two.attempt + 1)
        assert lifecycle.hand_back(owner, {one.pair, old}) == [one.pair]
        assert row(two).status == Status.PROCESSING
        assert lifecycle.hand_back(owner, []) == []
        assert row(two).status == Status.PROCESSING

    @pytest.mark.parametrize("timeout", [1.5, None])
    def test_time_out_spends_the_attempt_of_those_it_names(self, timeout):
        owner, (one, two, cancelled), _ = self.mixed()
        Job.objects.filter(pk=one.id).update(timeout=timeout)
        assert lifecycle.time_out(owner, [one.pair, cancelled.pair]) == [one.pair]
        job = row(one)
        assert (job.status, job.given_back, events(one)) == ("scheduled", 0, ["timed_out"])
        assert job.error.startswith("TimedOut: the attempt ran longer than its timeout")
        assert ("1.5 s" in job.error) is (timeout is not None)
        assert job.log.get().data["exception"] == "jobqueue.TimedOut"
        assert row(cancelled).lease_owner is None
        assert row(two).status == Status.PROCESSING

    def test_the_last_attempt_fails_whichever_way_it_went(self):
        for act in ("lose", "time_out"):
            attempt = claimed(max_attempts=1)
            if act == "lose":
                lifecycle.lose(attempt.owner, "died")
            else:
                lifecycle.time_out(attempt.owner, [attempt.pair])
            assert row(attempt).status == Status.FAILED

    def test_more_than_a_batch(self, monkeypatch):
        monkeypatch.setattr("jobqueue.lifecycle.recovering.BATCH", 2)
        owner = uuid.uuid4()
        JobFactory.create_batch(5)
        attempts = lifecycle.claim("default", owner, WORKER, 5)
        assert lifecycle.lose(owner, "died") == [attempt.pair for attempt in attempts]


@pytest.mark.django_db
def test_the_end_of_a_lost_job_is_told_after_the_commit(django_capture_on_commit_callbacks):
    told = []
    lifecycle.listen(told.extend)
    last, other, gone = claimed(max_attempts=1), claimed(), claimed(max_attempts=1)
    expire(last, other)
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.recover([last.id, other.id])
        assert told == []
        lifecycle.lose(gone.owner, "died")
    assert told == [last.id, gone.id]


@pytest.mark.django_db(transaction=True)
class TestManyAtOnce:
    def test_twenty_recover_five_hundred_once_each(self):
        # Straight into the state: 500 claims are not what this is about.
        Job.objects.bulk_create(
            JobFactory.build(processing=True, lease_expires_at=ago(1)) for _ in range(500)
        )

        def recover() -> list[uuid.UUID]:
            wanted = ids(lifecycle.expired("default", now()).only("pk"))
            batches = [wanted[start : start + 100] for start in range(0, len(wanted), 100)]
            return [job_id for batch in batches for job_id in lifecycle.recover(batch)]

        answers = together(*[recover] * 20)
        taken = [job_id for answer in answers for job_id in answer]
        assert len(taken) == len(set(taken)) == 500
        rows = Job.objects.values_list("status", "attempt", "given_back", "lease_owner").distinct()
        assert list(rows) == [("scheduled", 1, 0, None)]
        lines = list(JobLog.objects.values_list("job_id", "event", "attempt"))
        assert len(lines) == 500
        assert set(lines) == {(job_id, "lost", 1) for job_id in taken}

    def test_due_ones_are_queued_once_each(self):
        jobs = JobFactory.create_batch(20, scheduled=True)
        make_due(*jobs)
        answers = together(*[lambda: lifecycle.promote(ids(jobs))] * 3)
        assert sorted(job_id for answer in answers for job_id in answer) == ids(jobs)

    @pytest.mark.postgres
    def test_no_lease_is_taken_while_its_row_is_locked(self):
        one, two = claimed(), claimed()
        expire(one, two)
        before = picture(one)
        with held(row(one)):
            assert lifecycle.recover([one.id, two.id]) == [two.id]
            assert picture(one) == before
        assert lifecycle.recover([one.id, two.id]) == [one.id]

    @pytest.mark.postgres
    def test_a_due_job_that_somebody_holds_waits_for_the_next_look(self):
        one, two = JobFactory.create_batch(2, scheduled=True)
        make_due(one, two)
        with held(one):
            assert lifecycle.promote(ids([one, two])) == [two.pk]
        assert lifecycle.promote(ids([one, two])) == [one.pk]

    @pytest.mark.postgres
    def test_the_repair_of_a_death_waits_a_moment_for_a_locked_row_but_not_for_ever(self):
        owner = uuid.uuid4()
        JobFactory.create_batch(2)
        one, two = lifecycle.claim("default", owner, WORKER, 2)
        with held(row(one)) as release:
            assert lifecycle.lose(owner, "died") == [two.pair]
            assert row(one).status == Status.PROCESSING
            release()
        assert lifecycle.lose(owner, "died") == [one.pair]

    @pytest.mark.postgres
    def test_a_row_that_is_free_again_within_the_moment_is_repaired_by_the_same_call(self):
        attempt = claimed()
        with held(row(attempt)) as release:
            repair = in_thread(lambda: lifecycle.lose(attempt.owner, "died"))
            until_somebody_waits_for_a_lock()
            release()
            taken = answer_of(*repair)
        # Where this machine was slower than the moment, the next call finds it.
        assert (taken or lifecycle.lose(attempt.owner, "died")) == [attempt.pair]

    def test_a_completion_and_the_repair_of_its_worker_at_once(self):
        for _ in range(5):
            attempt = claimed()
            settled, taken = together(
                lambda a=attempt: lifecycle.settle([outcome(a)]),
                lambda a=attempt: lifecycle.lose(a.owner, "died"),
            )
            if settled.written:
                assert (row(attempt).status, taken, events(attempt)) == ("completed", [], [])
            else:
                assert taken == [pair(attempt)]
                again = [] if settled.dropped else lifecycle.settle(settled.locked).dropped
                assert len(settled.dropped or again) == 1
                assert events(attempt) == ["lost", "fenced"]
