"""Without USE_TZ, in the hour that local time repeats in autumn: leases and delays stay exact.

The clock is not moved: the time zone is one whose summer time ends half an hour from now, or ended
half an hour ago.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F

from jobqueue import lifecycle, reconcile
from jobqueue.attempts import Attempt, Ending
from jobqueue.models import Job, Status
from tests.lifecycle.acts import WORKER, claimed, outcome, row

pytestmark = pytest.mark.django_db

HALF_AN_HOUR = timedelta(minutes=30)


@pytest.fixture(
    params=[HALF_AN_HOUR, -HALF_AN_HOUR], ids=["first time", "second time"], autouse=True
)
def repeated_hour(request, settings, site_time):
    ends = datetime.now(UTC) + request.param + timedelta(hours=1)  # as summer time shows it
    day = ends.timetuple().tm_yday - (ends.year % 4 == 0 and ends.month > 2)
    settings.USE_TZ = False
    settings.TIME_ZONE = f"STD0DST-1,J1/0,J{day}/{ends:%H:%M:%S}"


def move(attempt: Attempt, column: str, seconds: float) -> None:
    moved = F(column) - timedelta(seconds=seconds)
    Job.objects.filter(pk=attempt.id).update(**{column: moved})


def found() -> dict[str, int]:
    return {each.kind: each.repaired for each in reconcile.sweep() if each.found}


@pytest.mark.parametrize("beaten", ["claimed", "beaten", "beaten alone"])
def test_a_lease_lasts_as_long_as_it_says(beaten):
    attempt = claimed()
    if beaten == "beaten":
        lifecycle.heartbeat(attempt.owner, [attempt.pair])
    if beaten == "beaten alone":
        lifecycle.heartbeat_alone(attempt.owner, attempt.pair)
    assert found() == {}
    assert lifecycle.recover([attempt.id]) == []
    move(attempt, "lease_expires_at", 20)
    assert found() == {}
    move(attempt, "lease_expires_at", 15)
    assert found() == {"lost": 1}


@pytest.mark.parametrize("ending", [Ending.ERRORED, Ending.SNOOZED])
def test_a_delay_lasts_as_long_as_it_says(ending):
    attempt = claimed()
    lifecycle.settle([outcome(attempt, ending, delay=30.0)])
    assert found() == {}
    move(attempt, "run_after", 20)
    assert found() == {}
    move(attempt, "run_after", 15)
    assert found() == {"due": 1}


def test_what_is_queued_again_may_run_at_once():
    attempt = claimed(max_attempts=1)
    lifecycle.settle([outcome(attempt, Ending.ERRORED)])
    lifecycle.requeue(attempt.id)
    assert row(attempt).status == Status.QUEUED
    assert len(lifecycle.claim("default", uuid.uuid4(), WORKER, 1)) == 1
