"""What happened to a job as people read it: its row and its log in one list, by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf
from jobqueue.models import Job, JobLog, Status
from jobqueue.values import as_mapping

#: Of a longer log people are shown the newest lines.
NEWEST = 200

#: The events that end a job's last attempt when it fails.
ERRORS = frozenset(
    {
        JobLog.Event.ERRORED,
        JobLog.Event.TIMED_OUT,
        JobLog.Event.LOST,
        JobLog.Event.NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened, or that lies ahead.

    `event` is an event of JobLog, or one that only the row tells of: `enqueued`, `started` (an
    attempt), `completed`, `failed` (for good), `waiting` (since when it may be claimed), `due`
    (when it may be), `earlier` (the log goes further back than is shown).
    """

    at: datetime
    event: str
    message: str = ""
    level: str = "info"
    attempt: int = 0
    worker: str = ""
    actor: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """All of it but the time and the event, in words."""
        words = [f"attempt {self.attempt}"] if self.attempt else []
        if self.message:
            words.append(self.message)
        if isinstance(delay := self.data.get("delay"), int | float):
            words.append(f"again in {delay:g} s")
        if self.event in (JobLog.Event.CANCELLED, JobLog.Event.REQUEUED) and "from" in self.data:
            words.append(f"it was {self.data['from']}")
        if self.actor:
            words.append(f"by {self.actor}")
        if self.worker:
            words.append(f"on {self.worker}")
        return " - ".join(words)


def timeline(job: Job, newest: int | None = NEWEST) -> list[Moment]:
    """What is known of the job's life, oldest first; of its log the `newest` lines, or all (None).

    Of attempts that ended in `completed` or left no line the log knows nothing: the row tells of
    the first start and of the latest attempt, and a requeue of the one before it.
    """
    found = list(_lines(job).order_by("-pk")[: None if newest is None else newest + 1])
    lines = list(reversed(found))
    for line in lines:
        line.data = as_mapping(line.data)
    moments = [Moment(job.enqueued_at, "enqueued")]
    if newest is not None and len(lines) > newest:
        moments.append(Moment(lines.pop(0).created_at, "earlier", "older lines are not shown"))
    moments += _starts(job, lines)
    for line in lines:
        moments += _of_line(line)
    moments += _end(job, lines)
    # Stable: of the same moment, starts come before the lines, and these before the end.
    moments.sort(key=lambda moment: moment.at)
    return [*moments, *_ahead(job)]


def last_traceback(job: Job) -> str:
    """The traceback of the job's latest error that had one, or nothing."""
    lines = _lines(job).filter(data__has_key="traceback").order_by("-pk")
    data = lines.values_list("data", flat=True).first()
    return str(as_mapping(data).get("traceback", "")) if data else ""


def _lines(job: Job) -> QuerySet[JobLog]:
    return JobLog.objects.using(conf.options().database).filter(job=job.pk)


def _starts(job: Job, lines: Iterable[JobLog]) -> Iterator[Moment]:
    """When attempts began, as far as it is known, each once."""
    workers = {line.attempt: line.worker for line in lines if line.worker}
    begun: dict[int, datetime] = {}
    if job.started_at is not None:
        begun[1] = job.started_at
    for line in lines:
        at = _time(line.data.get("attempted_at"))
        if line.event == JobLog.Event.REQUEUED and at is not None:
            begun[line.attempt] = at
            workers.setdefault(line.attempt, str(line.data.get("worker", "")))
    if job.attempted_at is not None:
        begun[job.attempt] = job.attempted_at
        workers[job.attempt] = job.worker
    for attempt, at in begun.items():
        yield Moment(at, "started", attempt=attempt, worker=workers.get(attempt, ""))


def _of_line(line: JobLog) -> Iterator[Moment]:
    # A completed attempt leaves no line of its own; a requeue after it keeps what the row said.
    ended = _time(line.data.get("finished_at"))
    if line.event == JobLog.Event.REQUEUED and line.data.get("from") == Status.COMPLETED and ended:
        worker = str(line.data.get("worker", ""))
        yield Moment(ended, "completed", attempt=line.attempt, worker=worker)
    yield Moment(
        line.created_at,
        line.event,
        line.message,
        line.level,
        line.attempt,
        line.worker,
        line.actor_name,
        line.data,
    )


def _end(job: Job, lines: Iterable[JobLog]) -> Iterator[Moment]:
    """The end that the row tells of; that of a cancelled job is a line."""
    if job.status == Status.COMPLETED and job.finished_at and job.attempted_at:
        took = (job.finished_at - job.attempted_at).total_seconds()
        message = f"after {took:.3g} s"
        yield Moment(job.finished_at, "completed", message, attempt=job.attempt, worker=job.worker)
    elif job.status == Status.FAILED and job.finished_at:
        # The line is written by another statement of that transaction, a little later.
        error = [line.created_at for line in lines if line.event in ERRORS]
        at = max([job.finished_at, *error[-1:]])
        yield Moment(at, "failed", "for good", "error", job.attempt)


def _ahead(job: Job) -> Iterator[Moment]:
    """What comes next."""
    if job.status == Status.QUEUED:
        yield Moment(job.run_after, "waiting", "for a worker")
    elif job.status == Status.SCHEDULED:
        yield Moment(job.run_after, "due", f"attempt {job.attempt + 1} may start")


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
