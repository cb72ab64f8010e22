"""Where a worker's next jobs come from, and that none is overlooked on the way."""

from __future__ import annotations

import select
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jobqueue import lifecycle, popping, supply
from jobqueue.attempts import Attempt
from jobqueue.ids import uuid7
from jobqueue.models import Job, Status
from jobqueue.ready import Ready, Shelf
from jobqueue.supply import Offer, Supply
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER

pytestmark = pytest.mark.django_db(transaction=True)


def claim_round(source: Supply, slots: int) -> list[Attempt]:
    """What a worker with so many free slots claims before it rests."""
    claimed: list[Attempt] = []

    def room() -> int:
        return slots - len(claimed)

    for offer in source.offers(room):
        assert offer.limit > 0
        begun = lifecycle.claim(
            *(offer.queue, uuid.uuid4(), WORKER, offer.limit),
            ids=offer.ids,
            behind=offer.behind,
            above=offer.above,
        )
        offer.note(begun)
        claimed.extend(begun)
    return claimed


@pytest.fixture
def source() -> Any:
    """A supply of the queue "default"."""
    made = Supply(["default"], "default")
    yield made
    made.close()


SLOW = 5.0


class Clock:
    """The time that a supply sees."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supply, "time", clock)
    return clock


@pytest.fixture
def slow_front(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan from the front takes its time, as over many rows that an old snapshot keeps."""
    claim = lifecycle.claim

    def slow(*args: Any, **which: Any) -> list[Attempt]:
        if which["behind"] is None and which["above"] is None:
            clock.now += SLOW
        return claim(*args, **which)

    monkeypatch.setattr(lifecycle, "claim", slow)


class TestFromTheDatabase:
    def test_all_jobs_in_order_however_many_fit(self, source: Supply) -> None:
        jobs = [JobFactory(priority=number % 3) for number in range(20)]
        found: list[uuid.UUID] = []
        while claimed := claim_round(source, 3):
            found += [attempt.id for attempt in claimed]
        expected = sorted(jobs, key=lambda job: (-job.priority, job.pk))
        assert found == [job.pk for job in expected]
        assert source.is_dry

    def test_a_full_claim_is_gone_on_from(self, source: Supply) -> None:
        jobs = JobFactory.create_batch(6)
        assert [each.id for each in claim_round(source, 2)] == [job.pk for job in jobs[:2]]
        urgent = JobFactory(priority=50)
        # One that is more urgent, or free again, waits while the claims come back full ...
        assert [each.id for each in claim_round(source, 2)] == [job.pk for job in jobs[2:4]]
        # ... and not a moment longer.
        found = [each.id for each in claim_round(source, 5)]
        assert found == [jobs[4].pk, jobs[5].pk, urgent.pk]

    def test_what_is_more_urgent_waits_a_second_at_most(
        self, source: Supply, clock: Clock, slow_front: None
    ) -> None:
        jobs = JobFactory.create_batch(9)
        claim_round(source, 2)
        given_back = jobs[0]
        Job.objects.filter(pk=given_back.pk).update(
            status=Status.QUEUED, lease_owner=None, lease_expires_at=None
        )
        urgent = JobFactory(priority=50)
        clock.now += supply.LOOK_ABOVE * 0.9
        assert [each.id for each in claim_round(source, 2)] == [job.pk for job in jobs[2:4]]
        clock.now += supply.LOOK_ABOVE * 0.2
        assert [each.id for each in claim_round(source, 2)] == [urgent.pk, jobs[4].pk]
        # The front, where an older one waits, takes long: its turn comes after twenty times that.
        clock.now += supply.FRONT_SHARE * SLOW
        assert [each.id for each in claim_round(source, 2)] == [given_back.pk, jobs[5].pk]

    def test_where_the_front_is_near_it_is_looked_at_each_second(
        self, source: Supply, clock: Clock
    ) -> None:
        jobs = JobFactory.create_batch(9)
        claim_round(source, 2)
        Job.objects.filter(pk=jobs[0].pk).update(
            status=Status.QUEUED, lease_owner=None, lease_expires_at=None
        )
        clock.now += supply.LOOK_ABOVE
        assert [each.id for each in claim_round(source, 2)] == [jobs[0].pk, jobs[2].pk]

    def test_one_that_is_free_again_is_not_forgotten(self, source: Supply) -> None:
        first = JobFactory.create_batch(4)[0]
        claim_round(source, 2)
        Job.objects.filter(pk=first.pk).update(
            status=Status.QUEUED, lease_owner=None, lease_expires_at=None
        )
        assert first.pk in [each.id for each in claim_round(source, 5)]


