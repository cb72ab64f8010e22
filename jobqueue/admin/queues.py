"""The queues: what waits in each, who serves it, and whether staff have paused it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.admin.base import DashboardAdmin


class QueueAdmin(DashboardAdmin):
    """To be written."""

    tab = "queues"
    view_verb = "view_queue"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        self.demand(request, self.view_verb)
        return self.draw(request, "page.html", "Queue")
