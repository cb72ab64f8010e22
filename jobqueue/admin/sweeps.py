"""What the clock repaired, pass by pass."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.admin.base import DashboardAdmin


class SweepAdmin(DashboardAdmin):
    """To be written."""

    tab = "reconcile"
    view_verb = "view_sweep"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        self.demand(request, self.view_verb)
        return self.draw(request, "page.html", "Sweep")
