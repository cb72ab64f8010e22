"""Whatever happens to Redis while workers run: every job runs once, and in seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import jobqueue
from jobqueue import enqueue_many
from jobqueue.models import Job, Queue, Status
from jobqueue.ready import Ready, Shelf, cancelled, pushing
from tests.conftest import use_redis
from tests.factories import JobFactory, now
from tests.processes import tasks
from tests.processes.conftest import PATIENCE, Site, Supervised, wait_until
from tests.servers import PrivateRedis

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.fixture
def shelf(on_redis: Shelf, site: Site) -> Shelf:
    """The sets of the Redis that the site uses."""
    return on_redis


def pause(queue: str) -> None:
    Queue.objects.update_or_create(name=queue, defaults={"paused_at": now()})


def wait_all(status: str = Status.COMPLETED, timeout: float = 2 * PATIENCE) -> None:
    """Wait until all jobs have this status."""
    others = Job.objects.exclude(status=status)
    wait_until(
        lambda: not others.exists(),
        lambda: f"all jobs to be {status}: {Counter(others.values_list('status', flat=True))}",
        timeout,
    )


def assert_each_once(site: Site) -> None:
    runs = Counter(event["job"] for event in site.events("begin"))
    assert set(runs) == {str(pk) for pk in Job.objects.values_list("pk", flat=True)}
    assert set(runs.values()) == {1}
    assert not Job.objects.exclude(attempt=1).exists()


def see_redis_used(site: Site, shelf: Shelf) -> None:
    """The workers have come back to Redis: an idle one waits there for the next id."""

    def somebody_waits() -> bool:
        (clients,) = shelf.line.ask(("CLIENT", "LIST"))
        return b"cmd=bzpopmin" in clients.lower()

    wait_until(somebody_waits, "a worker to wait at Redis")
    site.wait_status(tasks.quick.enqueue().id, Status.COMPLETED)


def test_jobs_come_from_redis(site: Site, shelf: Shelf) -> None:
    site.start_ready(options={"tick": 20.0})
    see_redis_used(site, shelf)
    job = tasks.quick.enqueue()
    # Long before a tick: by Redis.
    site.wait_status(job.id, Status.COMPLETED, timeout=10)
    assert shelf.size("default") == 0


def test_priority_and_age_decide(site: Site, shelf: Shelf) -> None:
    """Ten thousand jobs of three priorities, from four processes, faster than one a millisecond."""
    program = (
        "import django; django.setup()\n"
        "from jobqueue import enqueue_many\n"
        "from tests.processes.tasks import quick\n"
        "for start in range(0, 2_500, 100):\n"
        "    enqueue_many(quick.using(priority=(n % 3) - 1).bind(n)"
        " for n in range(start, start + 100))\n"
    )
    environment = site._environment()
    writers = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(4)]
    assert [writer.wait(PATIENCE) for writer in writers] == [0] * 4
    assert shelf.size("default") == 10_000
    order: list[Job] = []
    rows = Job.objects.in_bulk()
    while True:
        ids, taken = shelf.pop("default", 300)
        order += [rows[pk] for pk in ids]
        if taken < 300:
            break
    assert len(order) == 10_000
    for earlier, later in pairwise(order):
        assert (-earlier.priority, earlier.pk) < (-later.priority, later.pk)
    # Within one process ids only go up, so the order of the ids is that of the calls.
    assert all(a.args[0] < b.args[0] for a, b in pairwise(rows_of_one_process(order)))


def rows_of_one_process(order: list[Job]) -> list[Job]:
    """Jobs of one priority whose ids share a process's counter, in their order."""
    of_one = [job for job in order if job.priority == 0]
    # The counters of two processes are far apart.
    first = of_one[0].pk.int >> 60 & 0xFFF
    return [job for job in of_one if job.pk.int >> 60 & 0xFFF == first]


def test_everything_is_flushed_while_workers_are_busy(site: Site, shelf: Shelf) -> None:
    enqueue_many(tasks.quick.bind(number) for number in range(5_000))
    for _ in range(500):
        JobFactory(task_path="tests.processes.tasks.quick", scheduled=True, run_after=now())
    site.start("--processes", "2", "--concurrency", "8", options={"tick": 1.0})
    wait_until(lambda: len(site.events("begin")) > 500, "workers to be busy")
    shelf.line.ask(("FLUSHALL",))
    flushed = time.monotonic()
    wait_until(shelf.remembers, "Redis to be filled again", timeout=20)
    assert time.monotonic() - flushed < 10, "it takes two seconds; this machine may be busy"
    wait_all(timeout=120)
    assert_each_once(site)


