"""Who makes a job claimable tells Redis: after the commit, in order, and at nobody's cost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from jobqueue import enqueue_many, lifecycle, reconcile
from jobqueue.attempts import Ending
from jobqueue.comparing import compare
from jobqueue.models import Job, Status
from jobqueue.ready import Shelf, pushing
from tests.factories import JobFactory
from tests.lifecycle.acts import claimed, make_due, outcome
from tests.servers import PrivateRedis
from tests.tasks_sample import noop

pytestmark = pytest.mark.django_db(transaction=True)


def line_up(shelf: Shelf, queue: str = "default") -> list[str]:
    """The ids in line, in the order in which they would be popped."""
    (flat,) = shelf.line.ask(("ZRANGE", shelf.key(queue), 0, -1))
    return [member.decode() for member in flat]


def settled(shelf: Shelf) -> Shelf:
    """Once this thread's pushes have been answered."""
    own = pushing._shelf()
    assert own is not None
    own.line.ask(("PING",))
    return shelf


def test_a_job_is_in_line_by_priority_and_then_by_age(on_redis: Shelf) -> None:
    jobs = [noop.using(priority=priority).enqueue() for priority in (0, 10, -100, 10, 0, 100)]
    expected = [jobs[place].id for place in (5, 1, 3, 0, 4, 2)]
    assert line_up(settled(on_redis)) == expected
    ids, taken = on_redis.pop("default", 4)
    assert ([str(each) for each in ids], taken) == (expected[:4], 4)


def test_only_what_is_committed(on_redis: Shelf) -> None:
    with transaction.atomic():
        noop.enqueue()
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = noop.enqueue()
        with transaction.atomic():
            noop.enqueue()
            transaction.set_rollback(True)
        assert line_up(settled(on_redis)) == []
    assert line_up(settled(on_redis)) == [kept.id]


def test_many_at_once_in_several_queues(on_redis: Shelf) -> None:
    calls = [noop.using(queue_name=f"queue {n % 3}").bind(n) for n in range(2_500)]
    jobs = enqueue_many(calls)
    settled(on_redis)
    for number in range(3):
        expected = [job.id for job in jobs[number::3]]
        assert line_up(on_redis, f"queue {number}") == expected
    assert on_redis.queues() == ["queue 0", "queue 1", "queue 2"]


def test_whatever_makes_a_job_claimable_puts_it_in_line(on_redis: Shelf) -> None:
    due, failed, waiting = (
        JobFactory(scheduled=True),
        JobFactory(failed=True),
        JobFactory(scheduled=True),
    )
    released = claimed(priority=100)
    make_due(due)
    lifecycle.promote([due.pk])
    lifecycle.requeue(failed.pk, reason="again")
    lifecycle.run_now(waiting.pk, reason="now")
    lifecycle.settle([outcome(released, Ending.RELEASED)])
    expected = {str(each.pk) for each in (due, failed, waiting)} | {str(released.id)}
    assert set(line_up(settled(on_redis))) == expected


def test_what_waits_for_its_time_is_not_in_line_however_long_it_waits(on_redis: Shelf) -> None:
    """Nor is what waits to be tried again: there is nothing to be delivered twice."""
    delayed, failed = JobFactory(scheduled=True), claimed()
    lifecycle.settle([outcome(failed, Ending.ERRORED, delay=3600)])
    for _ in range(3):
        reconcile.sweep()
        compare(on_redis)
        assert line_up(settled(on_redis)) == []
    make_due(delayed)
    for _ in range(3):
        reconcile.sweep()
        compare(on_redis)
        assert line_up(settled(on_redis)) == [str(delayed.pk)]
    assert Job.objects.get(pk=failed.id).status == Status.SCHEDULED


def test_a_redis_that_is_gone_costs_a_moment_and_no_job(
    on_redis: Shelf, private_redis: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    noop.enqueue()
    private_redis.stop()
    began = time.monotonic()
    for _ in range(50):
        noop.enqueue()
    assert time.monotonic() - began < 5
    assert Job.objects.filter(status=Status.QUEUED).count() == 51
    said = [record for record in caplog.records if "Redis does not work" in record.message]
    assert len(said) == 1, "it says so once"


@pytest.fixture
def silent(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """A Redis that accepts connections and never says anything; the list holds what came."""
    from tests.conftest import use_redis

    came: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def accept() -> None:
            while True:
                try:
                    came.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        with use_redis(f"redis://127.0.0.1:{server.getsockname()[1]}/0", settings, monkeypatch):
            yield came
    for each in came:
        each.close()


def test_a_redis_that_says_nothing_holds_no_request_for_long(silent: list[socket.socket]) -> None:
    took = []
    for _ in range(20):
        began = time.monotonic()
        noop.enqueue()
        took.append(time.monotonic() - began)
    # Generous: 0.25 s to connect and 0.25 s for an answer, once a second at most.
    assert max(took) < 2
    assert sorted(took)[10] < 0.2, "while it is left alone nobody waits"
    assert 1 <= len(silent) <= 5
    assert Job.objects.count() == 20
