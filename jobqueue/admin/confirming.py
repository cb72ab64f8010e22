"""The page between a wish and a change: what will happen to how many, why, and only then the change itself."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest
from django.urls import URLPattern

from jobqueue.admin.base import DashboardAdmin


def urls(page: DashboardAdmin) -> list[URLPattern]:
    """The addresses of the confirmations of a page's verbs: `act/<verb>/`."""
    return []


def address(
    page: DashboardAdmin,
    request: HttpRequest,
    verb: str,
    *,
    ids: Sequence[object] = (),
    query: str | None = None,
) -> str:
    """The address at which this person may confirm `verb` (a key of `base.RIGHTS`) on these rows of the page's
    model, or, with `query`, on all jobs that this query string of the list finds."""
    return "#"
