"""What workers count, and what they write down of their passes, while they work."""

from __future__ import annotations

import signal

import pytest
from django.db.models import Sum

from jobqueue import enqueue_many, lifecycle
from jobqueue.models import Job, Status, Sweep, Tally
from tests.processes import tasks
from tests.processes.conftest import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def counted(span: int, path: str) -> tuple[int, int, int]:
    rows = Tally.objects.filter(span=span, task_path=f"tests.processes.tasks.{path}")
    sums = rows.aggregate(*map(Sum, ("completed", "failed", "retried")))
    return tuple(value or 0 for value in sums.values())


def test_all_that_ended_is_counted_once(site):
    """By two processes that leave as soon as they are done, in the middle of their ticks."""
    enqueue_many([tasks.quick.bind() for _ in range(300)])
    enqueue_many([tasks.refusing.using(max_attempts=2).bind() for _ in range(10)])
    supervisor = site.start(
        "--burst", "--processes", "2", options={"backoff_base": 60.0, "backoff_max": 90.0}
    )
    assert supervisor.wait() == 0
    lifecycle.run_now_many(Job.objects.filter(status=Status.SCHEDULED))
    assert site.start("--burst").wait() == 0
    for span in (60, 900, 7_200):
        assert counted(span, "quick") == (300, 0, 0)
        assert counted(span, "refusing") == (0, 10, 10)
    row = Tally.objects.filter(task_path__endswith="refusing").first()
    assert row.last_error == "ValueError: no"


def test_what_dies_is_counted_by_who_finds_it(site):
    supervisor = site.start_ready("--concurrency", "1")
    job = tasks.deadly.using(max_attempts=2).enqueue()
    site.wait_status(job.id, Status.FAILED)
    wait_until(lambda: counted(60, "deadly") == (0, 1, 1), "both attempts to be counted")
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert counted(7_200, "deadly") == (0, 1, 1)


def test_passes_are_written_down(site):
    supervisor = site.start_ready("--processes", "2", "--concurrency", "1")
    wait_until(lambda: Sweep.objects.filter(eventful=False).count() == 2, "a row a worker")
    job = tasks.until.using(max_attempts=1).enqueue("go")
    site.wait_for("begin", job.id)
    supervisor.kill_all()
    other = site.start_ready()
    wait_until(Sweep.objects.filter(eventful=True, repaired__lost=1).exists, "the repair")
    sweep = Sweep.objects.get(eventful=True, repaired__lost=1)
    assert sweep.repairs[0] == ["lost", str(job.id), "processing", "failed"]
    assert f":{other.workers[0]}:" in sweep.worker
    other.send(signal.SIGTERM)
    assert other.wait() == 0
    assert Sweep.objects.filter(worker=sweep.worker, eventful=False, passes__gt=3).count() == 1
