"""What staff see in Django's admin, and may do there. Every change goes through the lifecycle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobqueue import clock, conf, dispatch, lifecycle, queues
from jobqueue.models import Job, Queue, Worker
from jobqueue.texts import storable_text
from jobqueue.timeline import last_traceback, timeline

if TYPE_CHECKING:
    JobAdminBase = admin.ModelAdmin[Job]
    QueueAdminBase = admin.ModelAdmin[Queue]
    WorkerAdminBase = admin.ModelAdmin[Worker]
    PaginatorBase = Paginator[Job]
else:
    JobAdminBase = QueueAdminBase = WorkerAdminBase = admin.ModelAdmin
    PaginatorBase = Paginator

#: The list counts no further: a count of everything reads everything.
COUNTED = 10_000

#: The most jobs that one request changes; the command changes any number.
AT_ONCE = 1_000

#: Characters of arguments and results that a page shows.
SHOWN = 20_000

#: Queues that are offered as filters.
OFFERED = 100

#: What a list of jobs has no use for, and may be large.
HEAVY = ("args", "kwargs", "return_value", "progress")


class ReadOnly:
    """Pages that show and never save: rows are the queue's own."""

    show_facets = admin.ShowFacets.NEVER  # each would be a count of the whole table
    show_full_result_count = False

    def get_view_on_site_url(self, obj: Model | None = None) -> None:
        """There is no page of the site for a row."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are enqueued by code."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is edited: what may be done to a row are actions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows leave by pruning."""
        return False


class CappedPaginator(PaginatorBase):
    """Counts up to `COUNTED` rows; what lies beyond is reached by a filter."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `COUNTED` if there are more."""
        found: QuerySet[Job] = self.object_list  # type: ignore[assignment]
        return found.order_by()[:COUNTED].count()


