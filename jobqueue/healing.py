"""How Redis is brought to agree with the database: what it lacks is pushed, what is not its own is removed.

Workers do the cheap part once a tick; `reconcile` compares everything, page by page.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from uuid import UUID, uuid4

from django.db.models import Q

from jobqueue import conf, queues
from jobqueue.models import Job, Status
from jobqueue.ready import Misused, Ready, Shelf

#: Rows of a page.
PAGE = 1_000
#: Of the first so many jobs of a queue a worker knows each tick whether they are in line.
FIRST = 200
#: Seconds after which a worker's tick leaves the rest to the next.
BUDGET = 0.5


def first(queue: str, count: int, *, after: Ready | None = None) -> list[Ready]:
    """The first claimable jobs of a queue, in the order of claims, behind `after`."""
    jobs = Job.objects.using(conf.options().database)
    jobs = jobs.filter(status=Status.QUEUED, queue_name=queue)
    if after is not None:
        behind = Q(priority=after.priority, id__gt=after.id) | Q(priority__lt=after.priority)
        jobs = jobs.filter(behind, priority__lte=after.priority)
    rows = jobs.order_by("-priority", "id").values_list("id", "queue_name", "priority")
    return [Ready(*row) for row in rows[:count]]


def look(shelf: Shelf, names: Collection[str], first_page: int = FIRST) -> int:
    """Push those of the first claimable jobs that are not in line; where some were missing, look
    behind them too, for a while. Returns how many there were. Raises Unreachable."""
    until = time.monotonic() + BUDGET
    pushed = 0
    for queue in names:
        after: Ready | None = None
        size = first_page
        while page := first(queue, size, after=after):
            missing = _missing(shelf, queue, page)
            if not missing:
                break
            shelf.push(missing)
            pushed += len(missing)
            if len(page) < size or time.monotonic() > until:
                break
            after, size = page[-1], PAGE
    return pushed


def _missing(shelf: Shelf, queue: str, page: list[Ready]) -> list[Ready]:
    try:
        return shelf.missing(queue, page)
    except Misused:
        # The key bears our prefix, so what is in it is a mistake, and in the way.
        shelf.clear(queue)
        return page


def refill(shelf: Shelf) -> int | None:
    """Where Redis has lost its memory, push everything that is queued; one does it at a time.

    Returns how many were pushed; None if there was nothing to do, another does it, or the memory got
    lost again meanwhile. Raises Unreachable.
    """
    if shelf.remembers():
        return None
    token = uuid4().hex
    if not shelf.begin_refill(token):
        return None
    pushed = 0
    for page in _everything():
        _push(shelf, page)
        pushed += len(page)
        if not shelf.go_on(token):
            return None
    return pushed if shelf.finish_refill(token) else None


def _push(shelf: Shelf, page: list[Ready]) -> None:
    try:
        shelf.push(page)
    except Misused:
        shelf.clear(page[0].queue)
        shelf.push(page)


def _everything() -> Iterator[list[Ready]]:
    """All that can be claimed, the most urgent of each queue first."""
    for name in queues.claimable():
        after: Ready | None = None
        while page := first(name, PAGE, after=after):
            yield page
            after = page[-1]


def still_claimable(ids: Collection[UUID], queue: str) -> list[Ready]:
    """Those of the jobs that can be claimed from `queue`."""
    jobs = Job.objects.using(conf.options().database)
    rows = jobs.filter(pk__in=ids, status=Status.QUEUED, queue_name=queue)
    return [Ready(*row) for row in rows.values_list("id", "queue_name", "priority")]
