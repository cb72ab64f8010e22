"""Reconcile compares Redis with the database both ways, repairs each kind, and says so."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command

from jobqueue import comparing, healing, lifecycle
from jobqueue.comparing import KINDS
from jobqueue.ids import uuid7
from jobqueue.models import Job, Status
from jobqueue.ready import Ready, Shelf
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER
from tests.ready.test_pushing import line_up
from tests.servers import PrivateRedis

pytestmark = pytest.mark.django_db(transaction=True)


def in_line(shelf: Shelf, *jobs: Job) -> None:
    shelf.push([Ready(job.pk, job.queue_name, job.priority) for job in jobs])


def compare(shelf: Shelf, **values: bool) -> dict[str, tuple[int, int]]:
    """What was found and repaired of each kind of which something was found."""
    findings = comparing.compare(shelf, **values)
    assert [each.kind for each in findings] == list(KINDS)
    return {each.kind: (each.found, each.repaired) for each in findings if each.found}


@pytest.fixture
def shelf(on_redis: Shelf) -> Shelf:
    """An empty Redis that has not lost its memory."""
    assert healing.refill(on_redis) == 0
    return on_redis


def undispatched(shelf: Shelf) -> None:
    JobFactory()


def misplaced_by_score(shelf: Shelf) -> None:
    job = JobFactory(priority=5)
    shelf.push([Ready(job.pk, "default", -5)])


def misplaced_by_queue(shelf: Shelf) -> None:
    job = JobFactory(queue_name="other")
    in_line(shelf, job)
    shelf.push([Ready(job.pk, "default", 0)])


def stale(shelf: Shelf) -> None:
    shelf.push([Ready(JobFactory(completed=True).pk, "default", 0)])


def stale_without_a_row(shelf: Shelf) -> None:
    shelf.push([Ready(uuid7(), "default", 0)])


def alien(shelf: Shelf) -> None:
    shelf.line.ask(("ZADD", shelf.key("default"), 1, b"\xff not an id"))


def mistyped(shelf: Shelf) -> None:
    JobFactory(queue_name="mail")
    shelf.line.ask(("SET", shelf.key("mail"), "somebody else's"))


def forgotten(shelf: Shelf) -> None:
    JobFactory()
    shelf.line.ask(("FLUSHALL",))


CASES: list[tuple[str, Callable[[Shelf], None]]] = [
    ("undispatched", undispatched),
    ("undispatched", misplaced_by_score),
    ("misplaced", misplaced_by_queue),
    ("stale", stale),
    ("stale", stale_without_a_row),
    ("alien", alien),
    ("mistyped", mistyped),
    ("forgotten", forgotten),
]


def test_every_kind_is_among_the_cases() -> None:
    assert {kind for kind, _ in CASES} == set(KINDS)


@pytest.mark.parametrize(("kind", "spoil"), CASES, ids=[case.__name__ for _, case in CASES])
def test_each_kind(shelf: Shelf, kind: str, spoil: Callable[[Shelf], None]) -> None:
    healthy = JobFactory(priority=1)
    in_line(shelf, healthy)
    assert compare(shelf) == {}
    spoil(shelf)
    assert compare(shelf, dry_run=True)[kind] == (1, 0)
    assert compare(shelf)[kind] == (1, 1)
    assert compare(shelf) == {}
    for queue in ("default", "mail", "other"):
        queued = Job.objects.filter(status=Status.QUEUED, queue_name=queue)
        expected = queued.order_by("-priority", "id").values_list("pk", flat=True)
        assert line_up(shelf, queue) == [str(pk) for pk in expected]


def test_the_command_says_so_and_exits_0(shelf: Shelf) -> None:
    for _, spoil in CASES[:-1]:
        spoil(shelf)
    output = StringIO()
    call_command("reconcile", "--json", stdout=output)
    kinds = json.loads(output.getvalue())["kinds"]
    assert all(kinds[kind]["repaired"] for kind in KINDS if kind != "forgotten")
    assert not any(each["failed"] for each in kinds.values())
    output = StringIO()
    call_command("reconcile", stdout=output)
    assert "Nothing to repair." in output.getvalue()
    assert all(what in output.getvalue() for what in KINDS.values())


def test_a_redis_that_is_away_is_mentioned(
    on_redis: Shelf, private_redis: PrivateRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    private_redis.stop()
    output, errors = StringIO(), StringIO()
    call_command("reconcile", stdout=output, stderr=errors)
    assert "Redis was not looked at" in output.getvalue() + errors.getvalue()


def test_no_more_than_the_limit(shelf: Shelf) -> None:
    JobFactory.create_batch(5)
    for _ in range(5):
        stale(shelf)
    findings = {each.kind: each.repaired for each in comparing.compare(shelf, limit=2)}
    assert (findings["undispatched"], findings["stale"]) == (2, 2)
    assert compare(shelf) == {"undispatched": (3, 3), "stale": (3, 3)}


def test_what_is_queued_again_while_it_is_removed_is_put_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running job's id is taken out of line just as the job is released."""
    job = JobFactory()
    (attempt,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
    in_line(shelf, job)
    remove = Shelf.remove

    def release_first(self: Shelf, queue: str, members: object) -> None:
        Job.objects.filter(pk=attempt.id).update(
            status=Status.QUEUED, lease_owner=None, lease_expires_at=None
        )
        remove(self, queue, members)  # type: ignore[arg-type]

    monkeypatch.setattr(Shelf, "remove", release_first)
    assert compare(shelf) == {"stale": (1, 1)}
    assert line_up(shelf) == [str(job.pk)]


def test_more_than_a_page_of_everything(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "PAGE", 7)
    monkeypatch.setattr(healing, "PAGE", 7)
    monkeypatch.setattr("jobqueue.ready.shelf.BATCH", 5)
    jobs = [JobFactory(priority=number % 3) for number in range(30)]
    in_line(shelf, *jobs[::2])
    for _ in range(20):
        stale(shelf)
    assert compare(shelf) == {"undispatched": (15, 15), "stale": (20, 20)}
    expected = sorted(jobs, key=lambda job: (-job.priority, job.pk))
    assert line_up(shelf) == [str(job.pk) for job in expected]


class TestTheCheapPart:
    def test_a_redis_without_its_marker_is_filled_once(self, on_redis: Shelf) -> None:
        jobs = [JobFactory(priority=number % 3) for number in range(5)]
        JobFactory(queue_name="other")
        assert healing.refill(on_redis) == 6
        assert healing.refill(on_redis) is None
        expected = sorted(jobs, key=lambda job: (-job.priority, job.pk))
        assert line_up(on_redis) == [str(job.pk) for job in expected]

    def test_another_fills_it_already(self, on_redis: Shelf) -> None:
        JobFactory()
        assert on_redis.begin_refill("another")
        assert healing.refill(on_redis) is None
        assert not on_redis.remembers()

    def test_a_memory_that_is_lost_while_it_is_filled(
        self, on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        JobFactory.create_batch(2)
        go_on = Shelf.go_on

        def forget(self: Shelf, token: str) -> bool:
            self.line.ask(("FLUSHALL",))
            return go_on(self, token)

        monkeypatch.setattr(Shelf, "go_on", forget)
        assert healing.refill(on_redis) is None
        monkeypatch.undo()
        assert not on_redis.remembers(), "who looks next fills it again"

    def test_the_first_jobs_are_looked_for(self, shelf: Shelf) -> None:
        """An old snapshot, an evicted key, a push that got lost: the marker is there."""
        jobs = [JobFactory(priority=number % 3) for number in range(5)]
        in_line(shelf, jobs[0])
        assert healing.look(shelf, ["default", "none"]) == 4
        assert healing.look(shelf, ["default", "none"]) == 0
        expected = sorted(jobs, key=lambda job: (-job.priority, job.pk))
        assert line_up(shelf) == [str(job.pk) for job in expected]

    def test_it_goes_on_while_some_are_missing(
        self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(healing, "PAGE", 3)
        jobs = JobFactory.create_batch(20)
        assert healing.look(shelf, ["default"], first_page=2) == 20
        shelf.remove("default", [str(jobs[-1].pk)])
        assert healing.look(shelf, ["default"], first_page=2) == 0, "its turn has not come yet"

    def test_a_key_of_another_type_is_replaced(self, shelf: Shelf) -> None:
        mistyped(shelf)
        assert healing.look(shelf, ["mail"]) == 1
        assert shelf.type_of("mail") == "zset"
