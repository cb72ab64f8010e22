"""One job: why it failed first, then who holds it, what happened, and what it was called with."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _

from jobqueue import clock, lines, timeline, values
from jobqueue.admin import facts, history, payloads, related, trees, words
from jobqueue.admin.base import DashboardAdmin, TooSlow, in_time
from jobqueue.excerpts import Beginning, Start
from jobqueue.models import Job, Status, Worker

#: Columns that may hold megabytes.
HEAVY = ("args", "kwargs", "return_value", "progress")

#: The parts of the page that stay up to date by themselves.
PARTS = ("head", "attempts", "timeline")


def urls(page: DashboardAdmin) -> list[URLPattern]:
    """The addresses of what belongs to one job."""
    return [
        page.page("<uuid:job_id>/live/", partial(live, page), "live"),
        page.page("<uuid:job_id>/download/<str:name>/", partial(download, page), "download"),
        page.page("<uuid:job_id>/line/<int:line>/<str:key>/", partial(kept, page), "line"),
    ]


def show(page: DashboardAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """The page of one job."""
    if request.method not in ("GET", "HEAD"):
        raise PermissionDenied(_("Nothing is changed here."))
    page.demand(request, "view_job")
    try:
        with in_time(page.using):
            found = _find(page, request, object_id)
            worker = _owner(page, found[0]) if found else None
    except TooSlow:
        return page.draw(request, "job_detail.html", _("Job %s") % object_id, slow=True)
    if found is None:
        # Private, and the same for as long as there has been an admin.
        gone = page._get_obj_does_not_exist_redirect  # type: ignore[attr-defined]
        redirect: HttpResponse = gone(request, page.opts, object_id)
        return redirect
    job, rows = found
    title = _("Job %(id)s – %(task)s") % {"id": job.pk, "task": trees.plain(job.task_path)}
    context = _Context(page, request, job, rows, worker)
    return page.draw(request, "job_detail.html", title, **context.whole())


def live(page: DashboardAdmin, request: HttpRequest, job_id: uuid.UUID) -> HttpResponse:
    """The inside of a part of the page, or of all that change, as they are now."""
    job, rows = _find_or_404(page, request, job_id)
    part = request.GET.get("part", "")
    wanted = (part,) if part in PARTS else PARTS
    context = _Context(page, request, job, rows)
    request.current_app = page.admin_site.name
    response = TemplateResponse(
        request, "admin/jobqueue/job_live.html", context.parts(wanted) | {"parts": wanted}
    )
    response["Cache-Control"] = "no-store"
    response["X-JQ-Now"] = words.iso(context.now)
    if facts.is_over(job):
        response["X-JQ-Final"] = "1"
    return response


def download(
    page: DashboardAdmin, request: HttpRequest, job_id: uuid.UUID, name: str
) -> HttpResponseBase:
    """Arguments or result, whole."""
    job, rows = _find_or_404(page, request, job_id)
    page.demand(request, "view_args", job)
    if name not in payloads.COLUMNS:
        raise Http404
    text = payloads.whole(rows, name)
    return payloads.as_download("null" if text is None else text, f"job-{job.pk}-{name}")


def kept(
    page: DashboardAdmin, request: HttpRequest, job_id: uuid.UUID, line: int, key: str
) -> HttpResponseBase:
    """A traceback, or the result of an earlier run, as a line of the job's log keeps it."""
    job, _rows = _find_or_404(page, request, job_id)
    page.demand(request, "view_args", job)
    found = lines.lines_of(job).filter(pk=line).first() if key in lines.LARGE else None
    data = found.data if found and isinstance(found.data, dict) else {}
    if data.get(key) is None:
        raise Http404
    filename = f"job-{job.pk}-{line}-{key}"
    if key == "return_value":
        return payloads.as_download(values.dumps(data[key]), filename)
    return payloads.as_text(str(data[key]), filename)


def _find(
    page: DashboardAdmin, request: HttpRequest, object_id: object
) -> tuple[Job, QuerySet[Job]] | None:
    """The job, without what may be large in it, and the queryset of its row; None if there is none
    that this person may know of."""
    try:
        key = object_id if isinstance(object_id, uuid.UUID) else uuid.UUID(str(object_id))
    except ValueError:
        return None
    rows = page.get_queryset(request).filter(pk=key)
    parts: dict[str, Any] = {"said": Beginning("progress", 10_000)}
    job = rows.defer(*HEAVY).annotate(**parts).first()
    if job is None:
        return None
    if not page.may(request, "view_job", job):
        raise PermissionDenied
    return job, rows


