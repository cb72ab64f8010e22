"""What a running task says of itself: its progress and its own log lines, on the queue's connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from jobqueue import clock, conf
from jobqueue.attempts import Attempt
from jobqueue.clock import Moment
from jobqueue.lifecycle import journal
from jobqueue.models import Job, JobLog, Status


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log, or (with `progress`) what the row shows of how far the task is."""

    attempt: Attempt
    message: str = ""
    level: str = "info"
    progress: dict[str, Any] | None = None


def take_notes(notes: Sequence[Note]) -> list[Note]:
    """Write the notes: lines in their order, and the last progress of each attempt that is still
    its owner's. Returns those whose job's row another transaction holds, to be tried again; notes
    of jobs that have been removed are dropped."""
    if not notes:
        return []
    using = conf.options().database
    jobs = Job.objects.using(using)
    wanted = {note.attempt.id for note in notes}
    with transaction.atomic(using):
        now = clock.moment(using)
        # A line's foreign key would wait for a row that somebody holds, and all others with it.
        rows = jobs.filter(pk__in=wanted).select_for_update(skip_locked=True, no_key=True)
        free = set(rows.order_by("pk").values_list("pk", flat=True))
        busy = wanted - free
        locked = set(jobs.filter(pk__in=busy).values_list("pk", flat=True)) if busy else set()
        progress = {note.attempt.pair: note for note in notes if note.progress is not None}
        for note in progress.values():
            jobs.filter(
                pk=note.attempt.id,
                attempt=note.attempt.attempt,
                lease_owner=note.attempt.owner,
                status=Status.PROCESSING,
            ).filter(pk__in=free).update(progress=note.progress)
        said = [note for note in notes if note.progress is None and note.attempt.id in free]
        journal.write(using, [_line(note, now) for note in said])
    return [note for note in notes if note.attempt.id in locked]


def _line(note: Note, now: Moment) -> JobLog:
    return journal.line(
        note.attempt.id,
        JobLog.Event.NOTE,
        now,
        level=JobLog.Level(note.level),
        attempt=note.attempt.attempt,
        worker=note.attempt.worker,
        message=note.message,
    )