def test_redis_stops_under_load_and_comes_back_empty(
    site: Site, shelf: Shelf, private_redis: PrivateRedis
) -> None:
    worker = site.start_ready("--processes", "2")
    see_redis_used(site, shelf)
    private_redis.stop()
    slowest, until = 0.0, time.monotonic() + 20
    jobs = []
    while time.monotonic() < until:
        began = time.monotonic()
        jobs.append(tasks.quick.enqueue())
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.01)
    assert slowest < 2, "half a second is promised; this machine may be busy"
    wait_all(timeout=10)  # by the database
    assert len(jobs) > 200, "the load"
    private_redis.start()
    wait_until(lambda: is_up(shelf), "Redis to be back")
    wait_until(shelf.remembers, "its memory to be filled")
    see_redis_used(site, shelf)
    wait_all()
    assert_each_once(site)
    wait_until(lambda: worker.log.count("Redis works again") == 2, "both workers to say so")
    assert worker.log.count("Redis does not work") == 2, "each worker process says so once"


def is_up(shelf: Shelf) -> bool:
    try:
        shelf.line.ask(("PING",))
    except Exception:
        return False
    return True


def test_killed_between_commit_and_push(site: Site, shelf: Shelf) -> None:
    site.start_ready()
    see_redis_used(site, shelf)
    program = (
        "import django, os, signal; django.setup()\n"
        "from jobqueue import dispatch\n"
        "from tests.processes.tasks import quick\n"
        "dispatch.push = lambda jobs: os.kill(os.getpid(), signal.SIGKILL)\n"
        "quick.enqueue()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=site._environment(), check=False, timeout=PATIENCE
    )
    assert ran.returncode == -9
    wait_all(timeout=10)
    assert_each_once(site)


def test_killed_between_pop_and_claim(site: Site, shelf: Shelf) -> None:
    jobs = [tasks.quick.enqueue() for _ in range(20)]
    own = pushing._shelf()
    assert own is not None
    own.line.ask(("PING",))
    ids, _ = shelf.pop("default", 20)  # as one who claims none of them
    assert len(ids) == len(jobs)
    site.start_ready()
    wait_all(timeout=10)
    assert_each_once(site)


def test_what_does_not_belong_there(site: Site, shelf: Shelf) -> None:
    finished = [JobFactory(completed=True), JobFactory(failed=True), JobFactory(cancelled=True)]
    elsewhere = JobFactory(queue_name="unserved")
    before = {job.pk: Job.objects.filter(pk=job.pk).values().get() for job in finished}
    for job in [*finished, elsewhere]:
        shelf.push([Ready(job.pk, "default", 100)])
    shelf.line.ask(("ZADD", shelf.key("default"), -100, "no id", 5, b"\xff\xfe"))
    jobs = [tasks.quick.enqueue() for _ in range(30)]
    worker = site.start_ready("--queues", "default")
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED)
    wait_until(lambda: shelf.size("default") == 0, "the line to be empty")
    for pk, row in before.items():
        assert Job.objects.filter(pk=pk).values().get() == row
    assert Job.objects.get(pk=elsewhere.pk).status == Status.QUEUED
    assert {event["job"] for event in site.events("begin")} == {job.id for job in jobs}
    assert "Traceback" not in worker.log


def test_a_key_of_another_type(site: Site, shelf: Shelf) -> None:
    worker = site.start_ready()
    see_redis_used(site, shelf)
    for _ in range(3):
        shelf.clear("default")
        shelf.line.ask(("LPUSH", shelf.key("default"), "somebody else's"))
        job = tasks.quick.enqueue()
        site.wait_status(job.id, Status.COMPLETED, timeout=10)
    wait_until(lambda: shelf.type_of("default") in ("zset", "none"), "the key to be put right")
    see_redis_used(site, shelf)
    assert_each_once(site)
    assert "Traceback" not in worker.log


@pytest.fixture
def small_redis(
    request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shelf]:
    """A Redis with no room for anything more, and a policy for that."""
    with (
        PrivateRedis(maxmemory="3mb", **{"maxmemory-policy": request.param}) as server,
        use_redis(server.url, settings, monkeypatch) as shelf,
    ):
        yield shelf


