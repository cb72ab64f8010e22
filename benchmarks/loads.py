"""What happens to the figures when the table is not empty: backlogs, old rows, an old snapshot, many sleepers."""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

from benchmarks import figures, tasks
from benchmarks.figures import PAYLOAD, read, recorded, worker
from jobqueue import comparing, enqueue_many, healing
from jobqueue.models import Job, Worker

#: Async jobs in two processes, as in the drain that these are compared with.
WORKER = ("--processes", "2", "--concurrency", "100")

FILL = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, max_attempts, timeout, attempt, given_back,
    worker, error, status, run_after, enqueued_at, started_at, attempted_at, finished_at)
SELECT
    -- As the queue's own ids: they go up.
    ('01900000-0000-7000-8000-' || lpad(to_hex(number), 12, '0'))::uuid,
    'benchmarks.tasks.async_noop', jsonb_build_array(number, '{}'::jsonb), '{}',
    'default', 0, 5, 60, %s, 0, '', '', %s, now() + %s::interval, now(), NULL, NULL, %s
FROM generate_series(0, %s - 1) AS number
"""


def rate(moments: list[int]) -> float:
    """Jobs a second between the first and the last of these moments (ns)."""
    return (len(moments) - 1) / ((moments[-1] - moments[0]) / 1e9)


def fill(url: str, rows: int, status: str, *, later: timedelta = timedelta()) -> None:
    """Insert so many jobs of a status past the queue: in a minute what would take it an hour."""
    finished = status in ("completed", "failed", "cancelled")
    with psycopg.connect(url, autocommit=True) as connection:
        ended = "now" if finished else None
        connection.execute(FILL, (int(finished), status, later, ended, rows))
        connection.execute("VACUUM (ANALYZE) jobqueue_job")


def enqueue(jobs: int) -> None:
    """Enqueue async no-ops."""
    for start in range(0, jobs, 5_000):
        numbers = range(start, min(start + 5_000, jobs))
        enqueue_many(tasks.async_noop.bind(number, PAYLOAD) for number in numbers)


def first_jobs(records: Path, count: int) -> list[int]:
    """When the first `count` jobs started (ns), of a worker that is then told to end."""
    records.unlink(missing_ok=True)
    with worker(records, *WORKER) as process:
        deadline = time.monotonic() + figures.PATIENCE
        while recorded(records) < count and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return sorted(at for _, _, at, _ in read(records))[:count]


def plain_rate(records: Path, jobs: int = 20_000) -> float:
    """The drain that the others are compared with: of an otherwise empty table."""
    figures.empty()
    enqueue(jobs)
    figures.vacuum()
    return rate(first_jobs(records, jobs))


def under_a_snapshot(url: str, records: Path, jobs: int = 300_000) -> float:
    """The rate of the last 10,000 jobs as a part of that of the first 10,000, while another session
    holds a snapshot from before all of them, as pg_dump does."""
    figures.empty()
    enqueue(jobs)
    figures.vacuum()
    with held_snapshot(url):
        moments = first_jobs(records, jobs)
    return rate(moments[-10_000:]) / rate(moments[:10_000])


@contextlib.contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """A transaction that could still see all rows as they are now."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM jobqueue_queue")
        yield


def among_finished(url: str, records: Path, plain: float, rows: int) -> float:
    """The rate with so many finished jobs in the table, as a part of the plain one."""
    figures.empty()
    fill(url, rows, "completed")
    enqueue(20_000)
    return rate(first_jobs(records, 20_000)) / plain


def among_queued(url: str, records: Path, plain: float, rows: int) -> float:
    """The rate of the first 20,000 of so many queued jobs, as a part of the plain one."""
    figures.empty()
    fill(url, rows, "queued")
    fill_redis()
    return rate(first_jobs(records, 20_000)) / plain


def fill_redis() -> None:
    """Put all that is queued in line, where Redis is used, as it was when it was enqueued."""
    shelf = comparing.own_shelf()
    if shelf is not None:
        figures.forget_redis()
        healing.refill(shelf)
        shelf.line.close()


def among_later(url: str, records: Path, rows: int = 100_000) -> float:
    """The rate of 2,000 ready jobs among so many that are due tomorrow, as a part of that of 2,000
    alone. Medians of three: they take a fraction of a second."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for crowded in (False, True, False, True, False, True):
        figures.empty()
        if crowded:
            fill(url, rows, "scheduled", later=timedelta(days=1))
        enqueue(2_000)
        rates[crowded].append(rate(first_jobs(records, 2_000)))
    return statistics.median(rates[True]) / statistics.median(rates[False])


def idle_memory(records: Path) -> float:
    """MB (PSS: shared pages counted once) of a supervisor and two idle workers."""
    figures.empty()
    with worker(records, "--processes", "2") as process:
        deadline = time.monotonic() + figures.PATIENCE
        while Worker.objects.count() < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(3)
        tree = [process.pid, *Worker.objects.values_list("pid", flat=True)]
        return sum(_pss(pid) for pid in tree) / 1024


def _pss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


@dataclass(frozen=True)
class Sleepers:
    """What became of a load of jobs that mostly wait. `deepest` is the most that were queued at once,
    `open` how many had not ended when they should have, `p95` in how many seconds after they were
    enqueued 95 % of the urgent ones were done."""

    jobs: int
    deepest: int
    open: int
    urgent: int
    p95: float


def sleepers(records: Path, seconds: float) -> Sleepers:
    """100 jobs a second, 7 in 10 of them payments of 1 to 5 s that fail 3 in 10 times, 1 in 10
    urgent; then wait for their end."""
    figures.empty()
    chance = random.Random(1)
    deepest, number = 0, 0
    urgent = []
    with worker(records, "--processes", "2", "--concurrency", "250") as process:
        deadline = time.monotonic() + figures.PATIENCE
        while Worker.objects.count() < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            for _ in range(int((now - begin) * 100) - number):
                number += 1
                if chance.random() < 0.7:
                    tasks.payment.enqueue(number, chance.uniform(1, 5))
                elif chance.random() < 1 / 3:
                    urgent.append(tasks.async_noop.using(priority=50).enqueue(number, PAYLOAD).id)
                else:
                    tasks.async_noop.enqueue(number, PAYLOAD)
            deepest = max(deepest, _queued())
            time.sleep(0.05)
        open_ones = Job.objects.exclude(status__in=["completed", "failed", "cancelled"])
        deadline = time.monotonic() + tasks.PAYMENT_PATIENCE
        while (left := open_ones.count()) and time.monotonic() < deadline:
            deepest = max(deepest, _queued())
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    rows = Job.objects.filter(pk__in=urgent).values_list("enqueued_at", "finished_at")
    took = sorted(
        (finished - enqueued).total_seconds() if finished else float("inf")
        for enqueued, finished in rows
    )
    return Sleepers(number, deepest, left, len(took), took[int(len(took) * 0.95)])


def _queued() -> int:
    return Job.objects.filter(status="queued").count()
