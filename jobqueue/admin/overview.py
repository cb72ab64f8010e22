"""The first page: is the queue healthy, and if not, where to look."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.admin.base import DashboardAdmin


class OverviewAdmin(DashboardAdmin):
    """To be written."""

    tab = "overview"
    view_verb = "view_job"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        self.demand(request, self.view_verb)
        return self.draw(request, "page.html", "Overview")
