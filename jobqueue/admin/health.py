"""How the queue stands: its numbers, its workers, and what needs attention. Nothing here counts without an end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import conf, queues, sweeps
from jobqueue.admin import words
from jobqueue.admin.words import CAP
from jobqueue.models import Job, Queue, Status, Sweep, Worker

#: Of scheduled jobs so many are looked at, the soonest first, since retrying ones have no index of their own.
LOOKED_AT = 2 * CAP

#: Seconds that a job of a queue that runs may wait before the overview says so.
LONG_WAIT = 600.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the tiles show. Counts stop at `CAP` + 1; `at_least` names those that may be more than they say."""

    counts: dict[str, int]
    at_least: frozenset[str]
    oldest: datetime | None  # since when the job that waits longest could have run
    oldest_unpaused: datetime | None
    next_retry: datetime | None
    next_due: datetime | None
    first_lost: datetime | None  # when its lease ran out


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers that are not gone."""

    alive: int
    late: int
    silent: int
    slots: int  # of those alive
    serve_all: bool
    served: frozenset[str]
    versions: dict[str, int]

    def serves(self, queue: str) -> bool:
        """Whether one that is alive takes jobs of this queue."""
        return self.serve_all or queue in self.served


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs attention, and the tab (with a query) where more is said about it."""

    text: str
    tab: str
    query: str = ""
    urgent: bool = True


def numbers(jobs: QuerySet[Job], now: datetime, paused: Collection[str] = ()) -> Numbers:
    """Count, each state along its own index and no further than `CAP`."""
    queued = (
        jobs.filter(status=Status.QUEUED)
        .order_by("queue_name", "-priority", "id")[: CAP + 1]
        .aggregate(
            n=Count("pk"),
            oldest=Min("run_after"),
            unpaused=Min("run_after", filter=~Q(queue_name__in=list(paused))),
        )
    )
    later = (
        jobs.filter(status=Status.SCHEDULED)
        .order_by("run_after")[:LOOKED_AT]
        .aggregate(
            n=Count("pk"),
            scheduled=Count("pk", filter=Q(error="")),
            next_due=Min("run_after", filter=Q(error="")),
            next_retry=Min("run_after", filter=~Q(error="")),
        )
    )
    lost = Q(lease_expires_at__lte=now)
    leased = (
        jobs.filter(status=Status.PROCESSING, lease_owner__isnull=False)
        .order_by("id")[: CAP + 1]
        .aggregate(
            n=Count("pk"),
            lost=Count("pk", filter=lost),
            first_lost=Min("lease_expires_at", filter=lost),
        )
    )
    failed = jobs.filter(status=Status.FAILED).order_by("id")[: CAP + 1].count()
    counts = {
        "queued": queued["n"],
        "processing": leased["n"] - leased["lost"],
        "retrying": later["n"] - later["scheduled"],
        "failed": failed,
        "lost": leased["lost"],
        "scheduled": later["scheduled"],
    }
    at_least = {"retrying", "scheduled"} if later["n"] == LOOKED_AT else set()
    if leased["n"] > CAP:
        at_least |= {"processing", "lost"}
    return Numbers(
        counts,
        frozenset(at_least),
        queued["oldest"],
        queued["unpaused"],
        later["next_retry"],
        later["next_due"],
        leased["first_lost"],
    )


def standing(worker: Worker, now: datetime) -> str:
    """Whether a worker is "alive", "late", "silent" or "gone", by its last heartbeat alone."""
    if worker.state == Worker.State.GONE:
        return "gone"
    options = conf.options()
    age = (now - worker.heartbeat_at).total_seconds()
    if age <= 2 * options.heartbeat:
        return "alive"
    return "late" if age <= options.lease else "silent"


def crew(workers: QuerySet[Worker], now: datetime) -> Crew:
    """Who is there to run jobs."""
    rows = list(workers.exclude(state=Worker.State.GONE))
    by_standing: dict[str, list[Worker]] = {"alive": [], "late": [], "silent": []}
    for worker in rows:
        by_standing[standing(worker, now)].append(worker)
    alive = by_standing["alive"]
    taking = [each for each in alive if each.state == Worker.State.RUNNING]
    versions: dict[str, int] = {}
    for worker in alive:
        versions[worker.version] = versions.get(worker.version, 0) + 1
    return Crew(
        len(alive),
        len(by_standing["late"]),
        len(by_standing["silent"]),
        sum(worker.slots for worker in alive),
        any(not worker.queues for worker in taking),
        frozenset(name for worker in taking for name in queue_names(worker)),
        versions,
    )


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker that takes jobs: of which queues (all where none is named), and how many at once."""

    queues: frozenset[str]
    slots: int

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs of this queue."""
        return not self.queues or queue in self.queues


