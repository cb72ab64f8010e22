"""The queues: what waits in each, who serves it, and whether staff have paused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import unquote
from django.db.models import Count, Min, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext as _

from jobqueue import clock, tallies
from jobqueue.admin import charts, confirming, figures, health, panels, states
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.panels import Panel, migrated
from jobqueue.models import Job, Queue, Worker

#: Queues on a page; above `FILTERED` of them there is a field to narrow them by name.
SHOWN, FILTERED = 500, 20


@dataclass(slots=True)
class Row:
    """A queue as the table shows it."""

    name: str
    queue: Queue | None
    paused: bool
    counts: Mapping[str, int]
    oldest: datetime | None
    late: bool
    slots: int
    workers: int
    per_minute: list[int] | None = None
    failed: int | None = None
    actions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def query(self) -> str:
        """The part of an address of the list that names the queue."""
        return urlencode({"queue": self.name})

    @property
    def unserved(self) -> bool:
        """Whether jobs wait that nobody takes."""
        return bool(self.counts["queued"]) and not self.workers

    @property
    def busy(self) -> bool:
        """Whether anything ended in the last hour, as far as this person may know."""
        return any(self.per_minute or ())

    @property
    def spark(self) -> str:
        """The path of the small chart."""
        return charts.spark(self.per_minute or ())

    @property
    def average(self) -> str:
        """How many jobs ended in a minute, on the whole."""
        minutes = self.per_minute or [0]
        return figures.number(round(sum(minutes) / len(minutes), 1))


class QueueAdmin(DashboardAdmin):
    """The table of queues; the page of one is the list of its jobs."""

    tab = "queues"
    view_verb = "view_queue"

    def get_urls(self) -> list[URLPattern]:
        """The live part and the confirmations come before the stock pages."""
        return [
            self.page("live/", self.live_view, "live"),
            *confirming.urls(self),
            *super().get_urls(),
        ]

    @migrated
    @confirming.for_viewers
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        return self.draw(request, "queues.html", _("Queues"), **self._shown(request))

    @migrated
    def live_view(self, request: HttpRequest) -> HttpResponse:
        """What is refilled while the page is open."""
        self.demand(request, self.view_verb)
        return panels.fragment(self, request, "_queues.html", self._shown(request))

    @confirming.for_viewers
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The jobs of one queue."""
        query = urlencode({"queue": unquote(object_id)})
        return HttpResponseRedirect(f"{self.url('changelist', model=Job)}?{query}")

    def _shown(self, request: HttpRequest) -> dict[str, Any]:
        narrowed = request.GET.get("name", "").strip()
        now = clock.now(self.using)
        found = self._panel(request)
        rows: list[Row] = []
        if not found.problem:
            rows = self._rows(request, found.data, now)
        kept = [row for row in rows if narrowed.lower() in row.name.lower()]
        shown = kept[:SHOWN]
        for row in shown:
            row.actions = self._actions(request, row)
        return {
            "problem": found.problem,
            "rows": shown,
            "more": len(kept) - len(shown),
            "name": narrowed,
            "filtered": narrowed or len(rows) > FILTERED,
            "jobs_url": self.url("changelist", model=Job),
            "live_url": f"{self.url('live')}?{urlencode({'name': narrowed})}",
        }

    def _panel(self, request: HttpRequest) -> Panel:
        """What of the table is the same for all who see the same jobs."""
        jobs = self.jobs(request)
        workers = self.site_admin(Worker).get_queryset(request)
        limited = panels.is_limited(jobs)

        def compute() -> dict[str, Any]:
            now = clock.now(self.using)
            return {
                "live": live(jobs, now),
                "crew": health.serving(workers, now),
                "hour": {} if limited else tallies.by_queue("1h"),
                "day": {} if limited else tallies.by_queue("24h"),
                "limited": limited,
            }

        return panels.shared(
            "queues",
            panels.audience(self, request, jobs, workers),
            lambda: panels.panel(self.using, compute),
        )

    def _rows(self, request: HttpRequest, found: dict[str, Any], now: datetime) -> list[Row]:
        queues = {queue.name: queue for queue in self.get_queryset(request)}
        # A queue that no worker has seen has no row of its own yet, but it has jobs.
        unseen = () if panels.is_limited(self.get_queryset(request)) else found["live"]
        rows = []
        for name in {*queues, *unseen}:
            counted = found["live"].get(name, NOTHING)
            queue = queues.get(name)
            serving = [worker for worker in found["crew"] if worker.serves(name)]
            row = Row(
                name=name,
                queue=queue,
                paused=queue is not None and queue.is_paused(now),
                counts=counted,
                oldest=counted["oldest"],
                late=counted["oldest"] is not None
                and (now - counted["oldest"]).total_seconds() > health.LONG_WAIT,
                slots=sum(worker.slots for worker in serving),
                workers=len(serving),
            )
            if not found["limited"]:
                row.per_minute = [bar.total for bar in found["hour"].get(name, ())]
                row.failed = sum(bar.failed for bar in found["day"].get(name, ()))
            rows.append(row)
        return sorted(rows, key=lambda row: (not row.paused, row.oldest or now, row.name))

    def _actions(self, request: HttpRequest, row: Row) -> list[tuple[str, str]]:
        """Words and addresses of what this person may do to the queue now."""
        if row.queue is None:
            return []
        verb, label = ("resume", _("Resume…")) if row.paused else ("pause", _("Pause…"))
        if not self.may(request, verb, row.queue):
            return []
        return [(label, confirming.address(self, request, verb, ids=[row.name]))]


#: What a queue holds that holds nothing.
NOTHING: dict[str, Any] = {
    "queued": 0,
    "processing": 0,
    "lost": 0,
    "scheduled": 0,
    "retrying": 0,
    "oldest": None,
}


def live(jobs: QuerySet[Job], now: datetime) -> dict[str, dict[str, Any]]:
    """By queue, how many jobs stand in each state that is not final, and since when the oldest is due."""
    keys = ("queued", "processing", "lost", "scheduled", "retrying")
    # Joined by OR, each part finds its partial index.
    unfinished = (
        Q(status="queued")
        | Q(status="scheduled")
        | Q(status="processing", lease_owner__isnull=False)
    )
    rows = (
        jobs.filter(unfinished)
        .order_by()
        .values("queue_name")
        .annotate(
            oldest=Min("run_after", filter=states.condition("queued", now)),
            **{key: Count("pk", filter=states.condition(key, now)) for key in keys},
        )
    )
    return {row["queue_name"]: dict(row) for row in rows}
