"""The claim: who gets which jobs, how many, in which order, and what it writes."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from jobqueue import lifecycle
from jobqueue.attempts import Ending, Place
from jobqueue.models import Job, Queue, Status
from jobqueue.values import Unreadable
from tests.factories import JobFactory, QueueFactory, ago, now
from tests.lifecycle.acts import (
    WORKER,
    claimed,
    held,
    ids,
    is_close,
    local_time_too,
    new_job,
    outcome,
    picture,
    point_at,
    reading_few_digits,
    row,
    together,
)


def claim(limit: int = 100, queue: str = "default") -> list[uuid.UUID]:
    return ids(lifecycle.claim(queue, uuid.uuid4(), WORKER, limit))


@pytest.mark.django_db
class TestWhatIsClaimed:
    def test_the_most_urgent_come_first_and_then_the_oldest(self):
        jobs = [JobFactory(priority=priority) for priority in (0, 10, -10, 10, 0, 100, -100)]
        expected = sorted(jobs, key=lambda job: (-job.priority, job.pk))
        assert claim(3) == ids(expected[:3])
        assert claim(100) == ids(expected[3:])

    def test_behind_a_place_in_the_line(self):
        jobs = [JobFactory(priority=priority) for priority in (5, 0, 0, 5, 0, -5)]
        found = lifecycle.claim("default", uuid.uuid4(), WORKER, 10, behind=Place(0, jobs[1].pk))
        assert ids(found) == [jobs[2].pk, jobs[4].pk]
        assert claim() == [jobs[0].pk, jobs[3].pk, jobs[1].pk, jobs[5].pk]

    def test_above_a_priority(self):
        jobs = [JobFactory(priority=priority) for priority in (5, 0, 9, 5, -5)]
        found = lifecycle.claim("default", uuid.uuid4(), WORKER, 2, above=0)
        assert ids(found) == [jobs[2].pk, jobs[0].pk]
        assert claim() == [jobs[3].pk, jobs[1].pk, jobs[4].pk]

    def test_these_and_no_others(self):
        one, _, three = JobFactory.create_batch(3)
        elsewhere, gone = JobFactory(queue_name="other"), JobFactory(completed=True)
        wanted = [three.pk, elsewhere.pk, gone.pk, uuid.uuid4(), one.pk]
        found = lifecycle.claim("default", uuid.uuid4(), WORKER, 10, ids=wanted)
        assert ids(found) == [one.pk, three.pk]
        assert lifecycle.claim("default", uuid.uuid4(), WORKER, 10, ids=[]) == []

    def test_no_more_than_the_limit(self):
        JobFactory.create_batch(5)
        assert len(claim(2)) == 2
        assert Job.objects.filter(status=Status.PROCESSING).count() == 2
        assert claim(0) == claim(-1) == []

    def test_one_queue_and_nothing_but_queued_jobs(self):
        for state in ("scheduled", "processing", "completed", "failed", "cancelled", "stopping"):
            JobFactory(**{state: True})
        JobFactory(queue_name="other")
        mine = JobFactory()
        assert claim() == [mine.pk]
        assert claim() == []

    def test_it_says_what_the_row_says(self):
        key = {"idempotency_key": "k", "task_path": "tests.tasks_sample.other"}
        new = new_job(args=[1, 2.0, None, 1e16], kwargs={"a": {"b": [True]}}, priority=7, **key)
        lifecycle.enqueue([new])
        owner = uuid.uuid4()
        (attempt,) = lifecycle.claim("default", owner, WORKER, 1)
        job = row(attempt)
        for name in ("task_path", "args", "kwargs", "queue_name", "priority", "attempt", "timeout"):
            assert getattr(attempt, name) == getattr(job, name), name
        for name in ("given_back", "max_attempts", "idempotency_key", "run_after", "enqueued_at"):
            assert getattr(attempt, name) == getattr(job, name), name
        assert (attempt.args, attempt.kwargs) == ([1, 2.0, None, 1e16], {"a": {"b": [True]}})
        assert [type(each) for each in attempt.args] == [int, float, type(None), float]
        assert (attempt.owner, attempt.worker) == (job.lease_owner, job.worker) == (owner, WORKER)

    @local_time_too
    def test_what_cannot_be_read_is_claimed_with_the_others(self):
        new = [
            new_job(),
            new_job(args=[1, 10**1000], kwargs={"a": 1}),
            new_job(kwargs={"a": {"b": [10**1000]}}),
            new_job(args=[2]),
        ]
        lifecycle.enqueue(new)
        with reading_few_digits():
            found = lifecycle.claim("default", uuid.uuid4(), WORKER, 10)
        assert ids(found) == ids(new)
        assert [found[0].args, found[3].args] == [[], [2]]
        assert isinstance(found[1].args, Unreadable)
        assert found[1].kwargs == {"a": 1}
        assert isinstance(found[2].kwargs, Unreadable)
        assert found[2].args == []
        assert "640 digits" in found[1].args.reason
        for attempt in found:
            assert (row(attempt).status, row(attempt).attempt) == (Status.PROCESSING, 1)
        assert row(found[1]).args == [1, 10**1000]

    def test_each_claim_counts_once_and_the_first_start_stays(self):
        first = claimed()
        started = row(first).started_at
        lifecycle.settle([outcome(first, Ending.ERRORED, delay=0)])
        lifecycle.promote([first.id])
        (second,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
        assert (second.attempt, second.spent, second.started_at) == (2, 2, started)
        assert second.attempted_at >= first.attempted_at

    @local_time_too
    def test_times_are_the_databases_and_the_lease_is_as_long_as_it_says(self, settings):
        settings.TASKS = {
            "default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": {"lease": 120}}
        }
        job = row(claimed())
        assert is_close(job.attempted_at, now())
        assert is_close(job.lease_expires_at, now() + timedelta(seconds=120))
        wait = job.attempted_at - job.run_after
        assert 59 <= wait.total_seconds() <= 90


@local_time_too
@pytest.mark.django_db
class TestPause:
    def pause(self, **values):
        return QueueFactory(name="default", paused_at=ago(60), **values)

    def test_a_paused_queue_gives_nothing(self):
        JobFactory()
        other = JobFactory(queue_name="other")
        self.pause()
        assert claim() == []
        assert claim(queue="other") == [other.pk]

    def test_a_pause_whose_end_has_passed_is_none(self):
        job = JobFactory()
        self.pause(paused_until=ago(1))
        assert claim() == [job.pk]

    def test_a_pause_whose_end_is_to_come_holds(self):
        JobFactory()
        self.pause(paused_until=ago(-60))
        assert claim() == []

    def test_a_queue_that_was_resumed_gives_again(self):
        job = JobFactory()
        QueueFactory(name="default", paused_at=None)
        assert claim() == [job.pk]
        assert Queue.objects.count() == 1


@pytest.mark.django_db
def test_no_claim_can_break_a_constraint():
    """What could not be claimed would stand in front of all others; it cannot be stored."""
    for values in ({"attempt": 5}, {"attempt": 6}, {"max_attempts": 0}):
        for state in ("queued", "scheduled"):
            with pytest.raises(IntegrityError), transaction.atomic():
                JobFactory(**{state: True}, **values)
    job = JobFactory(attempt=4, given_back=4)
    assert claim() == [job.pk]


@pytest.mark.django_db(transaction=True)
class TestClaimsAtOnce:
    def test_every_job_has_one_owner(self):
        JobFactory.create_batch(60)

        def take_all() -> list[tuple[uuid.UUID, int]]:
            owner, got = uuid.uuid4(), []
            while batch := lifecycle.claim("default", owner, WORKER, 7):
                got += [(attempt.id, attempt.attempt) for attempt in batch]
            return got

        got = [pair for answer in together(*[take_all] * 4) for pair in answer]
        assert len(got) == len(set(got)) == 60
        assert set(Job.objects.values_list("attempt", "status")) == {(1, "processing")}

    @pytest.mark.postgres
    def test_a_row_that_somebody_holds_is_passed_over(self):
        first, second = JobFactory.create_batch(2)
        before = picture(first)
        with held(first):
            assert claim() == [second.pk]
            assert picture(first) == before
        assert claim() == [first.pk]

    @pytest.mark.postgres
    def test_a_row_that_a_foreign_key_holds_is_not(self):
        """Inserting a row that points at a job locks it FOR KEY SHARE: no reason to wait."""
        job = JobFactory()
        with transaction.atomic():
            point_at(job)
            (answer,) = together(claim)
        assert answer == [job.pk]
