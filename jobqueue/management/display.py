"""How jobs look at a terminal: many in a table, one in full."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from jobqueue.management.terminal import clock_time, cut, duration, table, width
from jobqueue.models import Job, Status
from jobqueue.texts import storable_text
from jobqueue.timeline import Moment

#: Characters of arguments and the like that people are shown; `--json` has all of them.
SHOWN = 2_000


def overview(jobs: list[Job], now: datetime) -> str:
    """A table that fits: the task gives way first, and the queue where there is little room."""
    whens = [_when(job, now) for job in jobs]
    tries = [f"{job.attempt}/{job.max_attempts}" for job in jobs]
    room = width() - 36 - 10 - max(3, *map(len, tries)) - max(4, *map(len, whens)) - 4 * 2
    queue_room = min(max(5, *(len(job.queue_name) for job in jobs)), 16) if room >= 30 else 0
    room -= queue_room + 2 if queue_room else 0
    header = ["ID", "STATUS", "TRY", "WHEN"]
    header += ["QUEUE", "TASK"] if queue_room else ["TASK"]
    rows = []
    for job, tried, when in zip(jobs, tries, whens, strict=True):
        row = [str(job.pk), "stopping" if job.is_stopping else job.status, tried, when]
        row += [cut(job.queue_name, queue_room)] if queue_room else []
        rows.append([*row, cut(job.task_path, room)])
    return table(header, rows)


def _when(job: Job, now: datetime) -> str:
    at = job.finished_at
    if at is None:
        at = job.attempted_at if job.status == Status.PROCESSING else job.run_after
    seconds = (now - (at or job.enqueued_at)).total_seconds()
    return f"in {duration(-seconds)}" if seconds < 0 else f"{duration(seconds)} ago"


def described(job: Job) -> Iterator[str]:
    """The lines of one job's row; what is empty is left out."""
    status = f"{job.status}, still stopping" if job.is_stopping else job.status
    attempts = f"{job.attempt} of {job.max_attempts}"
    attempts += f" ({job.given_back} given back)" if job.given_back else ""
    lease = f"{job.lease_owner} until {clock_time(job.lease_expires_at)}" if job.lease_owner else ""
    facts = {
        "Task": job.task_path,
        "Status": status,
        "Queue": f"{job.queue_name}, priority {job.priority}",
        "Attempts": attempts,
        "Timeout": "none" if job.timeout is None else f"{job.timeout:g} s",
        "Key": job.idempotency_key or "",
        "Enqueued": clock_time(job.enqueued_at),
        "Run after": clock_time(job.run_after),
        "Started": clock_time(job.attempted_at),
        "Finished": clock_time(job.finished_at),
        "Worker": job.worker,
        "Lease": lease,
        "Error": job.error,
        "Progress": "" if job.progress is None else _as_json(job.progress),
        "Arguments": _as_json(job.args) if job.args else "",
        "Keywords": _as_json(job.kwargs) if job.kwargs else "",
        "Returned": _as_json(job.return_value) if job.status == Status.COMPLETED else "",
    }
    yield f"Job {job.pk}"
    for name, value in facts.items():
        if value:
            yield _wrapped(f"  {name:<11}", value)


def told(moment: Moment) -> str:
    """A moment of a timeline, on as many lines as it takes."""
    return _wrapped(
        f"  {clock_time(moment.at, 'milliseconds')}  {moment.event:<10}", moment.sentence
    )


def _wrapped(start: str, text: str) -> str:
    indent = " " * len(start)
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        lines += textwrap.wrap(line, width() - len(start)) or [""]
    return (start + f"\n{indent}".join(lines)).rstrip()


def _as_json(value: Any) -> str:
    return storable_text(json.dumps(value, ensure_ascii=False), SHOWN)
