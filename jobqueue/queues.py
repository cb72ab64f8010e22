"""The queues there are: named by the jobs in them, kept in a row each, so that staff can pause them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from jobqueue import clock, conf
from jobqueue.models import Job, Queue, Status


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
