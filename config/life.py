"""What a queue in use looks like: jobs that failed, retry, run, were cancelled or recovered, and a paused queue."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from config.tasks import build_report, send_email, take_payment
from jobqueue import auditing, queues
from jobqueue.lifecycle import Counts
from jobqueue.models import Job, JobLog, Status, Worker

PAUSED = "billing"
STAFF = "Ada (demo)"


def liven_up() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Make it so, step by step: after each, what is to be awaited before the next, in words and as a
    question. What is left to itself afterwards stays as it is for an hour."""
    # The report holds its thread; the process that runs it is killed, and another takes it up again.
    recovered = _id(build_report.using(timeout=7200).enqueue(month="2025-10", seconds=20.0))
    yield "a report to run", lambda: _is(recovered, Status.PROCESSING)
    _kill_the_worker_of(recovered)
    yield "its recovery", lambda: JobLog.objects.filter(job=recovered, event="lost").exists()

    failed = [
        _id(send_email.enqueue(address=f"nobody{n}@nowhere.invalid", subject="Hello"))
        for n in range(4)
    ]
    retrying = [_id(build_report.enqueue(month=month)) for month in ("2999-01", "2999-02")]
    yield (
        "failures",
        lambda: (
            all(_is(each, Status.FAILED) for each in failed)
            and all(_is(each, Status.SCHEDULED) for each in retrying)
        ),
    )

    tomorrow = timezone.now() + timedelta(days=1)
    later = send_email.using(run_after=tomorrow)
    scheduled = [later.enqueue(address=f"user{n}@example.com", subject="News") for n in range(5)]
    _cancel([_id(each) for each in scheduled[:2]], "the newsletter is off")
    _pause(PAUSED, "the payment gateway is down")
    for n in range(7):
        take_payment.enqueue(order_id=9000 + n, amount="19.90")
    running = _id(build_report.using(timeout=7200).enqueue(month="2025-11", seconds=3000.0))
    yield "a long report to run", lambda: _is(running, Status.PROCESSING)


def _cancel(jobs: list[UUID], reason: str) -> None:
    entry = auditing.begin(
        "cancel", "job", "task=send_email", actor=STAFF, reason=reason, chosen=len(jobs)
    )
    # Django logs each end as an error, which here would stand in the midst of what the demo says.
    logging.disable(logging.ERROR)
    try:
        auditing.note(entry, Job.objects.filter(pk__in=jobs).cancel(actor=STAFF, reason=reason))
    finally:
        logging.disable(logging.NOTSET)
    auditing.finish(entry)


def _pause(queue: str, reason: str) -> None:
    entry = auditing.begin("pause", "queue", queue, actor=STAFF, reason=reason, chosen=1)
    queues.pause([queue], actor=STAFF, reason=reason)
    auditing.note(entry, Counts(changed=1))
    auditing.finish(entry)


def _id(result: Any) -> UUID:
    return UUID(result.id)


def _is(job: UUID, status: Status) -> bool:
    return Job.objects.filter(pk=job, status=status).exists()


def _kill_the_worker_of(job: UUID) -> None:
    owner = Job.objects.get(pk=job).lease_owner
    worker = Worker.objects.filter(host=socket.gethostname(), pk=owner).first() if owner else None
    if worker is not None:
        os.kill(worker.pid, signal.SIGKILL)
