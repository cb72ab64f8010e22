"""The worker processes: when each was last heard of, and what it runs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.admin.base import DashboardAdmin


class WorkerAdmin(DashboardAdmin):
    """To be written."""

    tab = "workers"
    view_verb = "view_worker"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        self.demand(request, self.view_verb)
        return self.draw(request, "page.html", "Worker")
