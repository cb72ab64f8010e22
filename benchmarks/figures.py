"""The figures: how each is measured, on a migrated site whose database is DATABASE_URL."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import floor, tasks
from jobqueue import enqueue_many
from jobqueue.models import Job, Worker

PAYLOAD = {"order": "1234567", "kind": "noop"}
PATIENCE = 300.0


@dataclass
class Figure:
    """One line of the table: the values of all rounds, and those of the floor beside them."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    wanted: str = ""

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """The median as a part of the floor's."""
        return self.median / statistics.median(self.floor) if self.floor else None


def enqueue_one_by_one(jobs: int) -> float:
    """Jobs a second, one ordinary call after the other, in autocommit."""
    empty()
    begin = time.perf_counter()
    for number in range(jobs):
        tasks.sync_noop.enqueue(number, PAYLOAD)
    return jobs / (time.perf_counter() - begin)


def enqueue_many_calls(jobs: int, call: int = 5_000) -> float:
    """Jobs a second in calls of `call` jobs, the making of the calls included."""
    empty()
    begin = time.perf_counter()
    for start in range(0, jobs, call):
        enqueue_many(
            tasks.sync_noop.bind(number, PAYLOAD)
            for number in range(start, min(start + call, jobs))
        )
    return jobs / (time.perf_counter() - begin)


def drain(task: Any, jobs: int, processes: int, concurrency: int, records: Path) -> float:
    """Jobs a second from the first start to the last, with everything queued beforehand.

    Raises RuntimeError unless each job ran exactly once and is completed.
    """
    empty()
    for start in range(0, jobs, 5_000):
        enqueue_many(task.bind(n, PAYLOAD) for n in range(start, min(start + 5_000, jobs)))
    vacuum()
    records.unlink(missing_ok=True)
    arguments = ["--processes", str(processes), "--concurrency", str(concurrency), "--burst"]
    with worker(records, *arguments) as process:
        process.wait(PATIENCE)
    entries = read(records)
    counts = Counter(number for number, *_ in entries)
    completed = Job.objects.filter(status="completed", attempt=1).count()
    if len(counts) != jobs or max(counts.values()) != 1 or completed != jobs:
        raise RuntimeError(f"{len(counts)} of {jobs} jobs ran, {completed} completed in attempt 1")
    moments = sorted(at for _, _, at, _ in entries)
    return (jobs - 1) / ((moments[-1] - moments[0]) / 1e9)


def floor_drain(url: str, rows: int, processes: int, batch: int) -> float:
    """Rows a second that plain processes claim and complete in batches."""
    floor.make(url, rows)
    command = [sys.executable, "-m", "benchmarks.floor", "drain", url, str(batch)]
    begin = time.perf_counter()
    started = [subprocess.Popen(command) for _ in range(processes)]
    for process in started:
        if process.wait(PATIENCE):
            raise RuntimeError("the floor's process failed")
    # Without the interpreters' start, which the drain of the queue is measured without too.
    start = _start_time(command)
    return rows / max(time.perf_counter() - begin - start, 1e-3)


def _start_time(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True)  # the table is empty now
    return time.perf_counter() - begin


def pick_up(jobs: int, records: Path, every: float = 0.05) -> list[float]:
    """Milliseconds from the start of the enqueue call to the start of the function, workers idle."""
    empty()
    records.unlink(missing_ok=True)
    sent = {}
    with worker(records, "--processes", "2") as process:
        deadline = time.monotonic() + PATIENCE
        while Worker.objects.count() < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        warm_up = 20
        begin = time.monotonic()
        for number in range(jobs + warm_up):
            time.sleep(max(0.0, begin + number * every - time.monotonic()))
            sent[number] = time.monotonic_ns()
            tasks.sync_noop.enqueue(number, PAYLOAD)
        while recorded(records) < jobs + warm_up and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    picked = {number: at for number, _, at, _ in read(records)}
    return [(picked[n] - sent[n]) / 1e6 for n in range(warm_up, jobs + warm_up)]


def empty() -> None:
    """Begin anew: no jobs, no workers, and nothing in Redis."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobqueue_job, jobqueue_joblog, jobqueue_worker")
    else:
        Worker.objects.all().delete()
        Job.objects.all().delete()
    forget_redis()
    vacuum()


def forget_redis() -> None:
    """Empty Redis, where it is used."""
    if url := os.environ.get("JOBQUEUE_BENCH_REDIS"):
        import redis

        redis.Redis.from_url(url).flushdb()


def vacuum() -> None:
    """What autovacuum would do in its own time, so that no round pays for the one before."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE jobqueue_job")


@contextlib.contextmanager
def worker(records: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `runworker` whose jobs record themselves in that file."""
    command = [sys.executable, "-m", "django", "runworker", "--verbosity", "0", *arguments]
    environment = os.environ | {"JOBQUEUE_BENCH_RECORDS": str(records)}
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def recorded(records: Path) -> int:
    """How many have recorded something so far. Asked again and again, so it reads nothing: whoever measures
    shares the processors with what is measured."""
    return records.stat().st_size // tasks.RECORD.size if records.exists() else 0


def read(records: Path) -> list[tuple[int, int, int, int]]:
    """What the jobs have recorded so far."""
    if not records.exists():
        return []
    data = records.read_bytes()
    whole = len(data) - len(data) % tasks.RECORD.size
    return list(tasks.RECORD.iter_unpack(data[:whole]))
