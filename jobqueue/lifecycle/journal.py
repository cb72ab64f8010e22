"""The lines of JobLog: how each transition out of the ordinary is put into words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobqueue.clock import Moment
from jobqueue.models import JobLog
from jobqueue.texts import storable_text

MAX_MESSAGE = 2_000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked for a change, as text: it outlives the user's row."""

    id: str = ""
    name: str = ""

    @classmethod
    def of(cls, actor: Any) -> Actor:
        """From a user, a name, or None (the application itself)."""
        if actor is None:
            return cls()
        if isinstance(actor, str):
            return cls(name=storable_text(actor, 200))
        key = getattr(actor, "pk", None)
        name = actor.get_username() if hasattr(actor, "get_username") else str(actor)
        return cls(id="" if key is None else str(key)[:64], name=storable_text(name, 200))


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


def write(using: str, lines: Iterable[JobLog]) -> None:
    """Write the lines, in the caller's transaction."""
    JobLog.objects.using(using).bulk_create(lines, batch_size=500)
