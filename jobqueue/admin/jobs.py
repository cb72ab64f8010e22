"""The jobs: a list to find them in, and a page for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from jobqueue import clock
from jobqueue.admin import columns, confirming, detail, filters, search, states, verbs
from jobqueue.admin.base import DashboardAdmin, TooSlow, in_time
from jobqueue.admin.changelist import JobChangeList
from jobqueue.admin.listing import CURSORS, Listing
from jobqueue.admin.panels import migrated
from jobqueue.admin.words import CAP, grouped
from jobqueue.models import Job

#: How many jobs a person without the right to change all that match may change at once.
TICKED = 100


class JobAdmin(DashboardAdmin):
    """The newest jobs, and one job in full.

    `get_queryset` is the place to limit which jobs a person sees, counts and changes: `listing` finds within
    it, and every page, number and change goes through the one or the other.
    """

    tab = "jobs"
    view_verb = "view_job"

    list_display = ("job_id", "state", "time", "task", "queue", "tries")
    list_display_links = ("job_id",)
    list_filter = (
        filters.QueueFilter,
        filters.TaskFilter,
        filters.PeriodFilter,
        filters.AttemptFilter,
    )
    list_per_page = 50
    list_max_show_all = 0
    ordering = ("-pk",)
    sortable_by = ()  # the order follows the filter
    search_fields = ("id",)  # for the box to be there; `search` reads what is in it
    search_help_text = search.HELP
    paginator = Paginator
    actions = ("requeue_jobs", "cancel_jobs", "purge_jobs")

    def get_urls(self) -> list[URLPattern]:
        """Pages of our own come before the list's, which end in one that takes any text."""
        return [
            self.page("newer/", never_cache(self.newer_view), "newer"),
            *detail.urls(self),
            *confirming.urls(self),
            *super().get_urls(),
        ]

    # The list

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobChangeList]:
        """The list that is read by `listing`."""
        return JobChangeList

    def listing(self, request: HttpRequest, params: Mapping[str, str]) -> Listing:
        """The jobs that this person finds at an address of the list: `params` is its query string."""
        return Listing.of(
            self.get_queryset(request),
            params,
            see_args=self.may(request, "view_args"),
            now=clock.now(self.using),
        )

    @migrated
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list."""
        if (refused := confirming.guard(self, request)) is not None:
            return refused
        if request.method == "POST" and request.POST.get("select_across") == "1":
            # Django asks for a ticked row, too; without scripts the box for all that match is enough.
            for verb in verbs.on("job"):
                if f"{verb}_jobs" in request.POST.getlist("action"):
                    return self._confirm(request, verb)
        response = super().changelist_view(request, {"title": _("Jobs")} | (extra_context or {}))
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            found = response.context_data["cl"]
            response.context_data |= self.surroundings(request, found.now)
            response.context_data |= {
                "selection_note_all": found.all_selected,
                "was_misread": ERROR_FLAG in request.GET,
            }
        return response

    @migrated
    def newer_view(self, request: HttpRequest) -> HttpResponse:
        """How many jobs have come before the first row of a page since it was drawn, as JSON."""
        self.demand(request, self.view_verb)
        try:
            with in_time(self.using):
                number = self.listing(request, request.GET.dict()).newer(request.GET.get("first"))
        except TooSlow:
            number = 0  # not known; asked again soon
        response = JsonResponse({"n": min(number, CAP), "capped": number > CAP})
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description=gettext_lazy("id"))
    def job_id(self, job: Job) -> SafeString:
        """The whole id: people copy it into other tools."""
        return format_html('<code title="{}">{}</code>', job.pk, job.pk)

    @admin.display(description=gettext_lazy("state"))
    def state(self, job: Any) -> SafeString:
        """How it stands."""
        return states.badge(states.state_of(job, job.jq_now))

    @admin.display(description=gettext_lazy("time"))
    def time(self, job: Any) -> SafeString:
        """Since when, or when."""
        return columns.when(job, job.jq_now)

    @admin.display(description=gettext_lazy("task"))
    def task(self, job: Job) -> SafeString:
        """What it calls, and what went wrong last."""
        return columns.what(job)

    @admin.display(description=gettext_lazy("queue"))
    def queue(self, job: Job) -> str:
        """The name of its queue."""
        return job.queue_name

    @admin.display(description=gettext_lazy("attempt"))
    def tries(self, job: Job) -> str:
        """The attempt it is at, of how many."""
        return f"{job.attempt}/{job.max_attempts}"

    # One job

    @migrated
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One job in full."""
        return detail.show(self, request, object_id)

    # Verbs

    def has_requeue_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be queued once more."""
        return self.may(request, "requeue", obj)

    def has_cancel_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be cancelled."""
        return self.may(request, "cancel", obj)

    def has_purge_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Whether jobs may be deleted for ever."""
        return self.may(request, "purge", obj)

    @admin.action(description=gettext_lazy("Requeue…"), permissions=["requeue"])
    def requeue_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "requeue")

    @admin.action(description=gettext_lazy("Cancel…"), permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "cancel")

    @admin.action(description=gettext_lazy("Purge…"), permissions=["purge"])
    def purge_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Lead to the confirmation."""
        return self._confirm(request, "purge")

    def _confirm(self, request: HttpRequest, verb: str) -> HttpResponse:
        """To where it says what will happen. All that match are named by the filter, not one by one."""
        across = request.POST.get("select_across") == "1"
        ticked = request.POST.getlist("_selected_action")
        if (across or len(ticked) > TICKED) and not self.may(request, "bulk"):
            words = _(
                "Nothing was changed: to change more than %s jobs at once takes another right."
            )
            self.message_user(request, words % grouped(TICKED), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        if not across:
            return HttpResponseRedirect(confirming.address(self, request, verb, ids=ticked))
        query = request.GET.copy()
        for name in CURSORS:
            query.pop(name, None)
        where = confirming.address(self, request, verb, query=query.urlencode())
        return HttpResponseRedirect(where)
