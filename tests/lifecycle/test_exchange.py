"""An exchange: what has ended is settled and what is next is claimed, both or neither."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import DatabaseError

from jobqueue import lifecycle
from jobqueue.attempts import Ending, Outcome
from jobqueue.lifecycle import Exchange
from jobqueue.models import Job, Status
from jobqueue.values import Unreadable
from tests.factories import JobFactory, QueueFactory, now
from tests.lifecycle.acts import (
    WORKER,
    claimed,
    events,
    expire,
    held,
    ids,
    local_time_too,
    new_job,
    outcome,
    reading_few_digits,
    row,
)


def exchange(outcomes: list[Outcome], limit: int = 10, **values: Any) -> Exchange:
    return lifecycle.exchange(outcomes, "default", uuid.uuid4(), WORKER, limit, **values)


def settle_all(done: Exchange) -> lifecycle.Settled:
    """What a worker does with an exchange: the rest is settled after it."""
    rest = lifecycle.settle(done.rest)
    done.settled.written += rest.written
    done.settled.dropped += rest.dropped
    done.settled.locked += rest.locked
    return done.settled


@pytest.mark.django_db
class TestExchange:
    @local_time_too
    def test_it_settles_and_claims(self):
        ended = [claimed(), claimed()]
        waiting = [JobFactory(priority=priority) for priority in (0, 5, 1)]
        done = exchange(
            [outcome(ended[0], return_value={"text": 'a"\\{},NULL'}), outcome(ended[1])], limit=2
        )
        assert [job.id for job in done.claimed] == [waiting[1].pk, waiting[2].pk]
        assert {each.attempt.id for each, _ in settle_all(done).written} == set(ids(ended))
        for attempt in ended:
            assert row(attempt).status == Status.COMPLETED
            assert row(attempt).lease_owner is None
        assert row(ended[0]).return_value == {"text": 'a"\\{},NULL'}
        assert row(ended[1]).return_value is None
        assert row(waiting[0]).status == Status.QUEUED

    @local_time_too
    def test_what_it_claims_is_what_a_claim_says(self):
        new = [new_job(args=[1, 2.0, None, 1e16], kwargs={"é": {"b": [True]}}, timeout=None)]
        new += [new_job(idempotency_key="k", timeout=1.5, priority=-100)]
        for job in new:
            lifecycle.enqueue([job])
        done = exchange([outcome(attempt) for attempt in [claimed(priority=100)]])
        assert [attempt.id for attempt in done.claimed] == [job.id for job in new]
        for attempt in done.claimed:
            job = row(attempt)
            assert repr(attempt.args) == repr(job.args)
            assert attempt.kwargs == job.kwargs
            for name in (
                *("task_path", "queue_name", "priority", "attempt", "given_back", "max_attempts"),
                *("timeout", "idempotency_key", "run_after", "enqueued_at", "started_at"),
                "attempted_at",
            ):
                assert getattr(attempt, name) == getattr(job, name), name
            assert attempt.owner == job.lease_owner

    def test_every_ending_finds_its_way(self):
        endings = list(Ending)
        ended = {ending: claimed() for ending in endings}
        settled = settle_all(exchange([outcome(ended[ending], ending) for ending in endings]))
        assert len(settled.written) == len(endings)
        for ending in endings:
            alone = claimed(priority=100)
            lifecycle.settle([outcome(alone, ending)])
            # A released one may have been claimed again by the same exchange.
            if ending is not Ending.RELEASED:
                assert row(ended[ending]).status == row(alone).status

    def test_the_fence_holds(self):
        late, mine = claimed(), claimed()
        expire(late)
        lifecycle.recover([late.id])
        settled = settle_all(exchange([outcome(late), outcome(mine)]))
        assert [each.attempt.id for each in settled.dropped] == [late.id]
        assert row(late).status == Status.SCHEDULED
        assert "fenced" in events(late)

    @pytest.mark.parametrize("limit", [0, 5])
    def test_nothing_to_claim(self, limit):
        attempt = claimed()
        done = exchange([outcome(attempt)], limit=limit)
        assert done.claimed == []
        assert len(settle_all(done).written) == 1

    def test_nothing_that_has_completed(self):
        waiting = JobFactory()
        done = exchange([outcome(claimed(priority=9), Ending.ERRORED, delay=60)])
        assert ids(done.claimed) == [waiting.pk]
        assert [status for _, status in settle_all(done).written] == [Status.SCHEDULED]

    def test_a_paused_queue_gives_nothing(self):
        attempt, waiting = claimed(), JobFactory()
        QueueFactory(name="default", paused_at=now())
        done = exchange([outcome(attempt)])
        assert done.claimed == []
        assert exchange([outcome(attempt)], ids=[waiting.pk]).claimed == []
        assert row(attempt).status == Status.COMPLETED

    def test_those_jobs_and_no_others(self):
        attempt = claimed()
        one, _, three = JobFactory.create_batch(3)
        elsewhere, gone = JobFactory(queue_name="other"), JobFactory(completed=True)
        wanted = [three.pk, elsewhere.pk, gone.pk, uuid.uuid4(), attempt.id, one.pk]
        done = exchange([outcome(attempt)], ids=wanted)
        assert ids(done.claimed) == [one.pk, three.pk]
        assert Job.objects.filter(status=Status.QUEUED).count() == 2

    def test_what_cannot_be_read_is_claimed_with_the_others(self):
        ended = claimed()
        new = [new_job(args=[10**1000]), new_job(args=[1])]
        lifecycle.enqueue(new)
        with reading_few_digits():
            done = exchange([outcome(ended)])
        assert ids(done.claimed) == ids(new)
        assert isinstance(done.claimed[0].args, Unreadable)
        assert done.claimed[1].args == [1]
        settle_all(done)
        assert row(ended).status == Status.COMPLETED

    def test_none_of_it_if_an_outcome_cannot_be_written(self):
        good, bad = claimed(), claimed()
        JobFactory()
        with pytest.raises((DatabaseError, ValueError, TypeError)):
            exchange([outcome(good), outcome(bad, return_value={1, 2})])
        assert row(good).status == row(bad).status == Status.PROCESSING
        assert Job.objects.filter(status=Status.QUEUED).count() == 1


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_rows_that_others_hold_are_passed_over():
    mine, locked = claimed(), claimed()
    waiting, taken = JobFactory(), JobFactory()
    with held(row(locked), taken):
        done = exchange([outcome(mine), outcome(locked)])
        assert ids(done.claimed) == [waiting.pk]
        settled = settle_all(done)
        assert [each.attempt.id for each in settled.locked] == [locked.id]
    assert row(mine).status == Status.COMPLETED
    assert row(locked).status == Status.PROCESSING
    assert row(taken).status == Status.QUEUED
