"""What goes wrong after the commit reaches nobody who believes that it was before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, transaction

import jobqueue
from jobqueue import dispatch, lifecycle
from jobqueue.models import Job, Status
from jobqueue.ready import Shelf
from tests import tasks_sample as sample

pytestmark = pytest.mark.django_db(transaction=True)


def fail(*args: Any) -> Any:
    """As a connection that is cut between the commit and what follows it."""
    raise OperationalError("the connection is closed")


@pytest.fixture
def deaf_listener() -> Iterator[None]:
    """Whoever is told of ended jobs fails."""

    def listener(job_ids: Sequence[UUID]) -> None:
        fail()

    before = lifecycle.listen(listener)
    yield
    lifecycle.listen(before)


@pytest.mark.postgres
@pytest.mark.parametrize("atomic", [False, True])
def test_a_job_is_accepted_although_no_word_of_it_gets_out(
    monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    monkeypatch.setattr(dispatch, "_notify", fail)
    if atomic:
        with transaction.atomic():
            job = sample.noop.enqueue()
    else:
        job = sample.noop.enqueue()
    assert Job.objects.get(pk=job.id).status == Status.QUEUED


@pytest.mark.usefixtures("deaf_listener")
def test_a_job_is_cancelled_although_nobody_can_be_told() -> None:
    job = sample.noop.enqueue()
    assert jobqueue.cancel(job.id)
    assert Job.objects.get(pk=job.id).status == Status.CANCELLED


def test_a_running_job_is_cancelled_although_its_worker_cannot_be_told(
    on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "tell_cancelled", fail)
    job = sample.noop.enqueue()
    (attempt,) = lifecycle.claim("default", UUID(int=1), "host:1:00000001", 1)
    assert jobqueue.cancel(job.id)
    assert Job.objects.get(pk=attempt.id).status == Status.CANCELLED


@pytest.mark.postgres
def test_a_queue_is_looked_at_later_if_no_word_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_notify", fail)
    with transaction.atomic():
        dispatch.look("default", ["default"])
