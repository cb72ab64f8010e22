"""Every option is read: for each of them, another value changes what the queue does."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import override_settings

from jobqueue import backoff, checks, clock, comparing, conf, dispatch, ids, lifecycle
from jobqueue.admin import hiding
from jobqueue.attempts import Pair
from jobqueue.child import Child
from jobqueue.models import Job
from jobqueue.plan import Plan
from jobqueue.supervisor import Supervisor
from tests import tasks_sample as sample
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def given(**options: Any) -> Iterator[None]:
    """These options, and no others."""
    tasks = copy.deepcopy(settings.TASKS)
    tasks["default"]["OPTIONS"] = options
    with override_settings(TASKS=tasks):
        yield


def database() -> None:
    with given(database="elsewhere"):
        assert conf.options().database == "elsewhere"
        assert "jobqueue.E008" in {message.id for message in checks.check()}
        with pytest.raises(Exception, match="elsewhere"):
            sample.noop.enqueue()


def redis() -> None:
    with given(redis=None):
        assert comparing.own_shelf() is None
    with given(redis="elsewhere"):
        assert comparing.own_shelf() is not None
        assert "jobqueue.E015" in {message.id for message in checks.check()}


def redis_prefix() -> None:
    for prefix in ("shop", "mail"):
        with given(redis="default", redis_prefix=prefix):
            shelf = comparing.own_shelf()
            assert shelf is not None
            assert shelf.key("default") == f"{{{prefix}}}:ready:default"


def lease() -> None:
    for seconds in (7, 70):
        with given(lease=seconds):
            sample.noop.enqueue()
            (attempt,) = lifecycle.claim("default", uuid4(), "worker", 1)
            job = Job.objects.get(pk=attempt.id)
            assert job.lease_expires_at is not None
            assert job.attempted_at is not None
            given_time = job.lease_expires_at - job.attempted_at
            assert abs(given_time - timedelta(seconds=seconds)) < timedelta(seconds=1)


@contextmanager
def child() -> Iterator[Child]:
    """A worker as its supervisor sees it; its process does nothing and is ended."""
    made = Child(Plan(), [])
    try:
        yield made
    finally:
        made.kill()
        while made.reap() is None:
            pass
        made.close()


def heartbeat() -> None:
    for seconds in (2.0, 9.0):
        with given(heartbeat=seconds):
            supervisor = Supervisor(Plan())
            before = supervisor._next_beat
            supervisor._beat()
            import time

            assert seconds - 1 < supervisor._next_beat - time.monotonic() <= seconds != before


def tick() -> None:
    for seconds in (0.5, 5.0):
        with given(tick=seconds):
            ear = dispatch.Ear("default", conf.options().tick)
            assert ear.look_every == seconds


def max_attempts() -> None:
    for number in (2, 9):
        with given(max_attempts=number):
            result = sample.noop.enqueue()
            assert Job.objects.get(pk=result.id).max_attempts == number


def timeout() -> None:
    for seconds in (3.5, None):
        with given(timeout=seconds):
            result = sample.noop.enqueue()
            assert Job.objects.get(pk=result.id).timeout == seconds


def backoff_base() -> None:
    for seconds in (1.0, 10.0):
        with given(backoff_base=seconds):
            assert 0.9 * seconds <= backoff.by_settings(1) <= 1.1 * seconds


def backoff_max() -> None:
    for seconds in (5.0, 50.0):
        with given(backoff_max=seconds):
            assert 0.9 * seconds <= backoff.by_settings(40) <= seconds


def grace() -> None:
    for seconds in (1.0, 60.0):
        with given(grace=seconds):
            assert Plan().grace_time == seconds
            assert Plan(grace=3.0).grace_time == 3.0


def kill_after() -> None:
    for seconds, ended in ((0.5, True), (60.0, False)):
        with given(kill_after=seconds, grace=0.0), child() as made:
            made.board.put(Pair(uuid4(), 1), deadline=time.monotonic() - 1.0)
            supervisor = Supervisor(Plan())
            supervisor._children.append(made)
            supervisor._watch_over()
            supervisor._watch_over()  # nobody is judged by a single look
            assert bool(made.culprits) is ended


def max_payload() -> None:
    with given(max_payload=100), pytest.raises(ValueError, match="max_payload"):
        sample.noop.enqueue("x" * 200)
    with given(max_payload=1_000):
        sample.noop.enqueue("x" * 200)


def retention() -> None:
    ended = clock.now("default") - timedelta(days=20)
    JobFactory(completed=True, id=ids.first_at(ended.timestamp()), finished_at=ended)
    with given(retention={"completed": None}):
        assert lifecycle.prune().total == 0
    with given(retention={"completed": 86_400}):
        assert lifecycle.prune().total == 1


def redact() -> None:
    with given(redact=["order"]):
        assert hiding.hide({"order": 7, "password": 8}) == {"order": hiding.HIDDEN, "password": 8}
    with given():
        assert hiding.hide({"order": 7, "password": 8}) == {"order": 7, "password": hiding.HIDDEN}


SHOWN: dict[str, Callable[[], None]] = {
    show.__name__: show
    for show in (
        database,
        redis,
        redis_prefix,
        lease,
        heartbeat,
        tick,
        max_attempts,
        timeout,
        backoff_base,
        backoff_max,
        grace,
        kill_after,
        max_payload,
        retention,
        redact,
    )
}


def test_every_option_is_shown_at_work() -> None:
    assert set(SHOWN) == {each.name for each in fields(conf.Options)}


@pytest.mark.parametrize("name", SHOWN)
def test_an_option_changes_what_happens(name: str) -> None:
    SHOWN[name]()
