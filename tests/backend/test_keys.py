"""Idempotency keys: one job, whoever asks at the same moment."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction

from jobqueue import JobResult, Task
from jobqueue.attempts import Ending
from jobqueue.models import Job
from tests import tasks_sample as sample
from tests.app.models import Effect
from tests.backend.acts import claim, settle

pytestmark = pytest.mark.django_db


def test_a_key_gives_one_job() -> None:
    keyed = sample.add.using(idempotency_key="order-1")
    first, second = keyed.enqueue(1, b=2), keyed.enqueue(1, b=2)
    assert first.id == second.id
    assert (first.created, second.created) == (True, False)
    assert second.task == keyed
    assert second.enqueued_at == first.enqueued_at
    assert Job.objects.get().idempotency_key == "order-1"


def test_a_key_belongs_to_its_task() -> None:
    assert sample.noop.using(idempotency_key="k").enqueue().created
    assert sample.async_noop.using(idempotency_key="k").enqueue().created


def test_created_survives_a_refresh() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first, second = keyed.enqueue(), keyed.enqueue()
    settle(claim(), Ending.COMPLETED, return_value=7)
    for result in (first, second):
        result.refresh()
        assert result.return_value == 7
    assert (first.created, second.created) == (True, False)
    assert not sample.noop.get_result(first.id).created


def test_a_winner_that_has_ended_is_still_the_winner() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue()
    settle(claim(), Ending.COMPLETED, return_value=7)
    second = keyed.enqueue()
    assert (second.id, second.created, second.return_value) == (first.id, False, 7)


def test_the_same_key_with_other_arguments_is_an_error() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue(1)
    with transaction.atomic(), pytest.raises(ValueError, match=f"belongs to job {first.id}"):
        keyed.enqueue(2)
    assert sample.noop.enqueue().created  # the transaction around it is unharmed
    assert Job.objects.count() == 2


def test_a_key_is_free_when_its_job_is_gone() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue()
    Job.objects.all().delete()
    second = keyed.enqueue()
    assert second.created
    assert second.id != first.id


def test_a_key_of_the_greatest_length() -> None:
    keyed = sample.noop.using(idempotency_key="\U0001f600" * 255)
    assert keyed.enqueue().created
    assert not keyed.enqueue().created


def enqueue_together(
    keyed: Task[Any, Any], barrier: threading.Barrier, results: list[JobResult[Any, Any]]
) -> None:
    connection.ensure_connection()
    barrier.wait(20)
    try:
        results.append(keyed.enqueue(1))
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_eight_threads_and_one_key() -> None:
    keyed = sample.noop.using(idempotency_key="race")
    for _ in range(5):
        barrier = threading.Barrier(8)
        results: list[JobResult[Any, Any]] = []

        threads = [
            threading.Thread(target=enqueue_together, args=(keyed, barrier, results))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 8
        assert len({result.id for result in results}) == 1
        assert sum(result.created for result in results) == 1
        Job.objects.all().delete()


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres
def test_the_loser_waits_for_the_winners_end() -> None:
    keyed = sample.noop.using(idempotency_key="k")
    results: list[JobResult[Any, Any]] = []
    started = threading.Event()

    def enqueue() -> None:
        with transaction.atomic():
            Effect.objects.create(key="in the same transaction")
            started.set()
            results.append(keyed.enqueue())
            Effect.objects.create(key="still usable")
        connections.close_all()

    for commits in (False, True):
        started.clear()
        thread = threading.Thread(target=enqueue)
        with transaction.atomic():
            winner = keyed.enqueue()
            thread.start()
            started.wait(10)
            wait_for_a_waiting_backend()
            if not commits:
                transaction.set_rollback(True)
        thread.join(10)
        if commits:
            assert results[-1].id == winner.id
            assert not results[-1].created
        else:
            assert results[-1].id != winner.id
            assert results[-1].created
        Job.objects.all().delete()
    assert Effect.objects.filter(key="still usable").count() == 2


def wait_for_a_waiting_backend() -> None:
    with connection.cursor() as cursor:
        for _ in range(10_000):
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
    raise AssertionError("nobody waits")
