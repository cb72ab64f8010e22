"""A cancelled job is cancelled at once and for good, whatever its code does next."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import pytest

import jobqueue
from jobqueue.models import Job, JobLog, Status
from tests.processes import odd, tasks
from tests.processes.conftest import Site, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

#: Heartbeats so rare that no worker hears of a cancellation in a test's time.
UNHEARD = {"lease": 60.0, "heartbeat": 30.0}


def cancel_running(site: Site, job: Any) -> Job:
    """Cancel a job whose code runs: cancelled in that instant, and not let go of."""
    site.wait_for("begin", job.id)
    assert jobqueue.cancel(job.id, actor="Ada", reason="not wanted")
    row = Job.objects.get(pk=job.id)
    assert row.status == Status.CANCELLED
    assert row.is_stopping
    assert not jobqueue.requeue(job.id), "its code still runs"
    return row


def wait_let_go(site: Site, job: Any, runs: int = 1) -> Job:
    """Wait until nobody holds the cancelled job, and see that it stays cancelled, and as it was."""

    def let_go() -> Job | None:
        return Job.objects.filter(pk=job.id, lease_owner=None).first()

    row: Job = wait_until(let_go, f"{job.id} to be let go of")
    assert row.status == Status.CANCELLED
    assert (row.return_value, row.lease_expires_at) == (None, None)
    assert row.attempt == len(site.events("begin", job.id)) == runs
    (line,) = site.log_lines(job.id, JobLog.Event.CANCELLED)
    assert (line.actor_name, line.message) == ("Ada", "not wanted")
    return row


def see_it_stay(site: Site, *jobs: Any) -> None:
    """Long enough for any retry (and with a worker that takes others): none of them runs again."""
    runs = {job.id: len(site.events("begin", job.id)) for job in jobs}
    for _ in range(3):
        canary = tasks.quick.enqueue()
        site.wait_status(canary.id, Status.COMPLETED)
    for job in jobs:
        assert Job.objects.get(pk=job.id).status == Status.CANCELLED
        assert len(site.events("begin", job.id)) == runs[job.id]


def test_then_success_errors_and_a_timeout(site):
    """None of these knew of the cancellation: they end as they would have, and it changes nothing."""
    site.start_ready(options=UNHEARD)
    endings = ["success", "exception", "retry", "snooze"]
    jobs = [odd.ending_as.enqueue("go", how) for how in endings]
    late = [
        tasks.lasting.using(timeout=3).enqueue(60),
        tasks.waiting.using(timeout=3).enqueue(60),
    ]
    for job in jobs + late:
        cancel_running(site, job)
    site.release("go")

    for job in jobs + late:
        wait_let_go(site, job)
        # What came too late is told: what it was, and that it was dropped.
        (line,) = site.log_lines(job.id, JobLog.Event.FENCED)
        assert "after it had been cancelled" in line.message
    texts = {line.data.get("error", "") for line in JobLog.objects.filter(event="fenced")}
    assert "ValueError: after it was cancelled" in texts
    see_it_stay(site, *jobs, *late)
    assert jobqueue.requeue(jobs[0].id)
    assert site.wait_status(jobs[0].id, Status.COMPLETED).return_value == "success"


def test_then_its_process_dies(site):
    worker = site.start_ready(options=UNHEARD)
    job = odd.ending_as.enqueue("go", "crash")
    cancel_running(site, job)
    (pid,) = worker.workers
    site.release("go")

    wait_let_go(site, job)
    wait_until(lambda: worker.workers not in ([], [pid]), "a new worker")
    see_it_stay(site, job)
    assert "lost" not in site.log_events(job.id), "there was nothing left to lose"


@pytest.mark.parametrize("grace", [0.2, 20.0])
def test_then_a_stop(site, grace):
    worker = site.start_ready(options=UNHEARD | {"grace": grace})
    sync, on_loop = tasks.lasting.enqueue(1.0), tasks.waiting.enqueue(1.0)
    blocked = tasks.blocking.enqueue(60 if grace < 1 else 1.0)
    for job in (sync, on_loop, blocked):
        cancel_running(site, job)
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    for job in (sync, on_loop, blocked):
        wait_let_go(site, job)
    site.start_ready()
    see_it_stay(site, sync, on_loop, blocked)


def test_then_all_die_and_reconcile_lets_go(site):
    options = {"lease": 1.0, "heartbeat": 0.3}
    worker = site.start_ready(options=options)
    job = tasks.until.enqueue("never")
    cancel_running(site, job)
    worker.kill_all()
    assert Job.objects.get(pk=job.id).is_stopping
    with site.reconciling(options=options):
        wait_let_go(site, job)
    site.start_ready()
    see_it_stay(site, job)


def test_the_task_is_told(site):
    """`context.cancelled` and `context.check()` tell, and the exception goes on to be raised."""
    site.start_ready(options={"kill_after": 60.0})
    job = odd.looking.enqueue()
    cancel_running(site, job)

    (told,) = site.wait_for("told", job.id)
    assert "cancelled" in told["words"]
    assert site.events("raised", job.id)
    assert Job.objects.get(pk=job.id).is_stopping
    assert not jobqueue.requeue(job.id)
    site.release("give in")
    wait_let_go(site, job)
    assert jobqueue.requeue(job.id)


def test_only_that_job_stops(site):
    """One of each kind is cancelled; the others on the same worker, and the next ones, run on."""
    worker = site.start_ready("--concurrency", "5", options={"kill_after": 30.0})
    (pid,) = worker.workers
    names = [tasks.lasting, tasks.waiting, odd.stubborn]
    doomed = [name.enqueue(*([60] if name is not odd.stubborn else [])) for name in names]
    others = [tasks.until.enqueue("go"), tasks.until.enqueue("go")]
    for job in others:
        site.wait_for("begin", job.id)
    for job in doomed:
        cancel_running(site, job)
    for job in doomed:
        wait_let_go(site, job)
    after = [tasks.quick.enqueue() for _ in range(6)]
    for job in after:
        site.wait_status(job.id, Status.COMPLETED)
    site.release("go")
    for job in others:
        assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
    assert worker.workers == [pid]
    assert set(site.log_events(doomed[0].id)) == {"cancelled"}, "a stop is no crash and no error"


def test_code_that_does_not_let_go_costs_its_process(site):
    """Blocked in C: cancelled at once, and let go of when the process has been replaced."""
    worker = site.start_ready("--concurrency", "2", options={"kill_after": 0.5})
    (pid,) = worker.workers
    job, other = tasks.blocking.using(timeout=None).enqueue(60), tasks.until.enqueue("go")
    site.wait_for("begin", other.id)
    cancel_running(site, job)
    wait_until(lambda: len(worker.workers) == 2, "the replacement")
    assert Job.objects.get(pk=job.id).is_stopping, "its code still runs"
    next_one = tasks.quick.enqueue()
    site.wait_status(next_one.id, Status.COMPLETED)
    site.release("go")
    assert site.wait_status(other.id, Status.COMPLETED).attempt == 1
    wait_let_go(site, job)
    wait_until(lambda: pid not in worker.workers, "the old process to be gone")
    see_it_stay(site, job)


def test_a_job_that_kills_its_worker_can_be_cancelled(site):
    """Nearly always running or about to: cancelled it is, after the crash it is not started again."""
    site.start_ready()
    job = tasks.deadly.using(max_attempts=1000).enqueue()
    site.wait_for("begin", job.id, 2)
    assert jobqueue.cancel(job.id)
    wait_until(
        lambda: Job.objects.filter(pk=job.id, lease_owner=None).exists(), "it to be let go of"
    )
    assert Job.objects.get(pk=job.id).status == Status.CANCELLED
    see_it_stay(site, job)


def test_a_job_behind_another_never_starts(site):
    site.start_ready("--concurrency", "1")
    first, second = tasks.until.enqueue("go"), tasks.quick.enqueue()
    third, fourth = tasks.quick.enqueue(), tasks.quick.enqueue()
    site.wait_for("begin", first.id)
    assert jobqueue.cancel(third.id)
    site.release("go")
    for job in (first, second, fourth):
        site.wait_status(job.id, Status.COMPLETED)
    assert Job.objects.get(pk=third.id).status == Status.CANCELLED
    assert Job.objects.get(pk=third.id).attempt == 0
    assert not site.events(job=third.id)


def test_cancel_races_with_the_claim(site):
    """Either it never began, or it was running and is handled so: never cancelled and completed."""
    site.start_ready("--concurrency", "4", options={"heartbeat": 0.1, "tick": 0.05})
    # No secret depends on it.
    dice = random.Random(7)
    jobs, never_began = [], 0
    for _ in range(60):
        job = tasks.lasting.enqueue(0.3)
        # Half of them at once: a worker needs some milliseconds to hear of a job and to claim it.
        pause = time.monotonic() + dice.choice([0.0, dice.uniform(0, 0.05)])
        wait_until(lambda pause=pause: time.monotonic() >= pause, "the moment")
        assert jobqueue.cancel(job.id)
        jobs.append(job)
    canary = tasks.quick.enqueue()
    site.wait_status(canary.id, Status.COMPLETED)
    for job in jobs:
        wait_until(
            lambda job=job: Job.objects.filter(pk=job.id, lease_owner=None).exists(),
            "it to be let go of",
        )
        row = Job.objects.get(pk=job.id)
        began = len(site.events("begin", job.id))
        assert row.status == Status.CANCELLED
        assert row.attempt - began in (0, 1)
        (line,) = site.log_lines(job.id, JobLog.Event.CANCELLED)
        assert line.data["from"] == ("processing" if row.attempt else "queued")
        never_began += not row.attempt
    assert 0 < never_began < 60, "the race was not run"
