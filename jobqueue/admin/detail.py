"""One job: why it failed first, then who holds it, what happened, and what it was called with."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern

from jobqueue.admin.base import DashboardAdmin


def urls(page: DashboardAdmin) -> list[URLPattern]:
    """The addresses of what belongs to one job."""
    return []


def show(page: DashboardAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """The page of one job."""
    return page.draw(request, "page.html", object_id)