class TestFromRedis:
    @pytest.fixture
    def in_line(self, on_redis: Shelf) -> Callable[..., None]:
        """Puts jobs in line."""

        def push(*jobs: Job) -> None:
            on_redis.push([Ready(job.pk, job.queue_name, job.priority) for job in jobs])

        return push

    def test_what_is_in_line_comes_first(
        self, on_redis: Shelf, in_line: Callable[..., None]
    ) -> None:
        unknown, *known = JobFactory.create_batch(5)
        in_line(*known)
        source = Supply(["default"], "default")
        assert [each.id for each in claim_round(source, 3)] == [job.pk for job in known[:3]]
        found = [each.id for each in claim_round(source, 3)]
        assert found == [known[3].pk, unknown.pk], "then what Redis does not know of"
        source.close()

    def test_what_comes_while_all_slots_are_taken_is_left_to_others(
        self, on_redis: Shelf, in_line: Callable[..., None]
    ) -> None:
        source = Supply(["default"], "default")
        assert claim_round(source, 3) == []
        source.wait()
        (waited_on,) = source.filenos()
        job = JobFactory()
        in_line(job)
        poll = select.poll()
        poll.register(waited_on, select.POLLIN)
        assert poll.poll(20_000)
        source.read({waited_on})
        assert on_redis.size("default") == 0
        assert claim_round(source, 0) == []
        assert source.give_back_at < float("inf")
        source.give_back()
        assert on_redis.pop("default", 5)[0] == [job.pk]
        source.close()

    def test_a_redis_that_is_away_leaves_the_database(
        self, on_redis: Shelf, private_redis: Any, in_line: Callable[..., None]
    ) -> None:
        jobs = JobFactory.create_batch(3)
        source = Supply(["default"], "default")
        private_redis.stop()
        assert [each.id for each in claim_round(source, 5)] == [job.pk for job in jobs]
        source.wait()
        assert source.filenos() == []
        source.close()


def test_an_offer_notes_where_it_ended() -> None:
    offer = Offer("default", 5)
    offer.note([])
    assert (offer.got, offer.last) == (0, None)


def test_a_redis_full_of_rubbish_leaves_time_for_other_things(
    on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_redis.push([Ready(uuid7(), "default", 100) for _ in range(200)])
    job = JobFactory()
    on_redis.push([Ready(job.pk, "default", 0)])
    source = Supply(["default"], "default")
    monkeypatch.setattr(popping, "KEPT", 0.0)  # nothing is taken ahead
    visits = [len(claim_round(source, 5)) for _ in range(4)]
    assert sum(visits) == 1
    assert on_redis.size("default") == 0
    source.close()


class TestTakenAhead:
    def test_while_ids_go_fast_more_are_taken_than_there_is_room_for(
        self, on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(popping, "KEPT", 60.0)
        jobs = JobFactory.create_batch(40)
        on_redis.push([Ready(job.pk, "default", job.priority) for job in jobs])
        source = Supply(["default"], "default")
        found = [each.id for each in claim_round(source, 2)]
        assert on_redis.size("default") == 38, "not before they are known to go fast"
        for _ in range(6):
            found += [each.id for each in claim_round(source, 2)]
        assert on_redis.size("default") < 40 - len(found)
        assert source.give_back_at < float("inf")
        source.give_back()
        assert source.give_back_at == float("inf")
        assert on_redis.size("default") == 40 - len(found)
        while claimed := claim_round(source, 5):
            found += [each.id for each in claimed]
        assert found == [job.pk for job in jobs]
        source.close()

    def test_what_is_given_back_is_still_queued(
        self, on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(popping, "KEPT", 60.0)
        jobs = JobFactory.create_batch(20)
        on_redis.push([Ready(job.pk, "default", job.priority) for job in jobs])
        source = Supply(["default"], "default")
        found = [each.id for _ in range(4) for each in claim_round(source, 1)]
        rest = Job.objects.filter(status=Status.QUEUED)
        lifecycle.cancel(rest[0].pk, reason="meanwhile")
        source.give_back()
        in_line, _ = on_redis.pop("default", 100)
        assert set(in_line) == set(rest.values_list("pk", flat=True))
        assert len(in_line) == 20 - len(found) - 1
        source.close()
