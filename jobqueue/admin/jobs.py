"""The jobs: a list to find them in, and a page for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.functional import cached_property

from jobqueue.admin import confirming, detail
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.words import CAP
from jobqueue.models import Job

if TYPE_CHECKING:
    PaginatorBase = Paginator[Any]
else:
    PaginatorBase = Paginator


class CappedPaginator(PaginatorBase):
    """Counts up to `CAP` rows; what lies beyond is reached by a filter."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `CAP` if there are more."""
        found: QuerySet[Job] = self.object_list  # type: ignore[assignment]
        return found.order_by()[:CAP].count()


class JobAdmin(DashboardAdmin):
    """The newest jobs, and one job in full."""

    tab = "jobs"
    view_verb = "view_job"

    list_display = ("id", "status", "task_path", "queue_name")
    list_per_page = 50
    ordering = ("-pk",)
    sortable_by = ()
    paginator = CappedPaginator
    actions = ("requeue_jobs", "cancel_jobs", "purge_jobs")

    def get_urls(self) -> list[URLPattern]:
        """Pages of our own come before the list's, which end in one that takes any text."""
        return [*detail.urls(self), *confirming.urls(self), *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One job in full."""
        return detail.show(self, request, object_id)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What people did to it stands in the audit log."""
        return detail.audit(self, request, object_id)

    def has_requeue_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be queued once more."""
        return self.may(request, "requeue", obj)

    def has_cancel_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be cancelled."""
        return self.may(request, "cancel", obj)

    def has_purge_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be deleted for ever."""
        return self.may(request, "purge", obj)

    @admin.action(description="Requeue…", permissions=["requeue"])
    def requeue_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "requeue")

    @admin.action(description="Cancel…", permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "cancel")

    @admin.action(description="Purge…", permissions=["purge"])
    def purge_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "purge")

    def _confirm(self, request: HttpRequest, verb: str) -> HttpResponse:
        """To where it says what will happen. All that match are named by the filter, not one by one."""
        if request.POST.get("select_across") == "1":
            query = request.GET.urlencode()
            return HttpResponseRedirect(confirming.address(self, request, verb, query=query))
        ids = request.POST.getlist("_selected_action")
        return HttpResponseRedirect(confirming.address(self, request, verb, ids=ids))