def serving(workers: QuerySet[Worker], now: datetime) -> list[Hand]:
    """The workers that are alive and take jobs."""
    return [
        Hand(frozenset(queue_names(worker)), worker.slots)
        for worker in workers.filter(state=Worker.State.RUNNING)
        if standing(worker, now) == "alive"
    ]


def queue_names(worker: Worker) -> list[str]:
    """The queues that a worker takes jobs of; empty for all."""
    return [str(name) for name in worker.queues] if isinstance(worker.queues, list) else []


def last_sweep(rows: QuerySet[Sweep]) -> Sweep | None:
    """The one that ended last; rows are shared by passes, so it need not be the newest row."""
    return max(rows.order_by("-pk")[:50], key=lambda sweep: sweep.finished_at, default=None)


def sweep_interval() -> float:
    """Seconds between two passes, as far as rows tell: those like all others are written now and then."""
    return conf.options().tick + sweeps.WRITE_EVERY


def is_overdue(sweep: Sweep | None, now: datetime) -> bool:
    """Whether no pass has ended for three intervals."""
    return sweep is None or sweep.finished_at < now - timedelta(seconds=3 * sweep_interval())


def notices(
    now: datetime,
    numbers: Numbers,
    crew: Crew,
    paused: Sequence[Queue],
    sweep: Sweep | None,
) -> list[Notice]:
    """All that needs attention, what is urgent first."""
    found = [Notice(_paused(queue, now), "queues") for queue in paused]
    found += _unserved(numbers, crew)
    if crew.silent:
        text = ngettext("%s worker is silent.", "%s workers are silent.", crew.silent)
        found.append(Notice(text % words.grouped(crew.silent), "workers"))
    if numbers.oldest_unpaused is not None:
        waited = (now - numbers.oldest_unpaused).total_seconds()
        if waited > LONG_WAIT:
            text = _("The oldest queued job has waited %s.") % words.duration(waited)
            found.append(Notice(text, "queues"))
    if lost := numbers.counts["lost"]:
        text = ngettext("%s job is lost.", "%s jobs are lost.", lost) % words.capped(lost)
        found.append(Notice(text, "jobs", "?state=lost"))
    if is_overdue(sweep, now) and (sweep or any(numbers.counts.values())):
        found.append(Notice(overdue_words(sweep, now), "reconcile"))
    if len(crew.versions) > 1:
        text = _("Workers of different versions are running: %s.") % ", ".join(
            sorted(crew.versions)
        )
        found.append(Notice(text, "workers", urgent=False))
    return found


def overdue_words(sweep: Sweep | None, now: datetime) -> str:
    """That nothing sweeps."""
    if sweep is None:
        return _("No sweep has run. The reconciler may not be running.")
    return _("No sweep has ended for %s. The reconciler may not be running.") % words.duration(
        (now - sweep.finished_at).total_seconds()
    )


def _paused(queue: Queue, now: datetime) -> str:
    assert queue.paused_at is not None
    text = _("Queue %(queue)s is paused by %(who)s since %(time)s") % {
        "queue": queue.name,
        "who": queue.paused_by or _("somebody"),
        "time": words.absolute(queue.paused_at),
    }
    if queue.paused_until:
        text += _(" until %s") % words.absolute(queue.paused_until)
    return f"{text}: {queue.pause_reason}" if queue.pause_reason else f"{text}."


def _unserved(numbers: Numbers, crew: Crew) -> list[Notice]:
    """Queues with jobs that nobody takes. They are looked for only where they can be."""
    if crew.serve_all or not numbers.counts["queued"]:
        return []
    if not crew.alive:
        text = _("No worker is alive. Start one with %s.") % "python manage.py runworker"
        return [Notice(text, "workers")]
    names = [name for name in queues.claimable() if not crew.serves(name)]
    return [Notice(_("No live worker takes queue %s.") % name, "queues") for name in names[:10]]


def facts(jobs: QuerySet[Job], rows: dict[str, QuerySet[Any]], now: datetime) -> dict[str, Any]:
    """The numbers, the workers and the notices of the overview, in so many short questions."""
    paused = [
        queue for queue in rows["queues"].filter(paused_at__isnull=False) if queue.is_paused(now)
    ]
    counted = numbers(jobs, now, [queue.name for queue in paused])
    there = crew(rows["workers"], now)
    return {
        "numbers": counted,
        "crew": there,
        "notices": notices(now, counted, there, paused[:10], last_sweep(rows["sweeps"])),
    }
