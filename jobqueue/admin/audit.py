"""Who did what, or was refused it: the newest first, by person, verb, kind, time and target; and all of it as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.urls import URLPattern
from django.utils.translation import gettext as _

from jobqueue import auditing, clock
from jobqueue.admin import confirming, telling, trail, words
from jobqueue.admin.base import DashboardAdmin, TooSlow, in_time
from jobqueue.admin.panels import migrated
from jobqueue.admin.trail import Trail
from jobqueue.models import AuditEntry

#: Rows of a page.
PAGE = 50

#: The columns of an export.
COLUMNS = (
    *("id", "at", "actor_id", "actor_name", "verb", "target_kind", "target"),
    *("reason", "result", "chosen", "changed", "skipped", "message"),
)


class AuditAdmin(DashboardAdmin):
    """The audit log. There is nothing to add, change or delete here, for anybody."""

    tab = "audit"
    view_verb = "view_audit"

    def get_urls(self) -> list[URLPattern]:
        """The export comes before the list's pages, which end in one that takes any text."""
        return [self.page("export/", self.export_view, "export"), *super().get_urls()]

    @migrated
    @confirming.for_viewers
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The newest rows, or those before or after a row of the page one comes from."""
        found = Trail.of(self, request, request.GET.dict())
        try:
            with in_time(self.using):
                page, slow = found.page(PAGE), False
                people = trail.people(self.using)
        except TooSlow:
            page, people, slow = trail.Page(), [], True
        return self.draw(
            request,
            "audit.html",
            _("Audit log"),
            trail=found,
            page=page,
            lines=telling.lines(self, request, page.rows),
            newer=found.address(after=page.rows[0].pk) if page.newer else "",
            older=found.address(before=page.rows[-1].pk) if page.older else "",
            choices=found.choices(people),
            slow=slow,
            may_export=self.may(request, "export"),
            export=f"{self.url('export')}{found.address()}",
        )

    def export_view(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """What the filter finds, as CSV. Being read is told of, too, so it takes a POST."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        for right in (self.view_verb, "export"):
            if not self.may(request, right):
                return confirming.refuse(self, request, "export", right)
        found = Trail.of(self, request, request.GET.dict())
        about = found.words()
        auditing.finish(auditing.begin("export", "audit", about, actor=request.user))
        response = StreamingHttpResponse(_csv(found), content_type="text/csv; charset=utf-8")
        day = clock.now(self.using).strftime("%Y-%m-%d")
        response["Content-Disposition"] = f'attachment; filename="audit-{day}.csv"'
        response["X-Content-Type-Options"] = "nosniff"
        response["Cache-Control"] = "no-store"
        return response

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """A row has no page of its own."""
        self.demand(request, self.view_verb)
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied("Nothing in the audit log is ever changed.")
        return HttpResponseRedirect(self.url("changelist"))


@dataclass(slots=True)
class _Echo:
    """What the writer of CSV writes to: gives back each line."""

    def write(self, line: str) -> str:
        return line


def _csv(found: Trail) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for entry in found.rows():
        yield writer.writerow(neutral(_cell(entry, name)) for name in COLUMNS)


def _cell(entry: AuditEntry, name: str) -> str:
    if name == "at":
        return words.iso(entry.at)
    if name == "skipped":
        return ", ".join(f"{number} {cause}" for cause, number in entry.skipped.items())
    return str(getattr(entry, name))


def neutral(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
