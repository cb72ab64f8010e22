"""The queues there are: named by the jobs in them, kept in a row each, so that staff can pause them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from jobqueue import clock, conf, dispatch
from jobqueue.actors import Actor, kept_reason
from jobqueue.attempts import MAX_QUEUE_NAME
from jobqueue.models import Job, Queue, Status
from jobqueue.texts import storable_text

logger = logging.getLogger("jobqueue")


def known() -> list[str]:
    """The names of all queues that have been seen, sorted."""
    using = conf.options().database
    return list(Queue.objects.using(using).order_by("name").values_list("name", flat=True))


def paused() -> set[str]:
    """The names of the queues from which nothing is to be claimed now."""
    using = conf.options().database
    now = clock.now(using)
    rows = Queue.objects.using(using).filter(paused_at__isnull=False)
    return {queue.name for queue in rows if queue.is_paused(now)}


def claimable() -> list[str]:
    """The names of the queues that hold a claimable job, sorted.

    Steps from name to name along the index of claimable jobs: one look a queue, whatever it holds.
    """
    queued = Job.objects.using(conf.options().database).filter(status=Status.QUEUED)
    names: list[str] = []
    name = queued.order_by("queue_name").values_list("queue_name", flat=True).first()
    while name is not None:
        names.append(name)
        later = queued.filter(queue_name__gt=name).order_by("queue_name")
        name = later.values_list("queue_name", flat=True).first()
    return names


def _between(names: Sequence[str]) -> set[str]:
    """The queues beside these, sorted ones, that hold a claimable job.

    Looks into the gaps: an old snapshot may keep many rows of the known queues in the index.
    """
    queued = Job.objects.using(conf.options().database).filter(status=Status.QUEUED)
    found: set[str] = set()
    for low, high in itertools.pairwise([None, *names, None]):
        gap = queued.order_by("queue_name").values_list("queue_name", flat=True)
        if high is not None:
            gap = gap.filter(queue_name__lt=high)
        while True:
            name = (gap if low is None else gap.filter(queue_name__gt=low)).first()
            if name is None:
                break
            found.add(name)
            low = name
    return found


def discover(served: Collection[str] = ()) -> list[str]:
    """Add a row for each queue that has none yet and holds a claimable job, or is among `served`:
    those whose jobs have been claimed so fast that none was left to be seen. Returns the new names."""
    using = conf.options().database
    names = known()
    new = sorted({*_between(names), *served}.difference(names))
    if new:
        rows = [Queue(name=name) for name in new]
        Queue.objects.using(using).bulk_create(rows, ignore_conflicts=True)
    return new


def pause(
    names: Iterable[str], *, actor: Any = None, reason: str = "", until: datetime | None = None
) -> list[str]:
    """Have nothing more claimed from these queues, until they are resumed or `until` has come.

    What runs goes on, and jobs are accepted as before. A queue that no worker has seen yet gets
    its row; one that is paused already is paused anew. Returns the names, sorted. Raises ValueError
    for a time that has passed.
    """
    using = conf.options().database
    wanted = sorted(set(names))
    for name in wanted:
        if not 0 < len(name) <= MAX_QUEUE_NAME or storable_text(name, MAX_QUEUE_NAME) != name:
            raise ValueError(f"{name!r} is no name of a queue.")
    with transaction.atomic(using):
        if until is not None and until <= clock.now(using):
            raise ValueError(f"A pause cannot end in the past: {until}.")
        missing = sorted(set(wanted).difference(known()))
        rows = [Queue(name=name) for name in missing]
        Queue.objects.using(using).bulk_create(rows, ignore_conflicts=True)
        Queue.objects.using(using).filter(name__in=_locked(using, wanted)).update(
            paused_at=clock.moment(using),
            paused_until=until,
            paused_by=Actor.of(actor).name,
            pause_reason=kept_reason(reason),
        )
    return wanted


def resume(names: Iterable[str], *, actor: Any = None, reason: str = "") -> list[str]:
    """Have jobs claimed again, at once, from those of these queues that are paused. Returns their
    names, sorted. Who did it, and why, is for the caller to keep: the row tells of a pause only."""
    using = conf.options().database
    with transaction.atomic(using):
        paused = Queue.objects.using(using).filter(paused_at__isnull=False)
        resumed = list(paused.filter(name__in=_locked(using, names)).values_list("name", flat=True))
        Queue.objects.using(using).filter(name__in=resumed).update(
            paused_at=None, paused_until=None, paused_by="", pause_reason=""
        )
        dispatch.look(using, resumed)
    who = Actor.of(actor).name or "the application"
    if resumed:
        logger.info("Resumed by %s: %s. %s", who, ", ".join(resumed), kept_reason(reason))
    return sorted(resumed)


def _locked(using: str, names: Iterable[str]) -> list[str]:
    """The names of those rows, locked in their order, so that two who pause do not wait for each other."""
    rows = Queue.objects.using(using).filter(name__in=list(names)).order_by("name")
    return list(rows.select_for_update(no_key=True).values_list("name", flat=True))
