"""What the clock repairs: one pass over everything that can disagree, the same in workers and in the command."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.models import QuerySet

from jobqueue import clock, conf, lifecycle
from jobqueue.clock import Moment
from jobqueue.findings import Finding, Repaired
from jobqueue.models import Status, Worker

logger = logging.getLogger("jobqueue")

#: Rows that are looked at and repaired in one short transaction.
BATCH = 200

#: Seconds for which the row of a worker that is gone stays to be seen.
GONE_FOR = 86_400.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can disagree: how such rows are found, and what is done about them."""

    name: str
    what: str
    find: Callable[[str, Moment], QuerySet[Any]]
    repair: Callable[[Sequence[Any]], Sequence[Repaired]]
    takes_leases: bool = False


def _lost(using: str, now: Moment) -> QuerySet[Any]:
    return lifecycle.expired(using, now).filter(status=Status.PROCESSING)


def _stopping(using: str, now: Moment) -> QuerySet[Any]:
    return lifecycle.expired(using, now).filter(status=Status.CANCELLED)


def _silent(using: str, now: Moment) -> QuerySet[Worker]:
    since = now - timedelta(seconds=conf.options().lease)
    workers = Worker.objects.using(using).filter(heartbeat_at__lt=since)
    return workers.exclude(state=Worker.State.GONE).order_by("pk")


def _gone(using: str, now: Moment) -> QuerySet[Worker]:
    since = now - timedelta(seconds=GONE_FOR)
    workers = Worker.objects.using(using).filter(state=Worker.State.GONE, heartbeat_at__lt=since)
    return workers.order_by("pk")


def _promote(ids: Sequence[Any]) -> list[Repaired]:
    return [Repaired(pk, Status.SCHEDULED, Status.QUEUED) for pk in lifecycle.promote(ids)]


def _mark_gone(ids: Sequence[Any]) -> list[Repaired]:
    using = conf.options().database
    gone = mark_gone(_silent(using, clock.moment(using)).filter(pk__in=ids))
    return [Repaired(pk, "silent", Worker.State.GONE) for pk in gone]


def mark_gone(workers: QuerySet[Worker]) -> list[Any]:
    """Write that these workers are gone; a row that somebody holds is passed over."""
    with transaction.atomic(workers.db):
        free = _free(workers)
        Worker.objects.using(workers.db).filter(pk__in=free).update(state=Worker.State.GONE)
    return free


def _remove(ids: Sequence[Any]) -> list[Repaired]:
    using = conf.options().database
    with transaction.atomic(using):
        free = _free(_gone(using, clock.moment(using)).filter(pk__in=ids))
        Worker.objects.using(using).filter(pk__in=free).delete()
    return [Repaired(pk, Worker.State.GONE, "removed") for pk in free]


def _free(workers: QuerySet[Worker]) -> list[Any]:
    return list(workers.select_for_update(skip_locked=True).values_list("pk", flat=True))


KINDS: tuple[Kind, ...] = (
    Kind("lost", "running, lease expired", _lost, lifecycle.take_back, takes_leases=True),
    Kind("stopping", "cancelled, lease expired", _stopping, lifecycle.take_back, takes_leases=True),
    Kind("due", "scheduled, time has come", lifecycle.due, _promote),
    Kind("silent", "worker without heartbeat", _silent, _mark_gone),
    Kind("gone", "worker gone for a day", _gone, _remove),
)


def sweep(
    *, limit: int | None = None, dry_run: bool = False, take_leases: bool = True
) -> list[Finding]:
    """One pass: for each kind, what was found, what was repaired, and what could not be and why.

    At most `limit` rows a kind; `dry_run` only counts; without `take_leases` no lease is taken
    from anyone. A row that cannot be repaired is logged and left, and never stops the pass. Raises
    OperationalError or InterfaceError when the database cannot be reached.
    """
    findings = []
    waited = False
    for kind in KINDS:
        if take_leases or not kind.takes_leases:
            finding = Finding(kind.name, kind.what)
            if dry_run:
                using = conf.options().database
                found = kind.find(using, clock.moment(using)).order_by()
                finding.found = found[:limit].count() if limit else found.count()
            elif not (waited and kind.takes_leases):
                waited = _repair(kind, finding, limit) or waited
            findings.append(finding)
    return findings


def hold_off() -> float:
    """Seconds to wait before leases may be taken: after a restart of PostgreSQL, owners come first."""
    options = conf.options()
    connection = connections[options.database]
    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP() - pg_postmaster_start_time())"
        )
        (age,) = cursor.fetchone()
    return max(0.0, options.heartbeat - float(age))


def _repair(kind: Kind, finding: Finding, limit: int | None) -> bool:
    """Repair what is found of one kind; True if it was held up, so that no more leases are to be
    taken in this pass."""
    using = conf.options().database
    passed_over: set[Any] = set()
    while limit is None or finding.found < limit:
        began = time.monotonic()
        room = BATCH if limit is None else min(BATCH, limit - finding.found)
        rows = kind.find(using, clock.moment(using)).exclude(pk__in=passed_over)
        ids = list(rows.values_list("pk", flat=True)[:room])
        if not ids:
            break
        finding.found += len(ids)
        done = _attempt(kind, ids, finding)
        finding.note(done)
        repaired = {each.id for each in done}
        # Locked by others, or beyond repair: not to be looked at again in this pass.
        passed_over.update(pk for pk in ids if pk not in repaired)
        if kind.takes_leases and lifecycle.was_held_up(time.monotonic() - began):
            return True
    return False


#: What PostgreSQL says of a statement that gave way to others, or was refused for its content: the
#: connection goes on.
OF_ROWS = frozenset({"40001", "40P01", "55P03", "57014", "54000"})


def _is_of_rows(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) in OF_ROWS


def _attempt(kind: Kind, ids: Sequence[Any], finding: Finding) -> Sequence[Repaired]:
    """Repair a batch; where one row spoils it, find that row by halves."""
    try:
        return kind.repair(ids)
    except (DatabaseError, InterfaceError, ValueError, TypeError) as error:
        if isinstance(error, OperationalError | InterfaceError) and not _is_of_rows(error):
            raise
        if len(ids) > 1:
            middle = len(ids) // 2
            return [
                *_attempt(kind, ids[:middle], finding),
                *_attempt(kind, ids[middle:], finding),
            ]
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        finding.left[str(ids[0])] = reason
        logger.error("Cannot repair %s (%s): %s", ids[0], kind.what, reason)
        return []
