"""What the clock repaired, pass by pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import clock, reconcile, sweeps
from jobqueue.admin import charts, confirming, figures, health, panels, words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.panels import migrated
from jobqueue.models import Job, Sweep

#: Rows of a page, and how many eventful ones the chart of a week is drawn from at most.
SHOWN, CHARTED = 50, 5_000

#: Jobs of a kind that a dry run names.
NAMED = 20

#: What each kind of repair is called; one that is not here stands as it is.
KINDS: dict[str, str | Promise] = {
    "lost": gettext_lazy("expired leases taken back"),
    "stopping": gettext_lazy("cancelled jobs let go"),
    "due": gettext_lazy("due jobs queued"),
    "silent": gettext_lazy("silent workers marked gone"),
    "gone": gettext_lazy("rows of gone workers removed"),
}

#: Kinds whose rows are jobs.
OF_JOBS = frozenset({"lost", "stopping", "due"})


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: one sweep, or passes next to each other that found nothing."""

    first: Sweep
    last: Sweep
    passes: int

    @property
    def is_eventful(self) -> bool:
        """Whether anything was found that is out of the ordinary."""
        return self.first.eventful

    @property
    def found(self) -> list[tuple[str | Promise, int, int]]:
        """Of each kind, how many were found and how many repaired."""
        return counts(self.first)

    @property
    def left(self) -> int:
        """How many could not be repaired."""
        return len(self.first.left) if isinstance(self.first.left, list) else 0


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was repaired, or was not and why."""

    kind: str | Promise
    id: str
    before: str
    after: str
    reason: str = ""
    job: Job | None = None


class SweepAdmin(DashboardAdmin):
    """The table of sweeps, one sweep, and what a sweep would do now."""

    tab = "reconcile"
    view_verb = "view_sweep"

    def get_urls(self) -> list[URLPattern]:
        """Pages of our own come before the stock ones."""
        return [
            self.page("live/", self.live_view, "live"),
            self.page("dry/", self.dry_view, "dry"),
            *confirming.urls(self),
            *super().get_urls(),
        ]

    @migrated
    @confirming.for_viewers
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        rows = self.get_queryset(request)
        before = request.GET.get("before", "")
        if before.isdecimal() and len(before) < 19:
            rows = rows.filter(pk__lt=int(before))

        def page() -> tuple[list[Sweep], bool]:
            found = list(rows.order_by("-pk").defer("repairs")[: SHOWN + 1])
            return found[:SHOWN], len(found) > SHOWN

        def chart() -> charts.Chart | None:
            return self._chart(request)

        shown = panels.panel(self.using, page)
        found, more = shown.data or ([], False)
        may_sweep = self.may(request, "sweep")
        return self.draw(
            request,
            "sweeps.html",
            _("Reconcile"),
            **self._head(request),
            table=shown,
            rows=collapsed(found),
            before=before,
            older=found[-1].pk if more else None,
            chart=panels.panel(self.using, chart),
            may_sweep=may_sweep,
            sweep_url=confirming.address(self, request, "sweep") if may_sweep else "",
            dry_url=self.url("dry"),
            live_url=self.url("live"),
        )

    @migrated
    def live_view(self, request: HttpRequest) -> HttpResponse:
        """The lines above the table, which are refilled while the page is open."""
        self.demand(request, self.view_verb)
        return panels.fragment(self, request, "_sweeps.html", self._head(request))

    @migrated
    @confirming.for_viewers
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One sweep: each thing that it repaired, and what it left."""
        known = object_id.isdecimal() and len(object_id) < 19
        sweep = self.get_queryset(request).filter(pk=object_id).first() if known else None
        if sweep is None:
            messages.warning(request, _("Sweep “%s” doesn’t exist.") % object_id)
            return HttpResponseRedirect(self.url("changelist"))
        self.demand(request, self.view_verb, sweep)
        return self.draw(
            request,
            "sweep.html",
            _("Sweep #%s") % sweep.pk,
            sweep=sweep,
            counts=counts(sweep),
            repairs=self._repairs(request, sweep.repairs, told=4),
            left=self._repairs(request, sweep.left, told=3),
        )

    @migrated
    def dry_view(self, request: HttpRequest) -> HttpResponse:
        """What a sweep would repair now. It changes nothing, but it looks at everything."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        for right in (self.view_verb, "sweep"):
            if not self.may(request, right):
                return confirming.refuse(self, request, "sweep", right)
        found = panels.panel(self.using, lambda: sweeps.run(request.user, dry_run=True))
        named = panels.panel(self.using, lambda: self._first_jobs(request)).data or {}
        return self.draw(
            request,
            "sweep_dry.html",
            _("What a sweep would repair now"),
            problem=found.problem,
            findings=[
                (KINDS.get(finding.kind, finding.kind), finding, named.get(finding.kind, ()))
                for finding in found.data or ()
            ],
            any_found=any(finding.found for finding in found.data or ()),
            sweep_url=confirming.address(self, request, "sweep"),
            back_url=self.url("changelist"),
        )

    def _first_jobs(self, request: HttpRequest) -> dict[str, list[Job]]:
        """Of each kind whose rows are jobs, the first that a sweep would repair, as far as this person sees them."""
        found = {}
        for kind in reconcile.KINDS:
            if kind.name in OF_JOBS:
                rows = kind.find(self.using, clock.moment(self.using))
                keys = list(rows.values_list("pk", flat=True)[:NAMED])
                visible = self.jobs(request).filter(pk__in=keys).only("id", "task_path")
                found[kind.name] = list(visible.order_by("pk"))
        return found

    def _head(self, request: HttpRequest) -> dict[str, Any]:
        rows = self.get_queryset(request).defer("repairs", "left")
        found = panels.panel(self.using, lambda: health.last_sweep(rows))
        last: Sweep | None = found.data
        now = clock.now(self.using)
        overdue = not found.problem and health.is_overdue(last, now)
        return {
            "problem": found.problem,
            "last": last,
            "repaired": out_of_the_ordinary(last.repaired) if last and last.eventful else 0,
            "overdue": health.overdue_words(last, now) if overdue else "",
            "command": "python manage.py reconcile",
        }

    def _chart(self, request: HttpRequest) -> charts.Chart | None:
        """Repairs per hour in seven days; none where there were none."""
        now = clock.now(self.using)
        start = (now - timedelta(days=7)).replace(minute=0, second=0, microsecond=0)
        hours = [0] * (7 * 24 + 1)
        rows = self.get_queryset(request).filter(eventful=True, finished_at__gte=start)
        for ended, repaired in rows.order_by("-pk").values_list("finished_at", "repaired")[
            :CHARTED
        ]:
            hour = int((ended - start).total_seconds() // 3_600)
            if 0 <= hour < len(hours):
                hours[hour] += out_of_the_ordinary(repaired)
        if not any(hours):
            return None
        return drawn(start, hours)

    def _repairs(self, request: HttpRequest, listed: Any, told: int) -> list[Repair]:
        """Lines of a sweep with the jobs that they are about; of jobs that this person may not see, none."""
        lines = [
            [str(part) for part in line]
            for line in (listed if isinstance(listed, list) else [])
            if isinstance(line, list) and len(line) == told
        ]
        keys = {line[1] for line in lines if line[0] in OF_JOBS and _is_uuid(line[1])}
        visible = self.jobs(request)
        short = visible.only("id", "task_path", "queue_name").filter(pk__in=keys)
        jobs = {str(job.pk): job for job in short}
        limited = panels.is_limited(visible)
        repairs = []
        for kind, key, *rest in lines:
            if limited and kind in OF_JOBS and key not in jobs:
                continue
            before, after = rest if told == 4 else ("", "")
            reason = rest[0] if told == 3 else ""
            job = jobs.get(key) if kind in OF_JOBS else None
            repairs.append(Repair(KINDS.get(kind, kind), key, before, after, reason, job))
        return repairs


def collapsed(found: list[Sweep]) -> list[Row]:
    """The sweeps, newest first, with those that found nothing drawn together."""
    rows: list[Row] = []
    for sweep in found:
        if rows and not sweep.eventful and not rows[-1].is_eventful:
            rows[-1] = Row(rows[-1].first, sweep, rows[-1].passes + sweep.passes)
        else:
            rows.append(Row(sweep, sweep, sweep.passes))
    return rows


def counts(sweep: Sweep) -> list[tuple[str | Promise, int, int]]:
    """Of each kind, how many a sweep found and how many it repaired."""
    found, repaired = counted(sweep.found), counted(sweep.repaired)
    kinds = [*KINDS, *sorted((found.keys() | repaired.keys()) - KINDS.keys())]
    return [
        (KINDS.get(kind, kind), found.get(kind, 0), repaired.get(kind, 0))
        for kind in kinds
        if found.get(kind) or repaired.get(kind)
    ]


def counted(stored: Any) -> Mapping[str, int]:
    """Numbers by kind, whatever lies in the row."""
    if not isinstance(stored, dict):
        return {}
    return {str(kind): number for kind, number in stored.items() if isinstance(number, int)}


def out_of_the_ordinary(repaired: Any) -> int:
    """How many repairs were not of the kinds that a healthy site has all the time."""
    return sum(number for kind, number in counted(repaired).items() if kind not in sweeps.ORDINARY)


def drawn(start: datetime, hours: list[int]) -> charts.Chart:
    """Repairs per hour as a chart."""
    columns = []
    for place, number in enumerate(hours):
        hour = figures.clock_time(start + timedelta(hours=place))
        columns.append((f"{hour}: {words.grouped(number)}", [("retrying", number)]))
    title = _("Repairs per hour in seven days: %(all)s in all, at most %(peak)s in an hour") % {
        "all": words.grouped(sum(hours)),
        "peak": words.grouped(max(hours)),
    }
    times = charts.times(start, start + timedelta(hours=len(hours)))
    return charts.bars(title, columns, times, figures.number)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