def _owner(page: DashboardAdmin, job: Job) -> Worker | None:
    """The worker that holds the job, if it has a row."""
    if job.lease_owner is None:
        return None
    return Worker.objects.using(page.using).filter(pk=job.lease_owner).first()


def _find_or_404(
    page: DashboardAdmin, request: HttpRequest, job_id: uuid.UUID
) -> tuple[Job, QuerySet[Job]]:
    page.demand(request, "view_job")
    found = _find(page, request, job_id)
    if found is None:
        raise Http404
    return found


class _Context:
    """What the templates of the page are drawn with. The log and the values have their own time each."""

    def __init__(
        self,
        page: DashboardAdmin,
        request: HttpRequest,
        job: Job,
        rows: QuerySet[Job],
        worker: Worker | None = None,
    ) -> None:
        self.page, self.request, self.job, self.rows = page, request, job, rows
        self.worker = worker
        self.now: datetime = clock.now(page.using)
        self.see = page.may(request, "view_args", job)
        self.state = facts.state_key(job, self.now)

    def whole(self) -> dict[str, Any]:
        """All of the page."""
        context = self.parts((*PARTS, "related")) | self._facts()
        context["downloads"] = self._downloads()  # there even if the values do not come in time
        return context | self._in_time(self._payloads)

    def parts(self, wanted: tuple[str, ...]) -> dict[str, Any]:
        """Those parts of it."""
        context: dict[str, Any] = {"job": self.job, "now": self.now, "see": self.see}
        context["over"] = facts.is_over(self.job)
        context["live_url"] = self.page.url("live", self.job.pk)
        if "head" in wanted:
            context |= self._head()
        if wanted != ("head",):
            context |= self._in_time(partial(self._history, wanted))
        return context

    def _in_time(self, panel: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            with in_time(self.page.using):
                return panel()
        except TooSlow:
            return {}

    def _head(self) -> dict[str, Any]:
        page, job = self.page, self.job
        said: Start | None = job.said  # type: ignore[attr-defined]
        return {
            "buttons": facts.buttons(page, self.request, job),
            "error": facts.last_error(job, self.state, self.now),
            "progress": facts.progress(job, said and said.text, self.now),
            "queue_url": facts.list_of(page, queue=job.queue_name),
            "task_url": facts.list_of(page, task=job.task_path),
            "task": trees.plain(job.task_path),
            "queue": trees.plain(job.queue_name),
        }

    def _facts(self) -> dict[str, Any]:
        page, request, job = self.page, self.request, self.job
        return {
            "facts": facts.facts(page, request, job, self.worker, self.now),
            "audit_url": related.audit_link(page, request, job),
        }

    def _related(self) -> dict[str, Any]:
        jobs = self.page.get_queryset(self.request)
        return {"siblings": related.last_of_task(self.page, jobs, self.job, self.now)}

    def _history(self, wanted: tuple[str, ...]) -> dict[str, Any]:
        below = _whole_number(self.request.GET.get("attempts_below"))
        before = _whole_number(self.request.GET.get("lines_before"))
        found: dict[str, Any] = {"below": below, "before": before}
        if "attempts" in wanted:
            lost = self.state == "lost"
            found["attempts"], found["older_attempts"] = history.attempts(
                self.job, below, lost=lost, see=self.see, address=self._address
            )
        if "timeline" in wanted:
            part = timeline.stretch(self.job, before)
            found["older_lines"] = part.older
            found["lines"] = history.lines(part.moments, see=self.see, address=self._address)
            found["requeues"] = history.requeues(part.moments)
        if "related" in wanted:
            found |= self._related()
        return found

    def _downloads(self) -> dict[str, str]:
        if not self.see:
            return {}
        names = ["args", "kwargs"]
        names += ["result"] if self.job.status == Status.COMPLETED else []
        return {name: self.page.url("download", self.job.pk, name) for name in names}

    def _payloads(self) -> dict[str, Any]:
        return {"payloads": payloads.read(self.rows, self._downloads()) if self.see else []}

    def _address(self, line: int, key: str) -> str:
        return self.page.url("line", self.job.pk, line, key)


def _whole_number(text: str | None) -> int | None:
    """A number from an address; None for everything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
