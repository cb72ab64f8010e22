"""What a supervisor does before it forks leaves no trace, and is no condition for its start."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection

from jobqueue import lifecycle
from jobqueue.child import warm_up
from jobqueue.models import Job, JobLog, Queue, Worker
from tests.factories import JobFactory, ago


@pytest.mark.django_db(transaction=True)
def test_it_changes_nothing() -> None:
    JobFactory(queue_name="unseen")
    JobFactory(scheduled=True, run_after=ago(5))
    JobFactory(processing=True, lease_expires_at=ago(5))
    before = list(Job.objects.order_by("pk").values())
    told: list[object] = []
    previous = lifecycle.listen(told.extend)
    try:
        warm_up("default")
    finally:
        lifecycle.listen(previous)
    assert connection.connection is None, "it is not to be shared with children"
    assert list(Job.objects.order_by("pk").values()) == before
    assert not (JobLog.objects.exists())
    assert not (Worker.objects.exists())
    assert not Queue.objects.exists()
    assert told == []


@pytest.mark.django_db(transaction=True)
def test_it_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DatabaseError("no")

    monkeypatch.setattr("jobqueue.queues.discover", fail)
    warm_up("default")
    assert not Worker.objects.exists()
