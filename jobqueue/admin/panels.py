"""Panels that are drawn again and again: what each may cost, and once for all who look at it."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.cache import cache
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from jobqueue import clock
from jobqueue.admin import words
from jobqueue.admin.base import PATIENCE, DashboardAdmin, TooSlow, in_time

logger = logging.getLogger("jobqueue")

T = TypeVar("T")

#: Seconds for which what was computed serves all who look, and for which it serves at all while
#: somebody computes it anew.
FRESH = 3.0
STALE = 15.0


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel shows, or why it shows nothing."""

    data: Any = None
    problem: str = ""


def panel(using: str, make: Callable[[], Any]) -> Panel:
    """What `make` computes, within the time that one panel has."""
    try:
        with in_time(using):
            return Panel(make())
    except TooSlow:
        return Panel(
            problem=_(
                "The database did not answer in %(seconds)s s. Narrow the filter or try again."
            )
            % {"seconds": PATIENCE}
        )


def shared(name: str, audience: str, make: Callable[[], T]) -> T:
    """What `make` computes, at most once in `FRESH` seconds for all processes that share the cache.

    `audience` tells apart those who may not see the same. While one computes, the others get what
    was there before, or wait for it. A cache that does not work costs time, never the page.
    """
    key = f"jobqueue:{name}:{get_language()}:{timezone.get_current_timezone_name()}:{audience}"
    until = time.monotonic() + 2 * PATIENCE
    while True:
        kept = _ask(lambda: cache.get(key))
        if kept is not None and time.time() - kept[0] < FRESH:
            found: T = kept[1]
            return found
        if _ask(lambda: cache.add(f"{key}:lock", 1, 5 * PATIENCE)) is not False:
            break
        if kept is not None:
            stale: T = kept[1]
            return stale
        if time.monotonic() > until:
            return make()
        time.sleep(0.02)
    try:
        made = make()
        _ask(lambda: cache.set(key, (time.time(), made), STALE))
        return made
    finally:
        _ask(lambda: cache.delete(f"{key}:lock"))


def _ask(question: Callable[[], Any]) -> Any:
    """The cache's answer; None if it has none, whatever kind of cache the site uses."""
    try:
        return question()
    except Exception as error:
        logger.warning("The dashboard does without the cache: %s", error)
        return None


def is_limited(rows: QuerySet[Any]) -> bool:
    """Whether a page's rows are not all there are: what is counted without them must not be shown."""
    return bool(rows.query.where) or rows.query.is_sliced or bool(rows.query.combinator)


def audience(page: DashboardAdmin, request: HttpRequest, *rows: QuerySet[Any]) -> str:
    """Whom the same numbers may be shown to: everybody, or this person alone where the site limits
    what people see."""
    own_rules = type(page).may is not DashboardAdmin.may
    return str(request.user.pk) if own_rules or any(map(is_limited, rows)) else ""


def fragment(
    page: DashboardAdmin, request: HttpRequest, template: str, shown: dict[str, Any]
) -> HttpResponse:
    """The inside of a region that is refilled while the page is open."""
    request.current_app = page.admin_site.name
    now = clock.now(page.using)
    context = {"now": now} | shown
    response = HttpResponse(render_to_string(f"admin/jobqueue/{template}", context, request))
    response["Cache-Control"] = "no-store"
    response["X-JQ-Now"] = words.iso(now)
    return response


def migrated(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view that says which command is missing where the tables are."""

    @functools.wraps(view)
    def guarded(page: DashboardAdmin, request: HttpRequest, *args: Any, **kw: Any) -> HttpResponse:
        try:
            return view(page, request, *args, **kw)
        except DatabaseError as error:
            if not lacks_tables(error):
                raise
            return page.draw(
                request, "unmigrated.html", _("The tables are missing"), database=page.using
            )

    return guarded


def lacks_tables(error: DatabaseError) -> bool:
    """Whether the database says that a table or a column does not exist."""
    if sqlstate := getattr(error.__cause__, "sqlstate", None):
        return sqlstate in ("42P01", "42703")
    return str(error).startswith(("no such table", "no such column"))
