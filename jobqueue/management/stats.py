"""How the queues and the workers stand, counted without reading a job that has ended well."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min

from jobqueue import clock, conf, tallies
from jobqueue.management.terminal import clock_time, counted, cut, duration, table
from jobqueue.models import Job, Queue, Status, Worker, worker_name

#: Characters of a queue's name in the table.
NAME = 24

#: How attempts end, as charts count them.
ENDINGS = ("completed", "retried", "failed")

QUEUES = ("QUEUE", "QUEUED", "SCHEDULED", "RUNNING", "STOPPING", "FAILED", "OLDEST", "PAUSED")
WORKERS = ("WORKER", "STATE", "BUSY", "SLOTS", "HEARTBEAT", "QUEUES")


@dataclass(slots=True)
class QueueStats:
    """One queue. `oldest_wait` is in seconds: how long the longest queued job could have run.
    `last_hour` says how attempts ended in it: completed, retried, failed."""

    queue: str
    queued: int = 0
    scheduled: int = 0
    processing: int = 0
    stopping: int = 0
    failed: int = 0
    oldest_wait: float | None = None
    paused: bool = False
    paused_until: datetime | None = None
    paused_by: str = ""
    pause_reason: str = ""
    last_hour: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDINGS, 0))


@dataclass(slots=True)
class WorkerStats:
    """One worker process not marked as gone. `silent`: no heartbeat for a whole lease. `asked` is
    what staff want of it; `memory` is in bytes."""

    id: str
    name: str
    state: str
    queues: list[str]
    slots: int
    busy: int
    heartbeat_age: float
    silent: bool
    asked: str
    memory: int | None


@dataclass(slots=True)
class Stats:
    """All of it at one moment."""

    at: datetime
    queues: list[QueueStats] = field(default_factory=list)
    workers: list[WorkerStats] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints; times are ISO 8601, durations seconds."""
        slots = {
            "total": sum(worker.slots for worker in self.workers),
            "busy": sum(worker.busy for worker in self.workers),
        }
        return asdict(self) | {"slots": slots}

    def as_text(self) -> str:
        """Two tables for people."""
        lines = [clock_time(self.at), ""]
        if self.queues:
            rows = [_queue_row(queue) for queue in self.queues]
            lines.append(table(QUEUES, rows, right=QUEUES[1:-1]))
            ended = {name: sum(each.last_hour[name] for each in self.queues) for name in ENDINGS}
            said = ", ".join(f"{number:,} {name}" for name, number in ended.items())
            lines.append(f"In the last hour: {said}")
        else:
            lines.append("No queues yet: no job waits or runs, and none has failed.")
        lines.append("")
        if self.workers:
            rows = [_worker_row(worker) for worker in self.workers]
            lines.append(table(WORKERS, rows, right={"BUSY", "SLOTS"}))
            total = sum(worker.slots for worker in self.workers)
            busy = sum(worker.busy for worker in self.workers)
            lines.append(
                f"{counted(len(self.workers), 'worker')}, {busy:,} of {counted(total, 'slot')} busy"
            )
        else:
            lines.append("No workers.")
        return "\n".join(lines)


def gather() -> Stats:
    """Count. Every query is served by one of the partial indexes, whatever has ended before."""
    using = conf.options().database
    jobs = Job.objects.using(using)
    now = clock.now(using)
    queues: dict[str, QueueStats] = {}
    busy: dict[Any, int] = {}

    def queue(name: str) -> QueueStats:
        return queues.setdefault(name, QueueStats(name))

    waiting = jobs.filter(status=Status.QUEUED).values_list("queue_name")
    for name, number, oldest in waiting.annotate(Count("pk"), Min("run_after")).order_by():
        queue(name).queued = number
        queue(name).oldest_wait = round(max((now - oldest).total_seconds(), 0.0), 3)
    later = jobs.filter(status=Status.SCHEDULED).values_list("queue_name")
    for name, number in later.annotate(Count("pk")).order_by():
        queue(name).scheduled = number
    failed = jobs.filter(status=Status.FAILED).values_list("queue_name")
    for name, number in failed.annotate(Count("pk")).order_by():
        queue(name).failed = number
    leased = jobs.filter(lease_owner__isnull=False)
    held = leased.values_list("queue_name", "status", "lease_owner")
    for name, status, owner, number in held.annotate(Count("pk")).order_by():
        busy[owner] = busy.get(owner, 0) + number
        if status == Status.CANCELLED:
            queue(name).stopping += number
        else:
            queue(name).processing += number
    for row in Queue.objects.using(using):
        if row.is_paused(now):
            stats = queue(row.name)
            stats.paused, stats.paused_until = True, row.paused_until
            stats.paused_by, stats.pause_reason = row.paused_by, row.pause_reason
        queue(row.name)
    for name, bars in tallies.by_queue("1h").items():
        if name in queues:
            ended = {each: sum(getattr(bar, each) for bar in bars) for each in ENDINGS}
            queues[name].last_hour = ended
    return Stats(now, [queues[name] for name in sorted(queues)], _workers(using, now, busy))


def _workers(using: str, now: datetime, busy: dict[Any, int]) -> list[WorkerStats]:
    living = Worker.objects.using(using).exclude(state=Worker.State.GONE)
    lease = timedelta(seconds=conf.options().lease)
    return [
        WorkerStats(
            id=str(worker.pk),
            name=worker_name(worker.host, worker.pid, worker.pk),
            state=worker.state,
            queues=worker.queues,
            slots=worker.slots,
            busy=busy.get(worker.pk, 0),
            heartbeat_age=round((now - worker.heartbeat_at).total_seconds(), 3),
            silent=now - worker.heartbeat_at > lease,
            asked=worker.asked,
            memory=worker.memory,
        )
        for worker in living.order_by("host", "started_at", "pk")
    ]


def _queue_row(stats: QueueStats) -> list[object]:
    paused = ""
    if stats.paused:
        paused = f"until {clock_time(stats.paused_until)}" if stats.paused_until else "yes"
    wait = "" if stats.oldest_wait is None else duration(stats.oldest_wait)
    counts = (stats.queued, stats.scheduled, stats.processing, stats.stopping, stats.failed)
    return [cut(stats.queue, NAME), *counts, wait, paused]


_ASKED: dict[str, str] = {Worker.Order.QUIET: "be quiet", Worker.Order.STOP: "stop"}


def _worker_row(stats: WorkerStats) -> list[object]:
    heartbeat = f"{duration(stats.heartbeat_age)} ago" + (", silent" if stats.silent else "")
    queues = cut(", ".join(stats.queues), NAME) if stats.queues else "all"
    state = stats.state
    if stats.asked and state == Worker.State.RUNNING:
        state = f"{state}, asked to {_ASKED[stats.asked]}"
    return [cut(stats.name, 36), state, stats.busy, stats.slots, heartbeat, queues]
