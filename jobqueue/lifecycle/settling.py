"""How an attempt's outcome is written: behind the fence, and dropped where the fence does not hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from jobqueue import clock, conf, dispatch, postgres, sqlite
from jobqueue.attempts import Attempt, Ending, Outcome, Pair
from jobqueue.clock import Moment
from jobqueue.exceptions import LeaseLost
from jobqueue.lifecycle import journal
from jobqueue.models import Job, JobLog, Status
from jobqueue.ready import Ready
from jobqueue.texts import storable_text

logger = logging.getLogger("jobqueue")

#: Seconds after which a job whose function cannot be imported fails for good.
NOT_FOUND_LIMIT = 24 * 3600.0
#: The longest pause, in seconds, between two looks for a function that cannot be imported.
NOT_FOUND_PAUSE = 60.0

#: Changes to a row, by column.
Changes = dict[str, Any]


@dataclass(slots=True)
class Settled:
    """What became of outcomes: `written` with the job's new status, `dropped` by the fence, or
    `locked`: another transaction holds the row, and the outcome must be tried again, alone."""

    written: list[tuple[Outcome, Status]] = field(default_factory=list)
    dropped: list[Outcome] = field(default_factory=list)
    locked: list[Outcome] = field(default_factory=list)


def settle(outcomes: Sequence[Outcome], *, wait: bool = False, read_back: bool = False) -> Settled:
    """Write the outcomes of attempts that are still their owners'; log and drop the late ones.

    Rows that another transaction holds come back as `locked`, unless `wait` is given. With
    `read_back` an earlier try may have been committed although its answer never came: an outcome
    that the row shows already counts as written.
    """
    using = conf.options().database
    settled = Settled()
    if not outcomes:
        return settled
    rest = list(outcomes)
    if not wait and not read_back:
        # Mostly all there is to do: a transaction around it would double the round trips of a batch.
        rest = _complete_fast(using, outcomes, settled)
    if rest:
        with transaction.atomic(using):
            _settle_plainly(using, rest, settled, wait=wait, read_back=read_back)
    return settled


@contextmanager
def atomically(attempt: Attempt) -> Iterator[Callable[[Any], None]]:
    """The transaction of an `atomic` task. What it yields is to be called with the return value
    when the task's code is done: it completes the job as the transaction's last statement, and
    raises LeaseLost, so that nothing commits, if the job is no longer the owner's."""
    using = conf.options().database

    def complete(return_value: Any) -> None:
        if not _write(using, attempt, _completed(clock.moment(using), return_value)):
            raise LeaseLost("the job is no longer this worker's; its transaction is rolled back")

    with transaction.atomic(using):
        yield complete


def _complete_fast(using: str, outcomes: Sequence[Outcome], settled: Settled) -> list[Outcome]:
    """Write the completed ones past the ORM; returns what is left to be looked at one by one."""
    completed = [outcome for outcome in outcomes if outcome.ending is Ending.COMPLETED]
    if not completed:
        return list(outcomes)
    done = (sqlite if sqlite.serves(using) else postgres).complete(using, completed)
    settled.written += [(each, Status.COMPLETED) for each in completed if each.attempt.pair in done]
    return [each for each in outcomes if each.attempt.pair not in done]