@pytest.mark.parametrize("small_redis", ["noeviction", "allkeys-lru"], indirect=True)
def test_the_memory_is_full(small_redis: Shelf, site: Site, request: pytest.FixtureRequest) -> None:
    fill(small_redis)
    worker = site.start_ready()
    evicts = "allkeys" in request.node.name
    if evicts:
        wait_until(lambda: "may evict" in worker.log, "a warning of that")
    jobs = [tasks.quick.enqueue() for _ in range(20)]
    fill(small_redis)
    jobs += [tasks.quick.enqueue() for _ in range(20)]
    wait_all(timeout=30)
    assert_each_once(site)
    assert len(jobs) == Job.objects.count()
    assert worker.log.count("may evict") == evicts


def fill(shelf: Shelf) -> None:
    for number in range(400):
        try:
            shelf.line.ask(("SET", f"filler-{number}", "x" * 20_000))
        except Exception:
            return


def refuse_writes(shelf: Shelf) -> None:
    shelf.line.ask(("REPLICAOF", "127.0.0.1", 1))


def allow_writes(shelf: Shelf) -> None:
    shelf.line.ask(("REPLICAOF", "NO", "ONE"))


def change_password(shelf: Shelf) -> None:
    shelf.line.ask(
        ("CONFIG", "SET", "requirepass", "another"),
        ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    )


def change_password_back(shelf: Shelf) -> None:
    shelf.line.ask(("CONFIG", "SET", "requirepass", shelf.old_password))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spoil", "repair"),
    [(refuse_writes, allow_writes), (change_password, change_password_back)],
    ids=["read-only", "auth lost"],
)
def test_redis_refuses(
    site: Site,
    shelf: Shelf,
    private_redis: PrivateRedis,
    spoil: Callable[[Shelf], None],
    repair: Callable[[Shelf], None],
) -> None:
    shelf.old_password = private_redis.password  # type: ignore[attr-defined]
    worker: Supervised = site.start_ready()
    see_redis_used(site, shelf)
    spoil(shelf)
    jobs = []
    for _ in range(30):
        jobs.append(tasks.quick.enqueue())
        time.sleep(0.05)
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED, timeout=10)
    repair(shelf)
    see_redis_used(site, shelf)
    assert_each_once(site)
    wait_until(lambda: "Redis works again" in worker.log, "the worker to say so")
    assert worker.log.count("Redis does not work") == 1


