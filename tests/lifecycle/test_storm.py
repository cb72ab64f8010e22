"""Everyone at once, in loops: no deadlock and no error reaches anybody, and in the end the sums are right."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest

from jobqueue import lifecycle, reconcile
from jobqueue.attempts import Ending
from jobqueue.models import FINAL, Job, Status
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER, new_job, outcome, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

LASTS = 1.5  # seconds
KEEPS_LITTLE = dict.fromkeys(("completed", "failed", "cancelled"), 0.05)  # seconds


def test_nobody_gets_in_anybodys_way(settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"lease": 1, "backoff_base": 0.01, "backoff_max": 0.02, "retention": KEEPS_LITTLE}
    settings.TASKS = {  # type: ignore[attr-defined]
        "default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
    }
    JobFactory.create_batch(60, max_attempts=3)
    JobFactory.create_batch(20, completed=True)
    over = time.monotonic() + LASTS
    counted, lock = {"accepted": 80, "pruned": 0}, threading.Lock()

    def count(what: str, number: int) -> None:
        with lock:
            counted[what] += number

    def loop(act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            act()  # SQLite may let one wait for longer than it all lasts
            while time.monotonic() < over:
                act()

        return run

    def work() -> None:
        owner = uuid.uuid4()
        attempts = lifecycle.claim("default", owner, WORKER, 8)
        lifecycle.heartbeat(owner, [attempt.pair for attempt in attempts])
        endings = [Ending.COMPLETED, Ending.ERRORED, Ending.SNOOZED, Ending.RELEASED]
        told = [
            outcome(attempt, endings[at % 4], delay=0.01) for at, attempt in enumerate(attempts)
        ]
        settled = lifecycle.settle(told[::-1])
        lifecycle.settle(settled.locked, wait=True)
        lifecycle.hand_back(owner)

    def enqueue() -> None:
        count("accepted", len(lifecycle.enqueue([new_job(max_attempts=3) for _ in range(20)])))

    def people() -> None:
        Job.objects.order_by("-priority", "-id")[:40].cancel()
        Job.objects.filter(status=Status.CANCELLED).order_by("?")[:30].requeue()

    def prune() -> None:
        count("pruned", lifecycle.prune(limit=20).total)

    acts = [work, work, enqueue, people, people, reconcile.sweep, prune]
    together(*map(loop, acts))
    assert counted["pruned"] >= 20
    assert Job.objects.count() == counted["accepted"] - counted["pruned"]
    # And all of them can still be brought to an end.
    deadline = time.monotonic() + 60
    while Job.objects.exclude(status__in=FINAL).exists():
        assert time.monotonic() < deadline
        reconcile.sweep()
        attempts = lifecycle.claim("default", uuid.uuid4(), WORKER, 500)
        lifecycle.settle([outcome(attempt) for attempt in attempts], wait=True)
    assert not Job.objects.filter(lease_owner__isnull=False).exists()
