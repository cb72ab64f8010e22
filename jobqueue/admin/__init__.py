"""What staff see in Django's admin, and may do there. Every change goes through the lifecycle.

A room a page: `overview`, `jobs` (its list in `listing`, one job in `detail`), `queues`, `workers`, `sweeps`, `audit`;
and one for whatever changes something: `confirming`.
"""

from __future__ import annotations

from django.contrib import admin

from jobqueue.admin.audit import AuditAdmin
from jobqueue.admin.jobs import JobAdmin
from jobqueue.admin.overview import OverviewAdmin
from jobqueue.admin.queues import QueueAdmin
from jobqueue.admin.sweeps import SweepAdmin
from jobqueue.admin.workers import WorkerAdmin
from jobqueue.models import AuditEntry, Job, Overview, Queue, Sweep, Worker

__all__ = [
    "AuditAdmin",
    "JobAdmin",
    "OverviewAdmin",
    "QueueAdmin",
    "SweepAdmin",
    "WorkerAdmin",
    "register",
]


def register(site: admin.AdminSite) -> None:
    """Put the dashboard on an admin site; on Django's own it is already."""
    site.register(Overview, OverviewAdmin)
    site.register(Job, JobAdmin)
    site.register(Queue, QueueAdmin)
    site.register(Worker, WorkerAdmin)
    site.register(Sweep, SweepAdmin)
    site.register(AuditEntry, AuditAdmin)


register(admin.site)
