"""Who did what, or was refused it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.admin.base import DashboardAdmin


class AuditAdmin(DashboardAdmin):
    """To be written."""

    tab = "audit"
    view_verb = "view_audit"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page."""
        self.demand(request, self.view_verb)
        return self.draw(request, "page.html", "AuditEntry")
