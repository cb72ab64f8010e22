"""A deadline stops the work, not only the waiting; where it cannot, the process is replaced."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobqueue.models import Job, JobLog, Status
from jobqueue.supervisor import WATCH_EVERY
from tests.processes import odd, tasks
from tests.processes.conftest import OPTIONS, Site, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

#: What a busy machine may add to a bound, in seconds.
SLACK = 4.0


def occupy(site: Site, task: Any, *args: Any) -> tuple[Any, float]:
    """Fill the one slot of a worker with a job that has a timeout of one second; returns it and
    the moment at which its time will be up."""
    job = task.using(timeout=1, max_attempts=1).enqueue(*args)
    return job, site.wait_for("begin", job.id)[0]["at"] + 1.0


def see_slot_work(site: Site, until: float) -> None:
    """The slot works again by `until`: a job that waited for it begins."""
    canary = tasks.quick.enqueue()
    begun = site.wait_for("begin", canary.id)[0]["at"]
    assert begun < until + SLACK
    site.wait_status(canary.id, Status.COMPLETED)


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        (tasks.waiting, [60]),
        (tasks.lasting, [60]),
        (odd.stubborn, []),
        (odd.deaf_once, []),
        (odd.deaf_once_async, []),
        (odd.writing, ["never"]),
    ],
    ids=["async", "loop", "swallows errors", "deaf once", "deaf once, async", "atomic"],
)
def test_code_that_lets_go(site, task, arguments):
    """The slot works again within a second, in the same process."""
    worker = site.start_ready("--concurrency", "1", options={"kill_after": 20.0})
    pids = worker.workers
    job, deadline = occupy(site, task, *arguments)
    see_slot_work(site, deadline + 1.0)

    row = site.wait_status(job.id, Status.FAILED)
    assert row.error == "TimedOut: the attempt ran longer than its timeout of 1 s"
    assert site.log_events(job.id) == ["timed_out"]
    (line,) = site.log_lines(job.id, JobLog.Event.TIMED_OUT)
    assert line.data["exception"] == "jobqueue.TimedOut"
    assert "traceback" in line.data
    assert worker.workers == pids
    assert not site.events("end", job.id)


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        (tasks.blocking, [60]),
        (odd.in_c_code, []),
        (odd.stubborn_async, []),
        (odd.blocking_the_loop, [60]),
        (odd.blocking_beside_the_loop, [60]),
    ],
    ids=["time.sleep", "C code", "swallows its cancellation", "blocks the loop", "sync_to_async"],
)
def test_code_that_does_not_let_go(site, task, arguments):
    """The slot works again within timeout + kill_after + the watch interval, in a new process;
    the outcome is written when the old one is dead."""
    worker = site.start_ready("--concurrency", "1")
    pids = worker.workers
    job, deadline = occupy(site, task, *arguments)
    see_slot_work(site, deadline + OPTIONS["kill_after"] + 3 * WATCH_EVERY + 1.0)

    row = site.wait_status(job.id, Status.FAILED)
    assert "longer than its timeout of 1 s" in row.error
    assert "replaced" in row.error
    assert site.log_events(job.id) == ["timed_out"]
    assert set(worker.workers).isdisjoint(pids)
    assert not site.events("end", job.id)


def test_no_retry_while_the_old_code_runs(site):
    """Another worker is idle all the time, and yet no two attempts overlap."""
    site.start_ready("--concurrency", "1")
    site.start_ready("--concurrency", "2")
    job = odd.beating.using(timeout=1.0, max_attempts=3).enqueue()
    row = site.wait_status(job.id, Status.FAILED, timeout=60)

    assert row.attempt == 3
    assert site.log_events(job.id) == ["timed_out"] * 3
    begun = {event["attempt"]: event["at"] for event in site.events("begin", job.id)}
    assert sorted(begun) == [1, 2, 3]
    for beat in site.events("beat", job.id):
        later = begun.get(beat["attempt"] + 1)
        assert later is None or beat["at"] < later, "the old code still ran"


def test_the_others_of_that_process(site):
    """They go on and finish; what outstays the grace time is given back, unspent."""
    worker = site.start_ready("--concurrency", "4", options={"grace": 6.0})
    (pid,) = worker.workers
    finishing, on_loop = tasks.until.enqueue("go"), odd.until_async.enqueue("go")
    outstaying = tasks.until.enqueue("never")
    for other in (finishing, on_loop, outstaying):
        site.wait_for("begin", other.id)
    job, _ = occupy(site, tasks.blocking, 60)
    wait_until(lambda: len(worker.workers) == 2, "the replacement")
    # The new process works while the old one is still there.
    canary = tasks.quick.enqueue()
    site.wait_status(canary.id, Status.COMPLETED)
    assert Job.objects.get(pk=job.id).status == Status.PROCESSING
    site.release("go")
    for other in (finishing, on_loop):
        assert site.wait_status(other.id, Status.COMPLETED).attempt == 1
    again = site.wait_for("begin", outstaying.id, 2)[-1]
    row = Job.objects.get(pk=outstaying.id)
    assert (row.attempt, row.given_back) == (2, 1)
    assert site.log_events(outstaying.id) == ["released"]
    assert again["pid"] != pid
    assert pid not in worker.workers
    row = site.wait_status(job.id, Status.FAILED)
    assert (row.attempt, row.given_back) == (1, 0)


def test_a_timeout_is_retried_and_counts(site):
    """Two attempts of two, whichever way they were ended; the lines they wrote are kept."""
    site.start_ready("--concurrency", "3")
    soft = tasks.lasting.using(timeout=1.5, max_attempts=2).enqueue(60)
    hard = odd.chatty.using(timeout=1.5, max_attempts=2).enqueue(3, "hang")
    for job in (soft, hard):
        row = site.wait_status(job.id, Status.FAILED, timeout=60)
        assert row.attempt == 2
        assert len(site.events("begin", job.id)) == 2
    lines = ["line 1", "line 2", "line 3"]
    log = list(JobLog.objects.filter(job=hard.id).order_by("pk").values_list("event", "message"))
    assert [event for event, _ in log] == (["note"] * 3 + ["timed_out"]) * 2
    assert [message for event, message in log if event == "note"] == lines * 2


def test_many_deadlines_at_once(site):
    """Jobs that end at about their deadline, on threads and on the loop, beside jobs without one."""
    worker = site.start_ready("--concurrency", "8")
    pids = worker.workers
    jobs = []
    for number in range(120):
        task = tasks.lasting if number % 2 else tasks.waiting
        timeout = 0.05 + (number % 10) * 0.002
        jobs.append(task.using(timeout=timeout, max_attempts=1).enqueue(0.055))
        jobs.append(task.using(timeout=None, max_attempts=1).enqueue(0.01))
    for number, job in enumerate(jobs):
        row = site.wait_status(job.id, Status.COMPLETED, Status.FAILED)
        if number % 2:
            assert row.status == Status.COMPLETED, row.error
        else:
            assert row.status == Status.COMPLETED or row.error.startswith("TimedOut")
        assert row.attempt == 1
    see_slot_work(site, time.monotonic() + 1)
    assert worker.workers == pids
    for words in ("could not be run", "was disturbed", "Exception in", "Exception ignored"):
        assert words not in worker.log
