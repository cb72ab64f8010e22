"""A host whose clock is wrong takes nothing from anyone and starts nothing early: the database's clock decides."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from jobqueue import lifecycle, reconcile
from jobqueue.models import Status
from tests.factories import JobFactory, now
from tests.lifecycle.acts import WORKER, claimed, is_close, new_job, row

# SQLite lives in the process that uses it, and with it its clock.
pytestmark = [pytest.mark.postgres, pytest.mark.django_db]


@pytest.fixture(params=[600, -600], ids=["fast", "slow"], autouse=True)
def wrong(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This host's clock is so many seconds off."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(seconds=request.param))


def test_a_lease_that_holds_is_left() -> None:
    attempt = claimed()
    assert is_close(row(attempt).lease_expires_at, now() + timedelta(seconds=30))
    assert lifecycle.recover([attempt.id]) == []
    reconcile.sweep()
    assert lifecycle.heartbeat(attempt.owner, [attempt.pair]).held == {attempt.pair}
    assert row(attempt).lease_owner == attempt.owner


def test_a_delay_is_neither_shorter_nor_longer() -> None:
    soon = now() + timedelta(seconds=300)
    (later,) = lifecycle.enqueue([new_job(run_after=soon)])
    assert later.status == Status.SCHEDULED
    assert lifecycle.promote([later.id]) == []
    passed = JobFactory(scheduled=True, run_after=now() - timedelta(seconds=1))
    assert lifecycle.promote([passed.pk, later.id]) == [passed.pk]


def test_what_is_enqueued_can_be_claimed_at_once() -> None:
    (accepted,) = lifecycle.enqueue([new_job()])
    (attempt,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
    assert attempt.id == accepted.id
    assert is_close(attempt.attempted_at, now())
    assert is_close(attempt.enqueued_at, now())
