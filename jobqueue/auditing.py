"""The audit log: one row for each thing that somebody did to jobs, queues or workers, or was refused.

What happened to a single job stands in its own log; a row here is the operation as a whole, and outlives
the jobs, the person's account and the queue.
"""

from __future__ import annotations

from typing import Any

from jobqueue import clock, conf
from jobqueue.actors import Actor, kept_reason
from jobqueue.lifecycle import Counts
from jobqueue.models import AuditEntry
from jobqueue.texts import storable_text

#: The most characters of a target that are kept.
MAX_TARGET = 400


def begin(
    verb: str,
    target_kind: str,
    target: str = "",
    *,
    actor: Any,
    reason: str = "",
    chosen: int = 0,
    message: str = "",
) -> AuditEntry:
    """Write down that an operation begins, in the caller's transaction, or at once if there is none.

    `actor` is a user, a name, or None for the application itself; `chosen` is how many are to change.
    Until `finish` the row says that it is running, so that one whose process died can be told.
    """
    return _write(
        AuditEntry.Result.RUNNING, verb, target_kind, target, actor, reason, chosen, message
    )


def note(entry: AuditEntry, counts: Counts) -> None:
    """Bring the row up to `counts`, those of the whole operation so far: in the transaction of the change."""
    entry.changed, entry.skipped = counts.changed, dict(counts.skipped)
    entry.save(update_fields=["changed", "skipped"])


def finish(entry: AuditEntry, message: str = "") -> None:
    """The operation has ended; `message` says how, where there is more to say than its numbers."""
    entry.result = AuditEntry.Result.DONE
    if message:
        entry.message = "\n".join(filter(None, [entry.message, message]))
    entry.save(update_fields=["result", "message"])


def refused(
    verb: str,
    target_kind: str,
    target: str = "",
    *,
    actor: Any,
    reason: str = "",
    chosen: int = 0,
    message: str = "",
) -> AuditEntry:
    """Write down that somebody tried something and was not let; `message` says why."""
    return _write(
        AuditEntry.Result.REFUSED, verb, target_kind, target, actor, reason, chosen, message
    )


def _write(
    result: AuditEntry.Result,
    verb: str,
    target_kind: str,
    target: str,
    actor: Any,
    reason: str,
    chosen: int,
    message: str,
) -> AuditEntry:
    using, who = conf.options().database, Actor.of(actor)
    return AuditEntry.objects.using(using).create(
        at=clock.moment(using),
        actor_id=who.id,
        actor_name=who.name,
        verb=verb,
        target_kind=target_kind,
        target=storable_text(target, MAX_TARGET),
        reason=kept_reason(reason),
        result=result,
        chosen=chosen,
        message=message,
    )