def _settle_plainly(
    using: str, outcomes: Sequence[Outcome], settled: Settled, *, wait: bool, read_back: bool
) -> None:
    jobs = Job.objects.using(using)
    wanted = [outcome.attempt.id for outcome in outcomes]
    if wait:
        postgres.want(using, wanted)
    columns = ("id", "status", "attempt", "max_attempts", "given_back", "lease_owner", "worker")
    rows = {
        job.pk: job
        for job in jobs.filter(pk__in=wanted)
        .select_for_update(skip_locked=not wait, no_key=True)
        .order_by("pk")
        .only(*columns)
    }
    unseen = [pk for pk in wanted if pk not in rows]
    locked = set(jobs.filter(pk__in=unseen).values_list("pk", flat=True)) if unseen else set()
    said = _said(using, wanted) if read_back else frozenset()
    now = clock.moment(using)
    lines: list[JobLog] = []
    woken: list[Ready] = []
    for outcome in outcomes:
        attempt = outcome.attempt
        job = rows.get(attempt.id)
        if job is None and attempt.id in locked:
            settled.locked.append(outcome)
            continue
        if job is not None and _is_owner(job, attempt):
            if job.status == Status.CANCELLED:
                _let_go(using, attempt)
                settled.dropped.append(outcome)
                lines += _late_line(outcome, job, now)
                continue
            changes = _changes(using, job, outcome, now)
            if _write(using, attempt, changes):
                status = Status(changes["status"])
                settled.written.append((outcome, status))
                lines += _ending_line(outcome, status, now)
                if status == Status.QUEUED:
                    woken.append(Ready(attempt.id, attempt.queue_name, attempt.priority))
                continue
        if job is not None and (shown := _shown(job, outcome, said, read_back=read_back)):
            settled.written.append((outcome, shown))
            continue
        settled.dropped.append(outcome)
        if (attempt.pair, attempt.worker, JobLog.Event.FENCED) not in said:
            lines += _late_line(outcome, job, now)
    journal.write(using, lines)
    dispatch.wake(using, woken)


def _is_owner(job: Job, attempt: Attempt) -> bool:
    return job.lease_owner == attempt.owner and job.attempt == attempt.attempt


def _write(using: str, attempt: Attempt, changes: Changes) -> bool:
    """The fence, whole, in the WHERE of the write: id, attempt, owner, and status processing."""
    fenced = Job.objects.using(using).filter(
        pk=attempt.id,
        attempt=attempt.attempt,
        lease_owner=attempt.owner,
        status=Status.PROCESSING,
    )
    return fenced.update(lease_owner=None, lease_expires_at=None, **changes) == 1


def _let_go(using: str, attempt: Attempt) -> None:
    """The code of a cancelled job has ended: nobody holds it any more."""
    Job.objects.using(using).filter(
        pk=attempt.id,
        attempt=attempt.attempt,
        lease_owner=attempt.owner,
        status=Status.CANCELLED,
    ).update(lease_owner=None, lease_expires_at=None)


def _completed(now: Moment, return_value: Any) -> Changes:
    return {
        "status": Status.COMPLETED,
        "finished_at": now,
        "return_value": return_value,
        "error": "",
    }


def failed(now: Moment, error: str) -> Changes:
    """The changes that end a job as failed."""
    return {"status": Status.FAILED, "finished_at": now, "error": _kept(error)}


def scheduled(now: Moment, delay: float, error: str) -> Changes:
    """The changes that let a job wait for `delay` seconds before its next attempt."""
    return {
        "status": Status.SCHEDULED,
        "run_after": now + timedelta(seconds=delay),
        "error": _kept(error),
    }


def _kept(error: str) -> str:
    return storable_text(error, journal.MAX_MESSAGE)


def given_back(job: Job) -> Changes:
    """The changes that give the attempt back: it counts, but it is not spent."""
    return {"given_back": job.given_back + 1, "max_attempts": job.max_attempts + 1}


def _changes(using: str, job: Job, outcome: Outcome, now: Moment) -> Changes:
    match outcome.ending:
        case Ending.COMPLETED:
            return _completed(now, outcome.return_value)
        case Ending.ERRORED | Ending.TIMED_OUT:
            if outcome.final or job.attempt >= job.max_attempts:
                return failed(now, outcome.error)
            return scheduled(now, outcome.delay, outcome.error)
        case Ending.SNOOZED:
            return scheduled(now, outcome.delay, "") | given_back(job)
        case Ending.RELEASED:
            return {"status": Status.QUEUED, "run_after": now} | given_back(job)
        case Ending.NOT_FOUND:
            waited, looks = _sought(using, job.pk)
            if waited >= NOT_FOUND_LIMIT:
                return failed(now, outcome.error)
            pause = min(2.0 ** min(looks, 10), NOT_FOUND_PAUSE)
            return scheduled(now, pause, outcome.error) | given_back(job)


#: Endings that prove that the function was found.
_FOUND = frozenset({JobLog.Event.ERRORED, JobLog.Event.TIMED_OUT, JobLog.Event.SNOOZED})


