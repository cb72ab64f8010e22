"""The lines of JobLog: how each transition out of the ordinary is put into words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from jobqueue.actors import Actor
from jobqueue.clock import Moment
from jobqueue.models import JobLog
from jobqueue.texts import storable_text

MAX_MESSAGE = 2_000


def line(
    job_id: UUID,
    event: JobLog.Event,
    now: Moment,
    *,
    level: JobLog.Level = JobLog.Level.INFO,
    attempt: int = 0,
    worker: str = "",
    message: str = "",
    actor: Actor | None = None,
    data: dict[str, Any] | None = None,
) -> JobLog:
    """One line, not yet written. What the database would refuse in `message` is made acceptable."""
    return JobLog(
        job_id=job_id,
        event=event,
        created_at=now,
        level=level,
        attempt=attempt,
        worker=worker,
        message=storable_text(message, MAX_MESSAGE),
        actor_id=actor.id if actor else "",
        actor_name=actor.name if actor else "",
        data=data or {},
    )


def times(attempted_at: datetime | None, run_after: datetime) -> dict[str, Any]:
    """When an attempt began, and how many seconds it had waited: the row forgets with the next one."""
    if attempted_at is None:
        return {}
    waited = (attempted_at - run_after).total_seconds()
    return {"attempted_at": attempted_at.isoformat(), "waited": round(max(0.0, waited), 3)}


def write(using: str, lines: Iterable[JobLog]) -> None:
    """Write the lines, in the caller's transaction."""
    JobLog.objects.using(using).bulk_create(lines, batch_size=500)