class QueueFilter(admin.SimpleListFilter):
    """The queues that are known, without asking every job for its own."""

    title = "queue"
    parameter_name = "queue"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """A choice for each queue that a worker has seen."""
        return [(name, name) for name in queues.known()[:OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of the chosen queue."""
        name = self.value()
        if name is None:
            return queryset
        return queryset.none() if "\0" in name else queryset.filter(queue_name=name)


@admin.register(Job)
class JobAdmin(ReadOnly, JobAdminBase):
    """The newest jobs, one job in full, and two actions."""

    list_display = ("id", "state", "task_path", "queue_name", "tries", "run_after", "finished_at")
    list_filter = ("status", QueueFilter)
    list_per_page = 50
    ordering = ("-pk",)
    sortable_by = ()  # only the primary key has an index over all rows
    search_fields = ("id",)
    search_help_text = "A job's whole id, or a task's whole path."
    paginator = CappedPaginator
    actions = ("cancel_jobs", "requeue_jobs")
    readonly_fields = (
        *("state", "tries", "arguments", "result", "how_far", "last_error", "history"),
        "running_on",
    )
    fieldsets = (
        (None, {"fields": ("id", "task_path", "state", "queue_name", "priority", "tries")}),
        ("Call", {"fields": ("arguments", "idempotency_key", "timeout", "max_attempts")}),
        (
            "Times",
            {"fields": ("enqueued_at", "run_after", "started_at", "attempted_at", "finished_at")},
        ),
        ("Outcome", {"fields": ("running_on", "how_far", "result", "error", "last_error")}),
        ("What happened", {"fields": ("history",)}),
    )

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, without the columns that it does not show."""
        changes = super().get_changelist_instance(request)
        changes.result_list = changes.result_list.defer(*HEAVY)
        return changes

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """By exact id or task path: anything less exact would read every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(pk=UUID(term)), False
        except ValueError:
            return queryset.filter(task_path=term), False

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel jobs."""
        return request.user.has_perm("jobqueue.cancel_job")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """Whether the user may queue jobs once more."""
        return request.user.has_perm("jobqueue.requeue_job")

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Cancel the chosen jobs, at once and for good."""
        self._change(request, queryset, lifecycle.cancel_many, "cancelled")

    @admin.action(description="Requeue selected jobs", permissions=["requeue"])
    def requeue_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Queue the chosen jobs once more."""
        self._change(request, queryset, lifecycle.requeue_many, "requeued")

    def _change(
        self,
        request: HttpRequest,
        queryset: QuerySet[Job],
        change: Callable[..., lifecycle.Counts],
        done: str,
    ) -> None:
        ids = list(queryset.order_by("pk").values_list("pk", flat=True)[: AT_ONCE + 1])
        if len(ids) > AT_ONCE:
            self.message_user(
                request,
                f"Nothing was {done}: more than {AT_ONCE:,} jobs are selected. Narrow the filter, "
                "or use the command `manage.py jobs`.",
                messages.ERROR,
            )
            return
        counts = change(Job.objects.filter(pk__in=ids), actor=request.user)
        for reason, number in sorted(counts.skipped.items()):
            self.message_user(request, f"{_jobs(number)} not {done}: {reason}.", messages.WARNING)
        gone = len(ids) - counts.changed - counts.total_skipped
        if gone:
            self.message_user(request, f"{_jobs(gone)} gone meanwhile.", messages.WARNING)
        if counts.changed:
            self.message_user(request, f"{_jobs(counts.changed)} {done}.", messages.SUCCESS)

    @admin.display(description="status")
    def state(self, job: Job) -> str:
        """The status, and whether a cancelled job's code still runs."""
        return "cancelled, still stopping" if job.is_stopping else job.status

    @admin.display(description="attempt")
    def tries(self, job: Job) -> str:
        """The attempt it is at, of how many."""
        return f"{job.attempt}/{job.max_attempts}"

    @admin.display(description="arguments")
    def arguments(self, job: Job) -> SafeString:
        """Positional and keyword arguments."""
        return _preformatted(_as_json({"args": job.args, "kwargs": job.kwargs}))

    @admin.display(description="return value")
    def result(self, job: Job) -> SafeString | str:
        """What the task returned, once it is completed."""
        return _preformatted(_as_json(job.return_value)) if job.status == "completed" else "-"

    @admin.display(description="progress")
    def how_far(self, job: Job) -> SafeString | str:
        """What the task last said of its progress."""
        return "-" if job.progress is None else _preformatted(_as_json(job.progress))

    @admin.display(description="worker")
    def running_on(self, job: Job) -> str:
        """Who runs the job or ran it last, and until when the lease holds."""
        lease = f", lease until {_time(job.lease_expires_at)}" if job.lease_owner else ""
        return (job.worker or "-") + lease

    @admin.display(description="traceback of the last error")
    def last_error(self, job: Job) -> SafeString | str:
        """The traceback, if there was one."""
        text = last_traceback(job)
        return _preformatted(text) if text else "-"

    @admin.display(description="timeline")
    def history(self, job: Job) -> SafeString:
        """The row and the log, by time."""
        rows = format_html_join(
            "",
            '<tr><td style="white-space: nowrap">{}</td><td>{}</td><td>{}</td></tr>',
            (
                (_time(moment.at), moment.event.replace("_", " "), moment.sentence)
                for moment in timeline(job)
            ),
        )
        return format_html("<table>{}</table>", rows)


@admin.register(Queue)
class QueueAdmin(ReadOnly, QueueAdminBase):
    """The queues that workers have seen, to be paused and resumed."""

    list_display = ("name", "paused", "paused_at", "paused_until", "paused_by", "pause_reason")
    ordering = ("name",)
    search_fields = ("name",)
    readonly_fields = ("paused",)
    actions = ("pause_queues", "resume_queues")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Whether the user may pause queues, and resume them."""
        return request.user.has_perm("jobqueue.pause_queue")

    @admin.display(description="is paused", boolean=True)
    def paused(self, queue: Queue) -> bool:
        """Whether a pause holds now."""
        return queue.is_paused(clock.now(conf.options().database))

    @admin.action(description="Pause selected queues", permissions=["pause"])
    def pause_queues(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        """No more of their jobs are started, until they are resumed; what runs goes on."""
        now = clock.now(conf.options().database)
        changed = queryset.order_by().update(
            paused_at=now,
            paused_until=None,
            paused_by=storable_text(request.user.get_username(), 200),
            pause_reason="",
        )
        noun = "queue" if changed == 1 else "queues"
        self.message_user(request, f"{changed} {noun} paused.", messages.SUCCESS)

    @admin.action(description="Resume selected queues", permissions=["pause"])
    def resume_queues(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        """Their jobs are started again, at once."""
        using = conf.options().database
        with transaction.atomic(using):
            names = list(queryset.values_list("name", flat=True))
            changed = Queue.objects.filter(name__in=names).update(
                paused_at=None, paused_until=None, paused_by="", pause_reason=""
            )
            dispatch.look(using, names)
        noun = "queue" if changed == 1 else "queues"
        self.message_user(request, f"{changed} {noun} resumed.", messages.SUCCESS)


@admin.register(Worker)
class WorkerAdmin(ReadOnly, WorkerAdminBase):
    """The worker processes, and when each was last heard of."""

    list_display = ("__str__", "state", "slots", "queue_names", "heartbeat_at", "started_at")
    list_filter = ("state",)
    ordering = ("-heartbeat_at",)
    readonly_fields = ("queue_names",)
    fields = (
        *("id", "host", "pid", "state", "queue_names", "slots", "version"),
        *("started_at", "heartbeat_at"),
    )

    @admin.display(description="queues")
    def queue_names(self, worker: Worker) -> str:
        """The queues it serves."""
        return ", ".join(worker.queues) if worker.queues else "all"


def _jobs(number: int) -> str:
    return f"{number:,} job" if number == 1 else f"{number:,} jobs"


def _as_json(value: Any) -> str:
    return storable_text(json.dumps(value, indent=2, ensure_ascii=False), SHOWN)


def _preformatted(text: str) -> SafeString:
    style = "white-space: pre-wrap; overflow-wrap: anywhere; max-height: 40em; overflow: auto"
    return format_html('<pre style="{}">{}</pre>', style, text)


def _time(moment: Any) -> str:
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return str(local.isoformat(" ", "milliseconds"))
