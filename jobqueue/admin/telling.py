"""How a row of the audit log is put into words: who, what, to what, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from jobqueue.admin import doing, trail, verbs, words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.models import AuditEntry, Job, Worker

#: How many things of one operation are named.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A thing that something was done to, and where its page is, if it has one."""

    name: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A row as it is shown."""

    entry: AuditEntry
    who: str
    who_url: str
    what: str
    targets: Sequence[Target]
    others: int
    skipped: str


def lines(page: DashboardAdmin, request: HttpRequest, rows: Sequence[AuditEntry]) -> list[Line]:
    """The rows in words, with links to what is still there."""
    users, targets = _users(page, request, rows), _Targets(page, request, rows)
    found = []
    for row in rows:
        named = targets.of(row)
        found.append(
            Line(
                row,
                row.actor_name or _("the application"),
                users.get(row.actor_id, ""),
                what(row),
                named[:NAMED],
                max(0, len(named) - NAMED),
                doing.skipped(row.skipped) if row.skipped else "",
            )
        )
    return found


def what(entry: AuditEntry) -> str:
    """What was done: "Requeued 271 of 281 jobs"."""
    verb = verbs.VERBS.get(entry.verb)
    if entry.result == AuditEntry.Result.REFUSED:
        return _("Refused: %s") % str(trail.VERBS.get(entry.verb, entry.verb)).lower()
    if verb is None:
        return str(verbs.EXPORTED if entry.verb == "export" else entry.verb)
    if verb.kind == "sweep" or entry.changed == entry.chosen:
        return verbs.say(verb.past, entry.changed)
    number = _("%(changed)s of %(chosen)s") % {
        "changed": words.grouped(entry.changed),
        "chosen": words.grouped(entry.chosen),
    }
    return str(verb.past % {"n": entry.chosen, "count": number})


def _users(
    page: DashboardAdmin, request: HttpRequest, rows: Sequence[AuditEntry]
) -> dict[str, str]:
    """By id the addresses of those who acted, where the account is there and this person may look at it."""
    model, site = get_user_model(), page.admin_site
    if not site.is_registered(model) or not site.get_model_admin(model).has_view_permission(
        request
    ):
        return {}
    keys = {}
    for text in {row.actor_id for row in rows if row.actor_id}:
        try:
            keys[model._meta.pk.to_python(text)] = text
        except ValidationError:
            continue  # of another kind of account, which the site had before
    there = model._default_manager.filter(pk__in=keys).values_list("pk", flat=True)
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return {keys[pk]: reverse(name, args=[quote(pk)], current_app=site.name) for pk in there}


class _Targets:
    """What rows are about, by name; with the address of what is still there."""

    def __init__(
        self, page: DashboardAdmin, request: HttpRequest, rows: Sequence[AuditEntry]
    ) -> None:
        self.page = page
        named = {
            kind: {
                key for row in rows if row.target_kind == kind for key in trail.ids_in(row.target)
            }
            for kind in ("job", "worker")
        }
        jobs = (
            page.jobs(request).filter(pk__in=named["job"]) if named["job"] else Job.objects.none()
        )
        self.jobs: set[UUID] = set(jobs.values_list("pk", flat=True))
        workers = Worker.objects.using(page.using).filter(pk__in=named["worker"])
        self.workers = {worker.pk: worker for worker in workers} if named["worker"] else {}

    def of(self, row: AuditEntry) -> list[Target]:
        """The things of one row."""
        if row.target_kind == "queue" and row.target:
            url = self.page.url("changelist", model=Job)
            return [Target(row.target, f"{url}?{urlencode({'queue': row.target})}")]
        keys = trail.ids_in(row.target)
        if row.target_kind == "job" and keys:
            return [self._job(key) for key in keys]
        if row.target_kind == "worker" and keys:
            return [self._worker(key) for key in keys]
        return [Target(row.target)] if row.target else []

    def _job(self, key: UUID) -> Target:
        there = key in self.jobs
        return Target(str(key), self.page.url("change", quote(key), model=Job) if there else "")

    def _worker(self, key: UUID) -> Target:
        worker = self.workers.get(key)
        if worker is None:
            return Target(str(key))
        return Target(str(worker), self.page.url("change", quote(key), model=Worker))
