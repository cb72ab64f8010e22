"""Who dies in the middle of a change leaves nothing behind: the next one does it, once, and needs nobody's help."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from jobqueue import lifecycle, reconcile
from jobqueue.models import Job, Status
from tests.factories import JobFactory
from tests.lifecycle.acts import (
    WORKER,
    answer_of,
    claimed,
    events,
    expire,
    in_thread,
    make_due,
    outcome,
    picture,
    row,
)
from tests.lifecycle.test_prune import old

pytestmark = pytest.mark.django_db(transaction=True)


def lost() -> Job:
    job = row(claimed())
    expire(job)
    return job


def waiting() -> Job:
    job = JobFactory(scheduled=True)
    make_due(job)
    return job


def sweep(job: Job) -> None:
    reconcile.sweep()


def complete(job: Job) -> None:
    attempts = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
    lifecycle.settle([outcome(attempt) for attempt in attempts])


#: What somebody was about to do, to which job, and how that ends once somebody else has done it.
CASES: list[tuple[str, Callable[[], Job], Callable[[Job], object], Status]] = [
    ("a pass takes a lease", lost, sweep, Status.SCHEDULED),
    ("a pass queues what is due", waiting, sweep, Status.QUEUED),
    ("a person cancels", JobFactory, lambda job: lifecycle.cancel(job.pk), Status.CANCELLED),
    ("a worker claims and completes", JobFactory, complete, Status.COMPLETED),
]


@pytest.mark.parametrize(("make", "act", "status"), [case[1:] for case in CASES], ids=lambda _: "")
def test_the_next_one_finds_it_as_it_was(
    make: Callable[[], Job], act: Callable[[Job], object], status: Status
) -> None:
    job = make()
    before = picture(job)

    def dies() -> None:
        with pytest.raises(ConnectionAbortedError), transaction.atomic():
            act(job)
            assert row(job).status == status
            connection.connection.close()  # nothing is said to the database, as by SIGKILL
            raise ConnectionAbortedError

    answer_of(*in_thread(dies))
    assert (picture(job), events(job)) == (before, [])
    act(job)
    assert row(job).status == status
    assert len(events(job)) <= 1


def test_pruning_that_was_cut_off_keeps_what_it_has_removed() -> None:
    for _ in range(3):
        old(8, completed=True)

    def dies() -> None:
        lifecycle.prune(limit=1)
        with pytest.raises(ConnectionAbortedError), transaction.atomic():
            lifecycle.prune(limit=1)
            connection.connection.close()
            raise ConnectionAbortedError

    answer_of(*in_thread(dies))
    assert Job.objects.count() == 2
    lifecycle.prune(limit=10)
    assert not Job.objects.exists()
