"""The first page: is the queue healthy, and if not, where to look."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import clock, tallies
from jobqueue.admin import confirming, figures, health, panels, telling, words
from jobqueue.admin.base import TABS, DashboardAdmin
from jobqueue.admin.panels import Panel, migrated
from jobqueue.admin.states import STATES
from jobqueue.admin.trail import Trail
from jobqueue.models import AuditEntry, Job, Queue, Sweep, Worker

#: The tiles, in the order in which they stand.
TILES = ("queued", "processing", "retrying", "failed", "lost", "scheduled")


class OverviewAdmin(DashboardAdmin):
    """How the whole queue stands."""

    tab = "overview"
    view_verb = "view_job"

    def get_urls(self) -> list[URLPattern]:
        """The page and its live part; there is no table, so no other page of a model."""
        return [
            self.page("", self.changelist_view, "changelist"),
            self.page("live/", self.live_view, "live"),
        ]

    @migrated
    @confirming.for_viewers
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        return self.draw(request, "overview.html", _("Job queue"), **self._shown(request))

    @migrated
    def live_view(self, request: HttpRequest) -> HttpResponse:
        """What is refilled while the page is open."""
        self.demand(request, self.view_verb)
        return panels.fragment(self, request, "_overview.html", self._shown(request))

    def _shown(self, request: HttpRequest) -> dict[str, Any]:
        chosen = request.GET.get("range", "1h")
        if chosen not in tallies.SPANS:
            chosen = "1h"
        jobs = self.jobs(request)
        rows = {
            "queues": self.site_admin(Queue).get_queryset(request),
            "workers": self.site_admin(Worker).get_queryset(request),
            "sweeps": self.site_admin(Sweep).get_queryset(request),
        }
        limited = panels.is_limited(jobs)

        def compute() -> dict[str, Panel]:
            now = clock.now(self.using)
            found = {
                "facts": panels.panel(self.using, lambda: health.facts(jobs, rows, now)),
            }
            if not limited:
                found["figures"] = panels.panel(self.using, lambda: figures.figures(chosen))
            return found

        audience = panels.audience(self, request, jobs, *rows.values())
        found = panels.shared(f"overview:{chosen}", audience, compute)
        facts = found["facts"]
        return {
            "facts": facts,
            "notices": self._linked(request, facts.data["notices"]) if facts.data else [],
            "tiles": self._tiles(facts.data, found.get("figures")) if facts.data else [],
            "figures": found.get("figures"),
            "jobs_url": self.url("changelist", model=Job),
            "changes": self._changes(request),
            "audit_url": self.url("changelist", model=AuditEntry),
            "range": chosen,
            "ranges": [("1h", _("1 hour")), ("24h", _("24 hours")), ("7d", _("7 days"))],
            "live_url": f"{self.url('live')}?{urlencode({'range': chosen})}",
        }

    def _linked(
        self, request: HttpRequest, notices: list[health.Notice]
    ) -> list[tuple[health.Notice, str]]:
        """Each notice and the page that says more, if this person may see that."""
        pages = {
            name: self.url("changelist", model=model)
            for name, _label, model, verb in TABS
            if self.site_admin(model).may(request, verb)
        }
        return [
            (notice, pages[notice.tab] + notice.query if notice.tab in pages else "")
            for notice in notices
        ]

    def _tiles(self, facts: dict[str, Any], drawn: Panel | None) -> list[dict[str, Any]]:
        numbers, crew = facts["numbers"], facts["crew"]
        subs = {
            "queued": (_("oldest due"), numbers.oldest, _("none waits")),
            "processing": (
                ngettext(
                    "of %(slots)s slots, %(workers)s worker alive",
                    "of %(slots)s slots, %(workers)s workers alive",
                    crew.alive,
                )
                % {"slots": words.grouped(crew.slots), "workers": words.grouped(crew.alive)},
                None,
                "",
            ),
            "retrying": (_("next attempt"), numbers.next_retry, _("no retries wait")),
            "failed": ("", None, self._failed_lately(drawn)),
            "lost": (_("lease ran out"), numbers.first_lost, _("every lease is kept")),
            "scheduled": (_("next due"), numbers.next_due, _("nothing planned")),
        }
        list_url = self.url("changelist", model=Job)
        tiles = []
        for key in TILES:
            label, moment, otherwise = subs[key]
            count = numbers.counts[key]
            more = "+" if key in numbers.at_least and count <= words.CAP else ""
            tiles.append(
                {
                    "state": STATES[key],
                    "number": words.capped(count) + more,
                    "alarming": count and key in ("failed", "lost"),
                    "label": label if moment or not otherwise else otherwise,
                    "moment": moment,
                    "url": f"{list_url}?{urlencode({'state': key})}",
                }
            )
        return tiles

    def _failed_lately(self, drawn: Panel | None) -> str:
        if drawn is None or drawn.data is None:
            return _("all attempts used")
        return _("+%s in the last hour") % words.grouped(drawn.data["failed_lately"])

    def _changes(self, request: HttpRequest) -> Panel | None:
        """The newest changes by staff, for those who may read the audit log."""
        audit = self.site_admin(AuditEntry)
        if not audit.may(request, audit.view_verb):
            return None

        def newest() -> list[telling.Line]:
            return telling.lines(audit, request, Trail.of(audit, request, {}).page(5).rows)

        return panels.panel(self.using, newest)
