"""The lines of a job's log, without what may be large in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf
from jobqueue.excerpts import Kept
from jobqueue.models import Job, JobLog

#: The events that end a job's last attempt when it fails.
ERRORS = frozenset(
    {
        JobLog.Event.ERRORED,
        JobLog.Event.TIMED_OUT,
        JobLog.Event.LOST,
        JobLog.Event.NOT_FOUND,
    }
)


#: The events that end an attempt and leave a line of their own.
CLOSING = ERRORS | {JobLog.Event.SNOOZED, JobLog.Event.RELEASED}

#: What is read of a line's data along with it, by length; tracebacks and return values may be large.
SMALL = {
    "from": 20,
    "delay": 40,
    "attempted_at": 40,
    "finished_at": 40,
    "waited": 40,
    "worker": 200,
    "exception": 300,
    "reason": 2_000,
    "error": 2_000,
}
#: And what is only looked for.
LARGE = ("traceback", "return_value")


def lines_of(job: Job) -> QuerySet[JobLog]:
    """All lines of the job."""
    return JobLog.objects.using(conf.options().database).filter(job=job.pk)


def small(lines: QuerySet[JobLog]) -> QuerySet[JobLog]:
    """The lines without their data; what is small there comes along."""
    parts: dict[str, Any] = {f"data_{key}": Kept("data", key, size) for key, size in SMALL.items()}
    parts |= {f"kept_{key}": Kept("data", key, 1) for key in LARGE}
    return lines.defer("data").annotate(**parts)


def filled(line: JobLog) -> JobLog:
    """A line of `small` that looks like any other, though its data are not whole."""
    values = {key: getattr(line, f"data_{key}") for key in SMALL}
    line.data = {key: value for key, value in values.items() if value is not None}
    if "delay" in line.data:
        line.data["delay"] = as_number(line.data["delay"])
    return line


def kept(line: JobLog) -> tuple[str, ...]:
    """What of `LARGE` a line of `small` has in its data."""
    return tuple(key for key in LARGE if getattr(line, f"kept_{key}", None) is not None)


def as_time(text: object) -> datetime | None:
    """The time that was kept as text, if it is one."""
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def as_number(text: object) -> float | None:
    """The number that was kept as text, if it is one."""
    try:
        return float(text) if isinstance(text, str | int | float) else None
    except ValueError:
        return None
