"""What else there is to see about a job: the last ones of its task, and what people did to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest

from jobqueue.admin import words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.states import State, state_of
from jobqueue.models import AuditEntry, Job

#: Tasks have no index: their last jobs are looked for among so many of the newest.
WINDOW = 3_000
LAST = 20


@dataclass(frozen=True, slots=True)
class Square:
    """A job as a small sign."""

    url: str
    state: State
    age: str
    current: bool


def last_of_task(
    page: DashboardAdmin, jobs: QuerySet[Job], job: Job, now: datetime
) -> list[Square]:
    """The newest jobs of the same task among the newest of all, oldest first."""
    edge = jobs.order_by("-pk").values_list("pk", flat=True)[WINDOW : WINDOW + 1]
    newest = jobs.filter(pk__gte=edge[0]) if len(edge) else jobs
    columns = (
        *("id", "status", "error", "lease_owner", "lease_expires_at"),
        *("enqueued_at", "finished_at"),
    )
    found = newest.filter(task_path=job.task_path).order_by("-pk").only(*columns)[:LAST]
    return [
        Square(
            page.url("change", each.pk),
            state_of(each, now),
            words.age(each.finished_at or each.enqueued_at, now),
            each.pk == job.pk,
        )
        for each in reversed(found)
    ]


def audit_of(page: DashboardAdmin, job_id: object) -> str:
    """The audit log's rows about a job."""
    return f"{page.url('changelist', model=AuditEntry)}?{urlencode({'target': str(job_id)})}"


def audit_link(page: DashboardAdmin, request: HttpRequest, job: Job) -> str:
    """The same for those who may see them."""
    if not page.admin_site.is_registered(AuditEntry):
        return ""
    if not page.site_admin(AuditEntry).may(request, "view_audit"):
        return ""
    return audit_of(page, job.pk)