def test_connections_are_cut_again_and_again(
    site: Site, shelf: Shelf, private_redis: PrivateRedis
) -> None:
    worker = site.start_ready("--processes", "2")
    see_redis_used(site, shelf)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        tasks.quick.enqueue()
        shelf.line.ask(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        shelf.line.ask(("CLIENT", "KILL", "TYPE", "pubsub"))
        time.sleep(0.02)
    for _ in range(2):
        private_redis.restart()
        tasks.quick.enqueue()
    wait_until(lambda: is_up(shelf), "Redis to be back")
    wait_until(shelf.remembers, "its memory to be filled")
    see_redis_used(site, shelf)
    wait_all()
    assert_each_once(site)
    assert "Traceback" not in worker.log


def test_many_are_due_in_the_same_second(site: Site, shelf: Shelf) -> None:
    """Three workers promote them, one of which is killed again and again."""
    path = "tests.processes.tasks.quick"
    tomorrow = now() + timedelta(days=1)
    for _ in range(200):
        JobFactory(task_path=path, scheduled=True, run_after=tomorrow, max_attempts=100)
    supervised = site.start_ready("--processes", "3")
    assert shelf.size("default") == 0, "what is not due is not in line"
    due = now() + timedelta(seconds=0.5)
    Job.objects.update(run_after=due)
    wait_until(lambda: now() >= due, "the moment")
    for _ in range(5):
        if workers := supervised.workers:
            os.kill(workers[0], signal.SIGKILL)
        time.sleep(0.05)
    wait_all()
    for job in Job.objects.all():
        assert len(site.events("begin", job.pk)) <= job.attempt
        assert len(site.events("end", job.pk)) >= 1
    ended = Job.objects.filter(attempt=1)
    for job in ended:
        assert len(site.events("begin", job.pk)) == 1


@pytest.mark.parametrize("queue", ["marker", "refill", "ready:default", "{a}:b", "ö *?[x]"])
def test_a_queue_may_have_any_name(site: Site, shelf: Shelf, queue: str) -> None:
    site.start_ready()
    see_redis_used(site, shelf)
    job = tasks.quick.using(queue_name=queue).enqueue()
    site.wait_status(job.id, Status.COMPLETED, timeout=10)
    wait_until(lambda: shelf.size(queue) == 0, "the line to be empty")
    assert shelf.remembers()


def test_an_old_snapshot(site: Site, shelf: Shelf) -> None:
    """Redis has its marker, ids of jobs that ran long ago, and none of those that wait."""
    old = [tasks.quick.enqueue() for _ in range(50)]
    site.start_ready(options={"tick": 0.5})
    wait_all()
    pause("default")
    new = [tasks.quick.enqueue() for _ in range(50)]
    shelf.clear("default")
    shelf.push([Ready(Job.objects.get(pk=job.id).pk, "default", 0) for job in old])
    Queue.objects.filter(name="default").update(paused_at=None)
    wait_all(timeout=15)
    assert_each_once(site)
    assert len(new) == 50


def test_a_queue_is_paused_while_a_worker_waits_for_it(site: Site, shelf: Shelf) -> None:
    site.start_ready()
    see_redis_used(site, shelf)
    pause("default")
    jobs = [tasks.quick.enqueue() for _ in range(5)]
    other = tasks.quick.using(queue_name="other").enqueue()
    site.wait_status(other.id, Status.COMPLETED, timeout=10)
    waiting = Job.objects.filter(pk__in=[job.id for job in jobs])
    assert set(waiting.values_list("status", flat=True)) == {"queued"}
    Queue.objects.filter(name="default").update(paused_at=None)
    for job in jobs:
        site.wait_status(job.id, Status.COMPLETED, timeout=10)
    assert_each_once(site)


def test_a_cancellation_is_heard_at_once(site: Site, shelf: Shelf) -> None:
    site.start_ready(options={"lease": 60.0, "heartbeat": 30.0})
    job = tasks.lasting.enqueue(60)
    site.wait_for("begin", job.id)
    assert jobqueue.cancel(job.id, reason="not wanted")
    wait_until(
        lambda: Job.objects.filter(pk=job.id, lease_owner=None).exists(),
        "the job to be let go of, long before a heartbeat",
        timeout=15,
    )
    assert Job.objects.get(pk=job.id).status == Status.CANCELLED


def test_a_cancellation_that_nobody_heard_of_is_seen_with_the_next_tick(
    site: Site, shelf: Shelf
) -> None:
    site.start_ready(options={"lease": 60.0, "heartbeat": 30.0, "tick": 2.0})
    job = tasks.lasting.enqueue(60)
    site.wait_for("begin", job.id)
    wait_until(
        lambda: shelf.line.ask(("PUBSUB", "NUMSUB", shelf.channel))[0][1], "the worker to listen"
    )
    shelf.line.ask(("CLIENT", "KILL", "TYPE", "pubsub"))
    assert jobqueue.cancel(job.id, reason="not wanted")
    wait_until(
        lambda: Job.objects.filter(pk=job.id, lease_owner=None).exists(),
        "the job to be let go of, long before a heartbeat",
        timeout=15,
    )


def test_a_late_word_of_a_cancellation_stops_nobody(site: Site, shelf: Shelf) -> None:
    """The job was cancelled, requeued and claimed again; only then the word comes."""
    site.start_ready()
    job = tasks.until.enqueue("go")
    site.wait_for("begin", job.id)
    for _ in range(5):
        cancelled([Job.objects.get(pk=job.id).pk])
    # The worker has read it when it has also done this job.
    site.wait_status(tasks.quick.enqueue().id, Status.COMPLETED)
    site.release("go")
    site.wait_status(job.id, Status.COMPLETED)
    assert_each_once(site)


def test_two_sites_on_one_redis(site: Site, shelf: Shelf, private_redis: PrivateRedis) -> None:
    """With other prefixes they never touch each other's keys."""
    other = "{other}:ready:default"
    shelf.line.ask(("ZADD", other, 0, "theirs"), ("SET", "{other}:marker", "theirs"))
    site.start_ready()
    see_redis_used(site, shelf)
    reconcile = site.manage("reconcile")
    reconcile.communicate(timeout=PATIENCE)
    assert reconcile.returncode == 0
    scores = shelf.line.ask(("ZSCORE", other, "theirs"), ("GET", "{other}:marker"))
    assert scores == [b"0", b"theirs"]