def _sought(using: str, job_id: UUID) -> tuple[float, int]:
    """For how many seconds, and how often, the job's function has been looked for in vain."""
    looks = 0
    now = since = clock.now(using)
    lines = JobLog.objects.using(using).filter(job=job_id).order_by("-pk")
    for event, created_at in lines.values_list("event", "created_at").iterator(chunk_size=500):
        if event == JobLog.Event.NOT_FOUND:
            looks, since = looks + 1, created_at
        elif event == JobLog.Event.REQUEUED or event in _FOUND:
            break
    return (now - since).total_seconds(), looks


#: An attempt, its worker, and what a line of the log says of it.
_Said = tuple[Pair, str, str]


def _said(using: str, job_ids: Sequence[UUID]) -> frozenset[_Said]:
    lines = JobLog.objects.using(using).filter(job__in=job_ids)
    rows = lines.values_list("job_id", "attempt", "worker", "event")
    return frozenset((Pair(pk, attempt), worker, event) for pk, attempt, worker, event in rows)


def _shown(job: Job, outcome: Outcome, said: frozenset[_Said], *, read_back: bool) -> Status | None:
    """What an earlier write made of the job, if it was committed although its answer never came:
    this outcome's, or an atomic task's own. The row shows a completion, the log every other ending,
    whatever has happened to the job since."""
    attempt = outcome.attempt
    if (read_back and outcome.ending is Ending.COMPLETED) or outcome.may_be_completed:
        as_left = (Status.COMPLETED, attempt.attempt, attempt.worker)
        if (job.status, job.attempt, job.worker) == as_left:
            return Status.COMPLETED
    if (attempt.pair, attempt.worker, outcome.ending.value) not in said:
        return None
    if job.attempt == attempt.attempt and job.status == Status.FAILED:
        return Status.FAILED
    return Status.QUEUED if outcome.ending is Ending.RELEASED else Status.SCHEDULED


def _ending_line(outcome: Outcome, status: Status, now: Moment) -> list[JobLog]:
    """One line for every ending but `completed`, of which the row itself says everything."""
    if outcome.ending is Ending.COMPLETED:
        return []
    attempt = outcome.attempt
    level = JobLog.Level.INFO
    if outcome.ending in (Ending.ERRORED, Ending.TIMED_OUT, Ending.NOT_FOUND):
        level = JobLog.Level.ERROR if status == Status.FAILED else JobLog.Level.WARNING
    data = dict(outcome.data) | journal.times(attempt.attempted_at, attempt.run_after)
    if status == Status.SCHEDULED and outcome.ending is not Ending.NOT_FOUND:
        data["delay"] = round(outcome.delay, 3)
    return [
        journal.line(
            attempt.id,
            JobLog.Event(outcome.ending.value),
            now,
            level=level,
            attempt=attempt.attempt,
            worker=attempt.worker,
            message=outcome.error or _WORDS.get(outcome.ending, ""),
            data=data,
        )
    ]


_WORDS = {
    Ending.SNOOZED: "the task asked to be run later",
    Ending.RELEASED: "given back unfinished; the attempt is not spent",
}


def _late_line(outcome: Outcome, job: Job | None, now: Moment) -> list[JobLog]:
    attempt = outcome.attempt
    if job is None:
        logger.warning(
            "Job %s has been removed; the outcome of its attempt %s was dropped: %s",
            attempt.id,
            attempt.attempt,
            outcome.error or outcome.ending,
        )
        return []
    if job.status == Status.CANCELLED and outcome.ending is Ending.RELEASED:
        return []  # it was told to stop and it did: nothing came too late
    message = f"{outcome.ending.value}, but the job was no longer this worker's; dropped"
    if job.status == Status.CANCELLED and _is_owner(job, attempt):
        message = f"{outcome.ending.value} after it had been cancelled; dropped"
    kept = {"exception", "traceback"}
    data: dict[str, Any] = {key: value for key, value in outcome.data.items() if key in kept}
    if outcome.error:
        data["error"] = outcome.error
    logger.warning("Job %s, attempt %s: %s", attempt.id, attempt.attempt, message)
    return [
        journal.line(
            attempt.id,
            JobLog.Event.FENCED,
            now,
            level=JobLog.Level.WARNING,
            attempt=attempt.attempt,
            worker=attempt.worker,
            message=message,
            data=data,
        )
    ]
