"""Heartbeats: exactly the attempts that run, whoever holds whose row."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import transaction

from jobqueue import lifecycle
from jobqueue.attempts import Pair
from jobqueue.models import Job, Worker
from tests.factories import JobFactory, WorkerFactory, ago, now
from tests.lifecycle.acts import (
    PATIENCE,
    WORKER,
    answer_of,
    claimed,
    events,
    expire,
    held,
    in_thread,
    is_close,
    local_time_too,
    outcome,
    picture,
    point_at,
    row,
    together,
    until_somebody_waits_for_a_lock,
)


def leased_until(attempt):
    return row(attempt).lease_expires_at


def running(count: int):
    """An owner and so many attempts of its own, whose leases are nearly over."""
    JobFactory.create_batch(count)
    owner = uuid.uuid4()
    attempts = lifecycle.claim("default", owner, WORKER, count)
    Job.objects.filter(lease_owner=owner).update(lease_expires_at=ago(-1))
    return owner, attempts


@pytest.mark.django_db
class TestHeartbeat:
    @local_time_too
    def test_it_extends_what_it_names(self):
        owner, (one, two) = running(2)
        beat = lifecycle.heartbeat(owner, [one.pair, two.pair])
        assert beat == lifecycle.Beat(held={one.pair, two.pair})
        for attempt in (one, two):
            assert is_close(leased_until(attempt), now() + timedelta(seconds=30))

    @local_time_too
    def test_even_a_lease_that_has_expired_while_nobody_took_it(self):
        owner, (attempt,) = running(1)
        expire(attempt)
        assert lifecycle.heartbeat(owner, {attempt.pair}).held == {attempt.pair}
        assert lifecycle.recover([attempt.id]) == []

    def test_what_it_does_not_name_is_a_stray_and_not_extended(self):
        owner, (one, two) = running(2)
        before = picture(two)
        beat = lifecycle.heartbeat(owner, [one.pair])
        assert beat == lifecycle.Beat(held={one.pair}, strays={two.pair})
        assert picture(two) == before

    def test_what_others_hold_is_neither_seen_nor_touched(self):
        owner, (mine,) = running(1)
        other = claimed()
        before = picture(other)
        beat = lifecycle.heartbeat(owner, [mine.pair, other.pair])
        assert beat == lifecycle.Beat(held={mine.pair}, lost={other.pair})
        assert picture(other) == before

    def test_an_older_attempt_of_its_own_is_lost_and_the_newer_one_a_stray(self):
        owner, (first,) = running(1)
        lifecycle.hand_back(owner)
        (second,) = lifecycle.claim("default", owner, WORKER, 1)
        before = picture(second)
        beat = lifecycle.heartbeat(owner, [first.pair])
        assert beat == lifecycle.Beat(lost={first.pair}, strays={second.pair})
        assert picture(second) == before

    def test_a_cancelled_one_is_told_and_extended_while_its_code_runs(self):
        owner, (attempt,) = running(1)
        lifecycle.cancel(attempt.id)
        beat = lifecycle.heartbeat(owner, [attempt.pair])
        assert beat == lifecycle.Beat(held={attempt.pair}, cancelled={attempt.pair})
        assert is_close(leased_until(attempt), now() + timedelta(seconds=30))

    def test_ended_and_removed_ones_are_lost(self):
        owner, (ended, removed) = running(2)
        lifecycle.settle([outcome(ended)])
        Job.objects.filter(pk=removed.id).delete()
        gone = Pair(uuid.uuid4(), 1)
        beat = lifecycle.heartbeat(owner, [ended.pair, removed.pair, gone])
        assert beat == lifecycle.Beat(lost={ended.pair, removed.pair, gone})

    def test_nothing_changes_but_the_lease(self):
        owner, (attempt,) = running(1)
        before = picture(attempt)
        lifecycle.heartbeat(owner, [attempt.pair])
        after = picture(attempt)
        assert {name for name in after if after[name] != before[name]} == {"lease_expires_at"}

    @local_time_too
    def test_the_workers_row_shows_it(self):
        worker = WorkerFactory(heartbeat_at=ago(100))
        other = WorkerFactory(heartbeat_at=ago(100))
        lifecycle.heartbeat(worker.pk, [])
        assert is_close(Worker.objects.get(pk=worker.pk).heartbeat_at, now())
        assert Worker.objects.get(pk=other.pk).heartbeat_at == other.heartbeat_at

    def test_attempts_of_different_numbers_in_one_beat(self):
        jobs = [JobFactory(attempt=number, given_back=number) for number in (0, 3, 3)]
        owner = uuid.uuid4()
        attempts = lifecycle.claim("default", owner, WORKER, 3)
        expire(*jobs)
        pairs = {attempt.pair for attempt in attempts}
        assert lifecycle.heartbeat(owner, pairs).held == pairs
        assert lifecycle.recover([job.pk for job in jobs]) == []

    @pytest.mark.parametrize("case", ["held", "cancelled", "ended", "other owner", "other attempt"])
    def test_alone(self, case):
        owner, (attempt,) = running(1)
        sender, pair = owner, attempt.pair
        if case == "cancelled":
            lifecycle.cancel(attempt.id)
        elif case == "ended":
            lifecycle.settle([outcome(attempt)])
        elif case == "other owner":
            sender = uuid.uuid4()
        elif case == "other attempt":
            pair = replace(attempt, attempt=2).pair
        before = picture(attempt)
        ours = case in ("held", "cancelled")
        assert lifecycle.heartbeat_alone(sender, pair) is ours
        if ours:
            assert is_close(leased_until(attempt), now() + timedelta(seconds=30))
        else:
            assert picture(attempt) == before


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
class TestLockedRows:
    def test_one_locked_row_does_not_hold_up_the_others(self):
        owner, (one, two, three) = running(3)
        before = picture(two)
        with held(row(two)):
            beat = lifecycle.heartbeat(owner, [one.pair, two.pair, three.pair])
            assert beat == lifecycle.Beat(held={one.pair, three.pair}, locked={two.pair})
            assert picture(two) == before

    def test_a_locked_row_of_another_owner_is_lost_all_the_same(self):
        other = claimed()
        with held(row(other)):
            beat = lifecycle.heartbeat(uuid.uuid4(), [other.pair])
        assert beat == lifecycle.Beat(lost={other.pair})

    def test_a_row_that_a_foreign_key_holds_is_extended(self):
        owner, (attempt,) = running(1)
        with transaction.atomic():
            point_at(attempt)
            (beat,) = together(lambda: lifecycle.heartbeat(owner, [attempt.pair]))
        assert beat == lifecycle.Beat(held={attempt.pair})

    def test_somebody_holds_the_workers_own_row(self):
        owner, (attempt,) = running(1)
        worker = WorkerFactory(id=owner, heartbeat_at=ago(100))
        with held(worker):
            beat = lifecycle.heartbeat(owner, [attempt.pair])
        assert beat.held == {attempt.pair}
        assert is_close(leased_until(attempt), now() + timedelta(seconds=30))

    def test_alone_it_waits_and_wins_against_every_recovery(self):
        """The row was held past its lease; those who recover in a loop find it locked until its
        owner has it."""
        for _ in range(5):
            owner, (attempt,) = running(1)
            expire(attempt)
            with held(row(attempt)) as release:
                waiter = in_thread(lambda o=owner, p=attempt.pair: lifecycle.heartbeat_alone(o, p))
                until_somebody_waits_for_a_lock()
                with recovering_in_a_loop() as taken:
                    release()
                    assert answer_of(*waiter) is True
            assert taken == []
            assert is_close(leased_until(attempt), now() + timedelta(seconds=30))
            assert events(attempt) == []
            lifecycle.settle([outcome(attempt)])


@contextmanager
def recovering_in_a_loop():
    """Two who take every expired lease they can get, until the end of the block."""
    over, taken = threading.Event(), []
    begun = threading.Barrier(3, timeout=PATIENCE)

    def recover() -> None:
        first = True
        while not over.is_set():
            ids = list(lifecycle.expired("default", now()).values_list("pk", flat=True))
            taken.extend(lifecycle.recover(ids))
            if first:
                first = False
                begun.wait()

    threads = [in_thread(recover) for _ in range(2)]
    begun.wait()
    try:
        yield taken
    finally:
        over.set()
        for each in threads:
            answer_of(*each)
