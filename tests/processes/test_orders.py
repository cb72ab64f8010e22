"""What staff ask of workers: to be quiet, and to leave for good."""

from __future__ import annotations

import signal

import pytest

from jobqueue import orders
from jobqueue.models import Job, Status, Worker
from tests.processes import tasks
from tests.processes.conftest import is_alive, wait_gone, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def ask(order: str, *pids: int) -> int:
    return orders.ask(Worker.objects.filter(pid__in=pids), order, actor="Ada", reason="new release")


def test_quiet(site):
    """Nothing more is claimed, what runs goes on, the row confirms; its siblings go on as before."""
    supervisor = site.start_ready("--processes", "2", "--concurrency", "1")
    job = tasks.until.enqueue("go")
    pid = site.wait_for("begin", job.id)[0]["pid"]
    assert ask("quiet", pid) == 1
    wait_until(Worker.objects.filter(pid=pid, state="quiet").exists, "it to be quiet")
    row = Worker.objects.get(pid=pid)
    assert (row.asked, row.asked_by, row.asked_reason) == ("quiet", "Ada", "new release")
    assert row.memory > 1_000_000
    site.release("go")
    assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
    others = [tasks.quick.enqueue() for _ in range(10)]
    for each in others:
        assert f":{pid}:" not in site.wait_status(each.id, Status.COMPLETED).worker
    assert is_alive(pid)
    # The one that is quiet already is not asked again.
    assert ask("quiet", *supervisor.workers) == 1
    wait_until(lambda: Worker.objects.filter(state="quiet").count() == 2, "both to be quiet")
    waiting = tasks.quick.enqueue()
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert Job.objects.get(pk=waiting.id).attempt == 0


@pytest.mark.parametrize("before", ["running", "quiet"])
def test_stop(site, before):
    """What ends in the grace time is completed, the rest is handed back unspent; the process goes
    and no other one takes its place."""
    supervisor = site.start_ready("--processes", "2", "--concurrency", "4", "--grace", "1")
    job = tasks.lasting.using(max_attempts=1).enqueue(60)
    pid = site.wait_for("begin", job.id)[0]["pid"]
    stubborn = tasks.blocking.using(max_attempts=1).enqueue(60)
    short = tasks.lasting.enqueue(0.5)
    for each in (stubborn, short):
        site.wait_for("begin", each.id)
    (other,) = {*supervisor.workers} - {pid}
    if before == "quiet":
        ask("quiet", other)
        wait_until(Worker.objects.filter(pid=other, state="quiet").exists, "it to be quiet")
    assert ask("stop", pid, other) == 2
    assert ask("stop", pid, other) == ask("quiet", pid, other) == 0
    wait_until(lambda: Worker.objects.filter(state="stopping").count() >= 1, "it to be heard")
    wait_gone(pid, other)

    assert supervisor.wait() == 0, supervisor.log
    assert supervisor.log.count(" started.") == 2, supervisor.log
    assert site.wait_status(short.id, Status.COMPLETED).attempt == 1
    for each in (job, stubborn):
        row = Job.objects.get(pk=each.id)
        assert (row.status, row.attempt, row.given_back) == (Status.QUEUED, 1, 1)
        assert site.log_events(each.id) == ["released"]
    assert not Worker.objects.exclude(state=Worker.State.GONE).exists()


def test_one_of_two_stops_and_the_other_works_on(site):
    supervisor = site.start_ready("--processes", "2")
    leaving, staying = supervisor.workers
    assert ask("stop", leaving) == 1
    wait_gone(leaving)
    wait_until(lambda: not Worker.objects.filter(pid=leaving).exists(), "its row to go")
    wait_until(lambda: "has left (dismissed)" in supervisor.log, "the supervisor to know")
    job = tasks.quick.enqueue()
    assert f":{staying}:" in site.wait_status(job.id, Status.COMPLETED).worker
    # One that dies is replaced as ever, and only that one.
    deadly = tasks.deadly.using(max_attempts=1).enqueue()
    site.wait_status(deadly.id, Status.FAILED)
    wait_gone(staying)
    again = tasks.quick.enqueue()
    site.wait_status(again.id, Status.COMPLETED)
    (newcomer,) = supervisor.workers
    assert newcomer not in (leaving, staying)
    assert supervisor.log.count(" started.") == 3


def test_a_worker_that_is_gone_is_not_asked(site):
    supervisor = site.start_ready()
    (pid,) = supervisor.workers
    supervisor.kill_all()
    Worker.objects.filter(pid=pid).update(state=Worker.State.GONE)
    assert ask("stop", pid) == 0
    with pytest.raises(ValueError, match="dance"):
        ask("dance", pid)


@pytest.mark.postgres
def test_who_holds_the_row_holds_up_nothing(site):
    """Then the order waits, and jobs do not."""
    from tests.lifecycle.acts import held

    supervisor = site.start_ready()
    row = Worker.objects.get()
    with held(row):
        job = tasks.quick.enqueue()
        site.wait_status(job.id, Status.COMPLETED)
    ask("stop", row.pid)
    assert supervisor.wait() == 0
