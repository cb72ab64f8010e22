"""The attempts of a job, each with its outcome, put together from the row and the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobqueue.excerpts import Kept, KeptSize
from jobqueue.lines import CLOSING, as_number, as_time, filled, kept, lines_of, small
from jobqueue.models import WAITING, Job, JobLog, Status

#: Characters that are read of a long traceback, at its beginning and at its end.
PART = 32_768


@dataclass(slots=True)
class Tried:
    """One attempt, as far as the row and the log know of it. `outcome` is an event of the log that
    ended it, `completed`, `failed`, `cancelled`, `processing`, or nothing where neither knows."""

    number: int
    outcome: str = ""
    worker: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    waited: float | None = None
    message: str = ""
    line: int | None = None
    #: All of the traceback, or its beginning and its end; and how long it is.
    traceback: tuple[str, ...] = ()
    size: int = 0
    returned: bool = False

    @property
    def ran(self) -> float | None:
        """For how many seconds."""
        if self.started is None or self.ended is None:
            return None
        return max(0.0, (self.ended - self.started).total_seconds())


def attempts(job: Job, below: int | None = None, number: int = 20) -> list[Tried]:
    """The newest attempts, or those below a number, newest first.

    An attempt that ended in `completed` leaves no line: the row tells of the latest one, and a
    requeue of the one before it.
    """
    last = min(job.attempt, job.attempt if below is None else below - 1)
    tried = {each: Tried(each) for each in range(last, max(0, last - number), -1)}
    if not tried:
        return []
    telling = [*CLOSING, JobLog.Event.CANCELLED, JobLog.Event.REQUEUED]
    lines = small(lines_of(job)).filter(
        event__in=telling, attempt__gte=min(tried), attempt__lte=last
    )
    lines = lines.annotate(
        beginning=Kept("data", "traceback", PART),
        end=Kept("data", "traceback", -PART),
        length=KeptSize("data", "traceback"),
    )
    for line in lines.order_by("pk")[: 10 * number]:
        _tell(tried[line.attempt], filled(line))
    if 1 in tried and job.started_at:
        tried[1].started = job.started_at
    if job.attempt in tried:
        _tell_of_the_last(tried[job.attempt], job)
    return list(tried.values())


def _tell(tried: Tried, line: JobLog) -> None:
    """What a line says of its attempt."""
    tried.worker = tried.worker or line.worker or str(line.data.get("worker", ""))
    tried.started = tried.started or as_time(line.data.get("attempted_at"))
    if tried.waited is None and "waited" in line.data:
        tried.waited = as_number(line.data["waited"])
    before = line.data.get("from")
    if line.event in CLOSING and not tried.outcome:
        tried.outcome, tried.ended = line.event, line.created_at
        tried.message, tried.line = line.message, line.pk
        beginning, end = getattr(line, "beginning", ""), getattr(line, "end", "")
        if beginning:
            tried.size = int(getattr(line, "length", 0) or len(beginning))
            tried.traceback = _joined(str(beginning), str(end), tried.size)
    elif line.event == JobLog.Event.CANCELLED and before == Status.PROCESSING:
        tried.outcome, tried.ended = tried.outcome or "cancelled", tried.ended or line.created_at
        tried.message = tried.message or line.message
    elif line.event == JobLog.Event.REQUEUED and before == Status.COMPLETED and not tried.outcome:
        tried.outcome, tried.ended = "completed", as_time(line.data.get("finished_at"))
        tried.line, tried.returned = line.pk, "return_value" in kept(line)


def _tell_of_the_last(tried: Tried, job: Job) -> None:
    """What the row says of its latest attempt."""
    tried.worker = tried.worker or job.worker
    tried.started = job.attempted_at
    if job.status not in WAITING and job.attempted_at:
        tried.waited = max(0.0, (job.attempted_at - job.run_after).total_seconds())
        if not tried.outcome:
            tried.outcome, tried.ended = job.status, job.finished_at
            tried.message = tried.message or job.error


def _joined(beginning: str, end: str, size: int) -> tuple[str, ...]:
    if size <= len(beginning):
        return (beginning,)
    if size <= len(beginning) + len(end):
        return (beginning + end[len(beginning) + len(end) - size :],)
    return beginning, end
