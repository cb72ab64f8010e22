"""The page that Django's admin draws of a listing: its rows, its numbers, and the links around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from django.contrib.admin.options import IS_POPUP_VAR, TO_FIELD_VAR, IncorrectLookupParameters
from django.contrib.admin.views.main import (
    ALL_VAR,
    ERROR_FLAG,
    ORDER_VAR,
    PAGE_VAR,
    SEARCH_VAR,
    ChangeList,
)
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import clock
from jobqueue.admin import columns, paging, states
from jobqueue.admin.base import TooSlow, in_time
from jobqueue.admin.listing import CURSORS, FILTERS, Listing
from jobqueue.admin.words import CAP, grouped
from jobqueue.models import Job

if TYPE_CHECKING:
    from jobqueue.admin.jobs import JobAdmin

#: Parameters of the stock list that mean nothing here, or nothing for what the links around a page lead to.
_STOCK = (ALL_VAR, ORDER_VAR, PAGE_VAR, ERROR_FLAG, IS_POPUP_VAR, TO_FIELD_VAR, "_facets")


class JobChangeList(ChangeList):
    """The list of jobs. What Django's reads from the address and asks of the database, the listing does."""

    model_admin: JobAdmin
    listing: Listing

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        model_admin = args[-3]
        self.now = clock.now(model_admin.using)
        self.page: paging.Page | None = None
        self.numbers: dict[str, int | None] = {}
        self.too_slow = False
        try:
            with in_time(model_admin.using):
                super().__init__(request, *args)
        except TooSlow:
            self.too_slow = True
            super().__init__(request, *args)  # asks nothing more: what is there is shown

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the side bar reads. The state is in the chips; any other parameter is none of ours: a look-up
        in a column would go round the listing, and round who may see arguments."""
        given: dict[str, Any] = super().get_filters_params(params)
        if unknown := given.keys() - {*FILTERS, *_STOCK}:
            raise IncorrectLookupParameters(f"unknown parameters: {sorted(unknown)}")
        return {name: value for name, value in given.items() if name != "state"}

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Job]:
        """The jobs that match."""
        given = {name: request.GET[name] for name in FILTERS if name in request.GET}
        given[SEARCH_VAR] = self.query
        # The links around the page lead to its filter, in any case to its beginning.
        for name in (*CURSORS, *_STOCK):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        self.filter_specs, self.has_filters, *_rest = self.get_filters(request)
        self.has_active_filters = bool(self.filter_params.keys() & set(FILTERS))
        self.clear_all_filters_qs = "?"
        if self.too_slow:
            return self.root_queryset.none()
        self.listing = Listing(self.root_queryset, self.now)  # should the next take too long
        self.listing = Listing.of(
            self.root_queryset,
            given,
            see_args=self.model_admin.may(request, "view_args"),
            now=self.now,
        )
        return self.listing.queryset

    def get_ordering_field_columns(self) -> dict[int, Literal["asc", "desc"]]:
        """None: the order follows the filter."""
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """One page, and the numbers."""
        size = self.list_per_page
        see_args = self.model_admin.may(request, "view_args")
        if not self.too_slow:
            self.page = self.listing.page(
                size,
                after=request.GET.get("after"),
                before=request.GET.get("before"),
                rows=lambda jobs: columns.light(jobs, see_args=see_args),
            )
            self.numbers = self.listing.counts()
        rows = self.page.rows if self.page else []
        for job in rows:
            job.jq_now = self.now  # type: ignore[attr-defined]
        self.result_list = rows
        self.counted = self.listing.count() if self.numbers else len(rows)
        self.result_count = min(self.counted, CAP)
        self.full_result_count = (
            self.result_count
        )  # else the search box prints the capped number as exact
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = False
        self.multi_page = self.counted > len(rows)
        self.paginator = self.model_admin.get_paginator(request, self.root_queryset.none(), size)
        self.is_first_page = not any(request.GET.get(name) for name in CURSORS)
        self.may_change_all = self.model_admin.may(request, "bulk")

    # What the templates ask

    @property
    def is_capped(self) -> bool:
        """Whether there are more jobs than are counted."""
        return self.counted > CAP

    @property
    def matches(self) -> str:
        """How many match, in words."""
        if not self.numbers:
            return ""
        if self.is_capped:
            return _("More than %s jobs match") % grouped(CAP)
        return ngettext("%s job matches", "%s jobs match", self.counted) % grouped(self.counted)

    @property
    def select_all(self) -> str:
        """What the link says that chooses all that match."""
        if self.is_capped:
            return _("Select all matching jobs (more than %s)") % grouped(CAP)
        return _("Select all %s jobs that match") % grouped(self.counted)

    @property
    def all_selected(self) -> str:
        """What is said when they are."""
        if self.is_capped:
            return _("All matching jobs selected (more than %s)") % grouped(CAP)
        return _("All %s jobs that match selected") % grouped(self.counted)

    @property
    def search_scope(self) -> str:
        """How far was searched, if not to the end."""
        if self.too_slow or not self.listing.windowed:
            return ""
        number = grouped(self.listing.reach)
        if self.listing.order is paging.NEWEST:
            return _("In the newest %s jobs.") % number
        return _("In the first %s jobs.") % number

    @property
    def search_all_url(self) -> str:
        """The same without an end."""
        return self.get_query_string({ALL_VAR: "1"})

    @property
    def chips(self) -> list[dict[str, Any]]:
        """The states, each with its number and a link to its jobs; the chosen one's leads back to all."""
        return [
            {
                "state": state,
                "number": self.numbers.get(key),
                "current": key == self.listing.state,
                "url": self.get_query_string({"state": None if key == self.listing.state else key}),
            }
            for key, state in states.STATES.items()
        ]

    @property
    def newer_url(self) -> str:
        """The page before this one, if there is one."""
        return self._turned("before", 0) if self.page and self.page.has_newer else ""

    @property
    def older_url(self) -> str:
        """The page after this one, if there is one."""
        return self._turned("after", -1) if self.page and self.page.has_older else ""

    def _turned(self, cursor: str, row: int) -> str:
        more: dict[str, str] = {ALL_VAR: "1"} if self.listing.everywhere else {}
        if self.result_list:  # else these rows have gone: back to the beginning
            more[cursor] = self._cursor(row)
        return self.get_query_string(more)

    def _cursor(self, row: int) -> str:
        order = self.listing.order
        return paging.written(order, paging.place_of(order, self.result_list[row]))

    @cached_property
    def watch_url(self) -> str:
        """Where to ask how many newer jobs there are; nothing where a new one would not come first."""
        if self.too_slow or not self.is_first_page or self.listing.order is not paging.NEWEST:
            return ""
        first = {"first": self._cursor(0)} if self.result_list else {}
        return f"{self.model_admin.url('newer')}?{urlencode(self.params | first)}"

    @property
    def empty_words(self) -> str:
        """What stands in the place of rows."""
        if self.result_list or self.too_slow or self.listing.problems:
            return ""
        if not self.listing.is_filtered:
            return _("No jobs yet. Jobs appear here when code enqueues them.")
        if self.listing.state and not self.listing.conditions:
            word = str(states.STATES[self.listing.state].label).lower()
            return _("No %s jobs.") % word
        return _("No job matches this filter.")
