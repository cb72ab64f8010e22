"""How staff remove ended jobs for ever, before their time: with their log, and never one that somebody holds."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from jobqueue.actors import Actor, kept_reason
from jobqueue.lifecycle.batches import Counts, OnBatch, in_batches
from jobqueue.lifecycle.pruning import Pruned, delete, held_by_others
from jobqueue.lifecycle.states import purge_refusal
from jobqueue.models import Job

logger = logging.getLogger("jobqueue")

HELD = "a row of another table refers to it"


def purge_many(
    jobs: QuerySet[Job],
    actor: Any = None,
    reason: str = "",
    *,
    on_batch: OnBatch | None = None,
    until: float | None = None,
) -> Counts:
    """Remove those of `jobs` that are final and held by nobody, in short transactions; see
    `cancel_many`. The jobs' log goes with them: who did it, and why, goes to Python's log, and is
    for the caller to keep."""
    counts = in_batches(jobs, _purge, on_batch=on_batch, until=until)
    if counts.changed:
        who = Actor.of(actor).name or "the application"
        logger.info("%s jobs were purged by %s: %s", counts.changed, who, kept_reason(reason))
    return counts


def _purge(using: str, job_ids: Sequence[UUID]) -> Counts:
    counts = Counts()
    rows = Job.objects.using(using).filter(pk__in=job_ids).order_by("pk")
    allowed: list[tuple[UUID, str]] = []
    # Not just the row's content: nobody may begin to refer to it either.
    for job in rows.only("id", "status", "lease_owner").select_for_update():
        refused = purge_refusal(job.status, stopping=job.is_stopping)
        if refused is None:
            allowed.append((job.pk, job.status))
        else:
            counts.skip(refused)
    held = set(held_by_others(using, [pk for pk, _ in allowed]))
    removed = Pruned(held=sorted(held))
    delete(using, [row for row in allowed if row[0] not in held], removed)
    counts.skip(HELD, len(removed.held))
    counts.changed = removed.total
    return counts
