"""How many jobs are changed at once: their ids first, then batch by batch, a short transaction each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from jobqueue import conf, postgres
from jobqueue.models import Job

#: Rows that one transaction changes.
BATCH = 500

#: The shortest time, in seconds, that a batch waits for a locked row when there is a time to stop at.
SHORTEST_WAIT = 0.1

GONE = "it has been removed meanwhile"


@dataclass(slots=True)
class Counts:
    """What became of a request about many jobs: how many changed, why others did not, and how many
    were not reached when the time was up."""

    changed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    left: int = 0

    @property
    def total_skipped(self) -> int:
        """How many were left as they were."""
        return sum(self.skipped.values())

    def skip(self, reason: str, number: int = 1) -> None:
        """Count jobs that were left as they were."""
        if number:
            self.skipped[reason] = self.skipped.get(reason, 0) + number

    def add(self, others: Counts) -> None:
        """Count what became of a batch."""
        self.changed += others.changed
        for reason, number in others.skipped.items():
            self.skip(reason, number)


#: Changes those of the jobs that it may, within a transaction that is open.
Change = Callable[[str, Sequence[UUID]], Counts]
#: Is told within its transaction what became of a batch; what it raises undoes that batch.
OnBatch = Callable[[Counts], None]


def in_batches(
    jobs: QuerySet[Job],
    change: Change,
    *,
    on_batch: OnBatch | None = None,
    until: float | None = None,
) -> Counts:
    """Have `change` act on all of `jobs`, in short transactions, in the order of their ids.

    No batch begins after `until` (of time.monotonic), nor waits for a locked row much longer.
    """
    using = conf.options().database
    counts = Counts()
    # The ids are frozen first: a changed row may leave the filter, or enter it.
    rows = jobs.using(using)
    rows = rows if rows.query.is_sliced else rows.order_by()
    wanted = sorted(set(rows.values_list("pk", flat=True)))
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        done = _batch(using, batch, change, on_batch, until)
        if done is None:
            break
        counts.add(done)
    counts.left = len(wanted) - counts.changed - counts.total_skipped
    return counts


def _batch(
    using: str,
    batch: Sequence[UUID],
    change: Change,
    on_batch: OnBatch | None,
    until: float | None,
) -> Counts | None:
    """One batch; None if there was no time for it."""
    if until is None:
        with transaction.atomic(using):
            return _change(using, batch, change, on_batch)
    done = None
    remaining = until - time.monotonic()
    if remaining > 0:
        with postgres.patiently(using, max(remaining, SHORTEST_WAIT)):
            done = _change(using, batch, change, on_batch)
    return done


def _change(using: str, batch: Sequence[UUID], change: Change, on_batch: OnBatch | None) -> Counts:
    done = change(using, batch)
    done.skip(GONE, len(batch) - done.changed - done.total_skipped)
    if on_batch is not None:
        on_batch(done)
    return done
