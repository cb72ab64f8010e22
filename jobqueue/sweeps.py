"""What is kept of the passes of the clock's repairs, so that staff can read what they found; and a pass on demand."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import Q

from jobqueue import clock, comparing, conf, reconcile, tallies
from jobqueue.actors import Actor
from jobqueue.findings import TOLD, Finding
from jobqueue.models import Sweep
from jobqueue.ready import Unreachable
from jobqueue.texts import storable_text

logger = logging.getLogger("jobqueue")

#: Kinds that are found in a healthy site all the time.
ORDINARY = frozenset({"due", "gone"})

#: Seconds between two writes of a row that many passes share.
WRITE_EVERY = 10.0

#: Seconds for which rows are kept: those of passes like all others, and the rest.
KEPT, EVENTFUL_KEPT = 2 * 86_400, 30 * 86_400

#: Rows of a kind that a pass on demand looks at, as somebody waits for it; rows that are pruned at once.
RUN_LIMIT = 1_000
PRUNED = 200

#: Characters of an id or a reason that are kept.
MAX_TEXT = 500


def is_eventful(findings: Sequence[Finding]) -> bool:
    """Whether anything out of the ordinary was repaired, or could not be."""
    return any(
        finding.left or (finding.repaired and finding.kind not in ORDINARY) for finding in findings
    )


class _Shared:
    """A row that many passes share, and what it does not tell yet. Only its own process writes it."""

    def __init__(self, **values: Any) -> None:
        self.row = Sweep(passes=0, **values)
        self._write_at = 0.0

    def add(self, using: str, findings: Sequence[Finding], began: datetime, took: float) -> None:
        row = self.row
        row.passes += 1
        row.took = took
        row.found = _summed(row.found, {each.kind: each.found for each in findings})
        row.repaired = _summed(row.repaired, {each.kind: each.repaired for each in findings})
        row.finished_at = began + timedelta(seconds=took)
        if time.monotonic() < self._write_at:
            return
        if row.pk is None:
            row.started_at = began
            row.save(using=using, force_insert=True)
        else:
            self.write(using)
        self._write_at = time.monotonic() + WRITE_EVERY

    def write(self, using: str) -> None:
        """Write what has been added; a row that somebody holds waits for the next time."""
        row = self.row
        if row.pk is None:
            return
        rows = Sweep.objects.using(using)
        columns = ("passes", "took", "finished_at", "found", "repaired")
        with transaction.atomic(using):
            mine = rows.filter(pk=row.pk).select_for_update(skip_locked=True, no_key=True)
            if mine.exists():
                rows.filter(pk=row.pk).update(**{name: getattr(row, name) for name in columns})


class Recorder:
    """Writes down the passes of one process.

    Passes like all others share a row, and so do those that could only not repair what the one
    before could not either: a row that nobody can repair is found again every tick.
    """

    def __init__(self, *, worker: str = "", actor: Any = None) -> None:
        self._who = {"worker": worker, "actor_name": Actor.of(actor).name}
        self._ordinary = _Shared(**self._who)
        self._stuck: _Shared | None = None

    def record(self, findings: Sequence[Finding], began: datetime, took: float) -> None:
        """Write down a pass that began at a moment of the database's clock. Raises only if the
        connection is of no use any more."""
        with _forgiving():
            self._record(conf.options().database, findings, began, took)

    def _record(
        self, using: str, findings: Sequence[Finding], began: datetime, took: float
    ) -> None:
        if not is_eventful(findings):
            self._stuck = None
            self._ordinary.add(using, findings, began, took)
            return
        left = _left(findings)
        news = any(each.repaired for each in findings if each.kind not in ORDINARY)
        if news or self._stuck is None or self._stuck.row.left != left:
            self._stuck = _Shared(**self._who, left=left, repairs=_repairs(findings), eventful=True)
        self._stuck.add(using, findings, began, took)

    def close(self) -> None:
        """Write what has been added since the last time."""
        with _forgiving():
            self._ordinary.write(conf.options().database)


@contextmanager
def _forgiving() -> Iterator[None]:
    """Logs what the database refuses, as no repair may fail for what is told of it; lets through
    that the connection is gone."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        if not connections[conf.options().database].is_usable():
            raise
        logger.warning("Cannot write down what a pass has repaired: %s", error)


def run(
    actor: Any = None, dry_run: bool = False, *, limit: int | None = RUN_LIMIT
) -> list[Finding]:
    """A pass that somebody asks for, over Redis too, where there is one. It is written down with
    their name, unless it is a dry one. At most `limit` rows of a kind are looked at."""
    using = conf.options().database
    began, at = clock.now(using), time.monotonic()
    # After a restart of the server owners come first.
    take_leases = dry_run or not reconcile.hold_off()
    findings = reconcile.sweep(limit=limit, dry_run=dry_run, take_leases=take_leases)
    findings += _compared(limit, dry_run)
    if not dry_run:
        took = time.monotonic() - at
        Sweep.objects.using(using).create(
            started_at=began,
            finished_at=began + timedelta(seconds=took),
            took=took,
            actor_name=Actor.of(actor).name,
            found=_summed({}, {each.kind: each.found for each in findings}),
            repaired=_summed({}, {each.kind: each.repaired for each in findings}),
            repairs=_repairs(findings),
            left=_left(findings),
            eventful=True,  # somebody wants to see it
        )
        count(findings, began)
    return findings


def _compared(limit: int | None, dry_run: bool) -> list[Finding]:
    shelf = comparing.own_shelf()
    if shelf is None:
        return []
    try:
        return comparing.compare(shelf, limit=limit, dry_run=dry_run)
    except Unreachable as error:
        logger.warning("Redis was not looked at: %s", error)
        return []
    finally:
        shelf.line.close()


def count(findings: Sequence[Finding], now: datetime) -> None:
    """Count the attempts that a pass has taken back, where no worker does so."""
    counter = tallies.Counter()
    for finding in findings:
        counter.lost(finding.taken)
    counter.write(now)


def prune(limit: int = PRUNED) -> int:
    """Remove rows that have been kept for long enough; returns how many."""
    using = conf.options().database
    now = clock.now(using)
    old = Q(eventful=True, finished_at__lt=now - timedelta(seconds=EVENTFUL_KEPT))
    old |= Q(eventful=False, finished_at__lt=now - timedelta(seconds=KEPT))
    sweeps = Sweep.objects.using(using)
    with transaction.atomic(using):
        rows = sweeps.filter(old).order_by("pk").select_for_update(skip_locked=True)
        pks = list(rows.values_list("pk", flat=True)[:limit])
        sweeps.filter(pk__in=pks).delete()
    return len(pks)


def _summed(before: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    kinds = {*before, *(kind for kind, number in more.items() if number)}
    return {kind: before.get(kind, 0) + more.get(kind, 0) for kind in sorted(kinds)}


def _repairs(findings: Sequence[Finding]) -> list[list[str]]:
    rows = [
        [finding.kind, storable_text(str(each.id), MAX_TEXT), str(each.before), str(each.after)]
        for finding in sorted(findings, key=lambda finding: finding.kind in ORDINARY)
        for each in finding.repairs
    ]
    return rows[:TOLD]


def _left(findings: Sequence[Finding]) -> list[list[str]]:
    rows = [
        [finding.kind, storable_text(row, MAX_TEXT), storable_text(reason, MAX_TEXT)]
        for finding in findings
        for row, reason in finding.left.items()
    ]
    return rows[:TOLD]
