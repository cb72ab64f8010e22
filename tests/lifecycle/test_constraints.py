"""The last guard: what the database itself refuses, whoever writes it."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from jobqueue.models import FINAL, WAITING, Job, Status
from tests.factories import JobFactory, now

pytestmark = pytest.mark.django_db

COMBINATIONS = list(itertools.product(Status, [False, True], [False, True], [False, True]))


def accepts(**values: object) -> bool:
    """Whether the database takes such a row, as an INSERT and as an UPDATE of a sound one."""
    job = JobFactory(processing=True)
    answers = set()
    for write in (
        lambda: JobFactory(**values),
        lambda: Job.objects.filter(pk=job.pk).update(**values),
    ):
        try:
            with transaction.atomic():
                write()
            answers.add(True)
        except IntegrityError:
            answers.add(False)
    assert len(answers) == 1
    return answers.pop()


def test_a_lease_and_an_end_where_they_belong_and_nowhere_else():
    moment = now()
    for status, owner, expiry, finished in COMBINATIONS:
        leased = owner and expiry
        unleased = not (owner or expiry)
        sound = finished is (status in FINAL) and {
            Status.PROCESSING: leased,
            Status.CANCELLED: leased or unleased,
        }.get(status, unleased)
        values = {
            "status": status,
            "lease_owner": uuid.uuid4() if owner else None,
            "lease_expires_at": moment + timedelta(seconds=30) if expiry else None,
            "finished_at": moment if finished else None,
        }
        assert accepts(**values) is sound, values


@pytest.mark.parametrize("status", list(Status))
def test_a_waiting_job_has_an_attempt_left(status):
    values = {"status": status, "finished_at": now() if status in FINAL else None}
    held = status == Status.PROCESSING
    values |= {
        "lease_owner": uuid.uuid4() if held else None,
        "lease_expires_at": now() if held else None,
    }
    for attempt, max_attempts in [(0, 0), (1, 1), (2, 1)]:
        spent = {"attempt": attempt, "max_attempts": max_attempts}
        assert accepts(**values, **spent) is (status not in WAITING), spent
    assert accepts(**values, attempt=0, max_attempts=1)


def test_priorities_are_djangos():
    queued = {"status": "queued", "lease_owner": None, "lease_expires_at": None}
    for priority in (-101, 101, -32768, 32767):
        assert not accepts(**queued, priority=priority)
    for priority in (-100, 0, 100):
        assert accepts(**queued, priority=priority)


def test_a_status_is_one_of_the_table():
    assert not accepts(status="running")
    assert not accepts(status="")


def test_one_job_has_a_key():
    JobFactory(idempotency_key="k")
    with pytest.raises(IntegrityError), transaction.atomic():
        JobFactory(idempotency_key="k")
    JobFactory(idempotency_key="k", task_path="other")
    JobFactory.create_batch(2, idempotency_key=None)
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.create(
            idempotency_key="", task_path="p", max_attempts=1, run_after=now(), enqueued_at=now()
        )
        Job.objects.create(
            idempotency_key="", task_path="p", max_attempts=1, run_after=now(), enqueued_at=now()
        )


def test_counters_do_not_fall_below_nothing():
    for column in ("attempt", "given_back", "max_attempts"):
        assert not accepts(**{column: -1})
