"""The worker processes: when each was last heard of, and what it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobqueue import clock, conf
from jobqueue.admin import confirming, health, panels, words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.panels import migrated
from jobqueue.models import Job, Worker

#: Workers on a page, running jobs that a row names, and jobs that the page of one lists.
SHOWN, NAMED, LISTED = 100, 5, 50

#: The page of one looks for its jobs among so many of the newest, since no index knows who ran what.
LOOKED_AT = 20_000

#: A running worker's words; what it was last heard to be.
STANDINGS: dict[str, str | Promise] = {
    "alive": gettext_lazy("alive"),
    "late": gettext_lazy("late"),
    "silent": gettext_lazy("silent"),
    "gone": gettext_lazy("gone"),
}
STATES: dict[str, str | Promise] = {
    Worker.State.RUNNING: gettext_lazy("Running"),
    Worker.State.QUIET: gettext_lazy("Quiet: finishes what runs"),
    Worker.State.STOPPING: gettext_lazy("Stopping"),
    Worker.State.GONE: gettext_lazy("Gone"),
}

WORST_FIRST = ("silent", "late", "alive", "gone")


@dataclass(slots=True)
class Row:
    """A worker as the table and its page show it."""

    worker: Worker
    standing: str
    jobs: list[Job]
    odd_version: bool
    consequence: str
    url: str
    actions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def used(self) -> int:
        """How many slots are taken, as far as leases tell."""
        return len(self.jobs)

    @property
    def named(self) -> list[Job]:
        """The first of the running jobs."""
        return self.jobs[:NAMED]

    @property
    def more(self) -> int:
        """How many run besides."""
        return max(0, len(self.jobs) - NAMED)

    @property
    def queues(self) -> str:
        """The queues that it serves."""
        return ", ".join(health.queue_names(self.worker)) or _("all")

    @property
    def standing_word(self) -> str | Promise:
        """Whether it is heard of."""
        return STANDINGS[self.standing]

    @property
    def state_word(self) -> str | Promise:
        """What it does about new jobs."""
        return STATES.get(self.worker.state, self.worker.state)

    @property
    def memory(self) -> str:
        """How much memory it said it takes."""
        return filesizeformat(self.worker.memory) if self.worker.memory is not None else "–"

    @property
    def order(self) -> str:
        """What it was asked to do and has not confirmed."""
        worker = self.worker
        unheard = {
            Worker.Order.QUIET: (Worker.State.RUNNING,),
            Worker.Order.STOP: (Worker.State.RUNNING, Worker.State.QUIET),
        }
        if worker.state not in unheard.get(worker.asked, ()):  # type: ignore[call-overload]
            return ""
        return _("stop asked") if worker.asked == Worker.Order.STOP else _("quiet asked")


class WorkerAdmin(DashboardAdmin):
    """The table of workers, and one worker."""

    tab = "workers"
    view_verb = "view_worker"

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
        return self.draw(request, "workers.html", _("Workers"), **self._shown(request))

    @migrated
    def live_view(self, request: HttpRequest) -> HttpResponse:
        """What is refilled while the page is open."""
        self.demand(request, self.view_verb)
        return panels.fragment(self, request, "_workers.html", self._shown(request))

    @migrated
    @confirming.for_viewers
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One worker."""
        worker = self._worker(request, object_id)
        if worker is None:
            text = _("Worker “%s” doesn’t exist. Rows of workers that are gone stay for a day.")
            messages.warning(request, text % object_id)
            return HttpResponseRedirect(self.url("changelist"))
        self.demand(request, self.view_verb, worker)
        now = clock.now(self.using)
        (row,) = self._rows(request, [worker], now)
        listed = panels.panel(self.using, lambda: last_jobs(self.jobs(request), str(worker)))
        return self.draw(
            request,
            "worker.html",
            _("Worker %s") % worker,
            row=row,
            last_jobs=listed,
            looked_at=LOOKED_AT,
            options=conf.options(),
            jobs_url=self.url("changelist", model=Job),
        )

    def _worker(self, request: HttpRequest, key: str) -> Worker | None:
        try:
            found: Worker | None = self.get_queryset(request).filter(pk=key).first()
        except (ValidationError, ValueError):
            return None
        return found

    def _shown(self, request: HttpRequest) -> dict[str, Any]:
        gone = request.GET.get("gone") == "1"
        after = request.GET.get("after", "")
        now = clock.now(self.using)

        def compute() -> dict[str, Any]:
            workers = self.get_queryset(request)
            counts = count(workers, now)
            if not gone:
                workers = workers.exclude(state=Worker.State.GONE)
            page = list(self._behind(request, workers, after)[: SHOWN + 1])
            rows = self._rows(request, page[:SHOWN], now)
            rows.sort(key=lambda row: WORST_FIRST.index(row.standing))
            return {
                "counts": counts,
                "rows": rows,
                "next": page[SHOWN - 1].pk if len(page) > SHOWN else "",
                "waiting": not rows and self.jobs(request).filter(status="queued").exists(),
            }

        found = panels.panel(self.using, compute)
        query = {name: value for name, value in (("gone", "1" * gone), ("after", after)) if value}
        return {
            "problem": found.problem,
            **(found.data or {}),
            "gone": gone,
            "after": after,
            "command": "python manage.py runworker",
            "live_url": f"{self.url('live')}?{urlencode(query)}",
        }

    def _behind(
        self, request: HttpRequest, workers: QuerySet[Worker], after: str
    ) -> QuerySet[Worker]:
        """The workers in the order of the table, behind the one of that id."""
        last = self._worker(request, after) if after else None
        if last is not None:
            workers = workers.filter(
                Q(host__gt=last.host)
                | Q(host=last.host, pid__gt=last.pid)
                | Q(host=last.host, pid=last.pid, pk__gt=last.pk)
            )
        return workers.order_by("host", "pid", "pk")

    def _rows(self, request: HttpRequest, workers: list[Worker], now: datetime) -> list[Row]:
        running = self._running(request, [worker.pk for worker in workers])
        usual = self._usual_version(request)
        rows = []
        for worker in workers:
            standing = health.standing(worker, now)
            jobs = running.get(worker.pk, [])
            row = Row(
                worker=worker,
                standing=standing,
                jobs=jobs,
                odd_version=worker.version != usual and standing != "gone",
                consequence=consequence(standing, jobs, now),
                url=self.url("change", worker.pk),
            )
            row.actions = self._actions(request, row)
            rows.append(row)
        return rows

    def _running(self, request: HttpRequest, owners: list[UUID]) -> dict[UUID, list[Job]]:
        jobs = (
            self.jobs(request)
            .filter(lease_owner__in=owners, lease_owner__isnull=False)
            .only("id", "task_path", "status", "error", "lease_owner", "lease_expires_at")
            .order_by("id")[: words.CAP]
        )
        running: dict[UUID, list[Job]] = {}
        for job in jobs:
            if job.lease_owner is not None:
                running.setdefault(job.lease_owner, []).append(job)
        return running

    def _usual_version(self, request: HttpRequest) -> str:
        """What most of the workers run."""
        versions = (
            self.get_queryset(request)
            .exclude(state=Worker.State.GONE)
            .order_by()
            .values_list("version")
            .annotate(n=Count("pk"))
            .order_by("-n", "-version")
        )
        first = versions.first()
        return str(first[0]) if first else ""

    def _actions(self, request: HttpRequest, row: Row) -> list[tuple[str, str]]:
        """Words and addresses of what this person may ask of the worker now."""
        state, asked = row.worker.state, row.worker.asked
        verbs = []
        if row.standing != "gone" and state == Worker.State.RUNNING and not asked:
            verbs.append(("quiet", _("Quiet…")))
        if (
            row.standing != "gone"
            and state in (Worker.State.RUNNING, Worker.State.QUIET)
            and asked != Worker.Order.STOP
        ):
            verbs.append(("stop", _("Stop…")))
        return [
            (label, confirming.address(self, request, verb, ids=[row.worker.pk]))
            for verb, label in verbs
            if self.may(request, verb, row.worker)
        ]


