"""What happened to a job as people read it: its row and its log in one list, by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jobqueue.lines import ERRORS, as_time, filled, kept, lines_of, small
from jobqueue.models import Job, JobLog, Status
from jobqueue.values import as_mapping

#: Of a longer log people are shown the newest lines.
NEWEST = 200


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
    #: The line of the log that tells of it, if it is one, and what of `lines.LARGE` is kept there.
    line: int | None = None
    kept: tuple[str, ...] = ()

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
    found = list(lines_of(job).order_by("-pk")[: None if newest is None else newest + 1])
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a timeline. Lines older than `older` follow on the next one."""

    moments: list[Moment]
    older: int | None


def stretch(job: Job, before: int | None = None, size: int = 100) -> Stretch:
    """The newest `size` lines of the log, or those before a line, with what the row tells of that time.

    What may be large in a line is not read: `Moment.kept` says where it is.
    """
    chosen = small(lines_of(job) if before is None else lines_of(job).filter(pk__lt=before))
    found = [filled(line) for line in chosen.order_by("-pk")[: size + 1]]
    more = len(found) > size
    since = found[-1].created_at if more else None
    lines = found[size - 1 :: -1] if more else found[::-1]
    moments = [] if more else [Moment(job.enqueued_at, "enqueued")]
    moments += [
        start
        for start in _starts(job, lines)
        if (since is None or start.at >= since)
        and (before is None or (bool(lines) and start.at < lines[-1].created_at))
    ]
    for line in lines:
        moments += _of_line(line)
    if before is None:
        moments += _end(job, lines)
    moments.sort(key=lambda moment: moment.at)
    if before is None:
        moments += _ahead(job)
    return Stretch(moments, lines[0].pk if more else None)


def last_traceback(job: Job) -> str:
    """The traceback of the job's latest error that had one, or nothing."""
    lines = lines_of(job).filter(data__has_key="traceback").order_by("-pk")
    data = lines.values_list("data", flat=True).first()
    return str(as_mapping(data).get("traceback", "")) if data else ""


def _starts(job: Job, lines: Iterable[JobLog]) -> Iterator[Moment]:
    """When attempts began, as far as it is known, each once."""
    workers = {line.attempt: line.worker for line in lines if line.worker}
    begun: dict[int, datetime] = {}
    if job.started_at is not None:
        begun[1] = job.started_at
    for line in lines:
        at = as_time(line.data.get("attempted_at"))
        if at is not None:
            begun[line.attempt] = at
            workers.setdefault(line.attempt, str(line.data.get("worker", "")))
    if job.attempted_at is not None:
        begun[job.attempt] = job.attempted_at
        workers[job.attempt] = job.worker
    for attempt, at in begun.items():
        yield Moment(at, "started", attempt=attempt, worker=workers.get(attempt, ""))


def _of_line(line: JobLog) -> Iterator[Moment]:
    # A completed attempt leaves no line of its own; a requeue after it keeps what the row said.
    ended = as_time(line.data.get("finished_at"))
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
        line.pk,
        kept(line),
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
