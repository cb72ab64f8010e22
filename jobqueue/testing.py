"""For the tests of applications: run the jobs that are due, here and now."""

from __future__ import annotations

import logging
import uuid
from contextlib import nullcontext
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from jobqueue import clock, conf, execution, lifecycle, signals
from jobqueue.attempts import Attempt, Outcome
from jobqueue.lifecycle import Note
from jobqueue.models import FINAL, Job, Status

logger = logging.getLogger("jobqueue")

WORKER = "run_jobs"


def run_jobs(until: datetime | None = None, limit: int = 10_000) -> list[Job]:
    """Run the jobs that are due in this thread, on this connection: inside a TestCase, too.

    Goes on until nothing is left, including what the jobs enqueue themselves. Those whose time has
    not come stay, retries among them; with `until` the time up to that moment passes as if it had,
    and they run in the order in which they become due. Returns the jobs that ran, each once, as
    they are now.

    More than `limit` attempts are taken for a task that never stops enqueuing, and are a
    RuntimeError. Signals are sent as a worker sends them, though no transaction was committed.
    """
    if until is not None and timezone.is_aware(until) != settings.USE_TZ:
        raise ValueError(f"until must be {'an aware' if settings.USE_TZ else 'a naive'} datetime.")
    using = conf.options().database
    owner = uuid.uuid4()
    ran: dict[uuid.UUID, None] = {}
    passed = timedelta(0)  # how far the time has been moved on
    count = 0
    while True:
        now = clock.now(using) + passed
        due = lifecycle.due(using, now).values_list("pk", flat=True)
        lifecycle.promote(list(due), due_by=now)
        attempt = _claim(using, owner)
        if attempt is None:
            moved = _pass_time(using, until)
            if moved is None:
                break
            passed = max(moved, passed)
            continue
        count += 1
        if count > limit:
            lifecycle.hand_back(owner)
            raise RuntimeError(
                f"run_jobs has made {limit} attempts, and there are more: does {attempt.task_path} "
                "enqueue itself? Pass a higher limit if not."
            )
        ran[attempt.id] = None
        outcome = _run(using, attempt)
        _settle(using, outcome, passed)
        if isinstance(outcome.exception, KeyboardInterrupt):
            raise outcome.exception  # somebody wants the tests to end
    if not ran:
        logger.info("run_jobs found nothing to run: %s", _why_nothing(using))
    rows = Job.objects.using(using).in_bulk(list(ran))
    return [rows[pk] for pk in ran if pk in rows]


def _claim(using: str, owner: uuid.UUID) -> Attempt | None:
    """One job at a time, so that each sees what those before it did: a cancellation, a pause."""
    queued = Job.objects.using(using).filter(status=Status.QUEUED)
    for queue in queued.order_by("queue_name").values_list("queue_name", flat=True).distinct():
        for attempt in lifecycle.claim(queue, owner, WORKER, 1):
            return attempt
    return None


def _pass_time(using: str, until: datetime | None) -> timedelta | None:
    """How far to move the time on for the next scheduled job, if that is due by `until`."""
    if until is None:
        return None
    waiting = Job.objects.using(using).filter(status=Status.SCHEDULED, run_after__lte=until)
    due = waiting.order_by("run_after").values_list("run_after", flat=True).first()
    return None if due is None else due - clock.now(using)


def _run(using: str, attempt: Attempt) -> Outcome:
    notes: list[Note] = []
    run = execution.Run(attempt, notes.append, lifecycle.atomically)
    # A task's database error must not break the transaction of the test around it.
    inside = connections[using].in_atomic_block
    try:
        with transaction.atomic(using) if inside else nullcontext():
            outcome = execution.run_to_end(run)
    except DatabaseError:
        logger.warning("Job %s broke its test's transaction; its writes were undone.", attempt.id)
    lifecycle.take_notes(notes)
    return outcome


def _settle(using: str, outcome: Outcome, passed: timedelta) -> None:
    settled = lifecycle.settle([outcome], wait=True)
    for written, status in settled.written:
        job_id = written.attempt.id
        if status == Status.SCHEDULED and passed:
            # The delay was counted from the clock's time, and the test's is ahead of it.
            job = Job.objects.using(using).get(pk=job_id)
            Job.objects.using(using).filter(pk=job_id).update(run_after=job.run_after + passed)
        elif status in FINAL:
            exception = written.exception
            signals.finished([job_id], {job_id: exception} if exception else None)


def _why_nothing(using: str) -> str:
    jobs = Job.objects.using(using)
    queued = jobs.filter(status=Status.QUEUED).count()
    later = jobs.filter(status=Status.SCHEDULED).order_by("run_after")
    words = [f"{queued} jobs in queues that are paused"] if queued else []
    if first := later.values_list("run_after", flat=True).first():
        words.append(f"{later.count()} jobs are due later, the first at {first}")
    return "; ".join(words) or "no job waits"