def count(workers: QuerySet[Worker], now: datetime) -> dict[str, int]:
    """How many are alive, late, silent and gone."""
    options = conf.options()
    here = ~Q(state=Worker.State.GONE)
    beat = now - timedelta(seconds=2 * options.heartbeat)
    lease = now - timedelta(seconds=max(options.lease, 2 * options.heartbeat))
    counts: dict[str, int] = workers.aggregate(
        alive=Count("pk", filter=here & Q(heartbeat_at__gte=beat)),
        late=Count("pk", filter=here & Q(heartbeat_at__lt=beat, heartbeat_at__gte=lease)),
        silent=Count("pk", filter=here & Q(heartbeat_at__lt=lease)),
        gone=Count("pk", filter=~here),
    )
    return counts


def consequence(standing: str, jobs: list[Job], now: datetime) -> str:
    """What follows for the jobs of a worker that is not heard of; nothing for one that is alive."""
    ends = [job.lease_expires_at for job in jobs if job.lease_expires_at is not None]
    if standing not in ("silent", "gone") or not ends:
        return ""
    left = (max(ends) - now).total_seconds()
    if left <= 0:
        return ngettext(
            "Its %s lease has run out; the next sweep requeues the job.",
            "Its %s leases have run out; the next sweep requeues the jobs.",
            len(ends),
        ) % words.grouped(len(ends))
    return ngettext(
        "Its %(number)s lease runs out in %(time)s; the sweep then requeues the job.",
        "Its %(number)s leases run out in %(time)s; the sweep then requeues the jobs.",
        len(ends),
    ) % {"number": words.grouped(len(ends)), "time": words.duration(left)}


def last_jobs(jobs: QuerySet[Job], name: str) -> list[Job]:
    """The newest jobs that a worker ran last, among the `LOOKED_AT` newest of all."""
    newest = jobs.order_by("-pk")
    edge = newest.values_list("pk", flat=True)[LOOKED_AT : LOOKED_AT + 1].first()
    if edge is not None:
        newest = newest.filter(pk__gt=edge)
    mine = newest.filter(worker=name).defer("args", "kwargs", "return_value", "progress")
    return list(mine[:LISTED])
