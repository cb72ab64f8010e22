"""What a job's row says of it now: the head of its page, its progress, and the list of facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeGuard
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import conf
from jobqueue.admin import confirming, hiding, tracebacks, trees, words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.states import state_of
from jobqueue.lifecycle.states import Event, refusal
from jobqueue.models import WAITING, Job, Status, Worker

#: What may be done to one job: the verb, its button, and how the button looks.
VERBS: tuple[tuple[str, str | Promise, str], ...] = (
    ("requeue", gettext_lazy("Requeue…"), "jq-btn-main"),
    ("run_now", gettext_lazy("Run now…"), "jq-btn-main"),
    ("cancel", gettext_lazy("Cancel…"), "jq-btn-danger"),
    ("purge", gettext_lazy("Purge…"), "jq-btn-danger"),
)


def is_over(job: Job) -> bool:
    """Whether nothing more will happen to the job by itself."""
    return job.is_final and not job.is_stopping


def allows(job: Job, verb: str) -> bool:
    """Whether the job's state lets the verb be done to it."""
    if verb == "purge":
        return is_over(job)
    events = {"requeue": Event.REQUEUED, "run_now": Event.RUN_NOW, "cancel": Event.CANCELLED}
    return refusal(events[verb], job.status, stopping=job.is_stopping) is None


def buttons(page: DashboardAdmin, request: HttpRequest, job: Job) -> list[dict[str, Any]]:
    """What this person may do to the job as it stands, each with the address of its confirmation."""
    return [
        {
            "verb": verb,
            "label": label,
            "look": look,
            "url": confirming.address(page, request, verb, ids=[job.pk]),
        }
        for verb, label, look in VERBS
        if allows(job, verb) and page.may(request, verb, job)
    ]


def list_of(page: DashboardAdmin, **terms: str) -> str:
    """The address of the list with these terms."""
    return f"{page.url('changelist', model=Job)}?{urlencode(terms)}"


@dataclass(slots=True)
class Progress:
    """How far the task said that it is; `raw` is what it said if it was something else."""

    done: str = ""
    total: str = ""
    share: float | None = None
    percent: int | None = None
    rate: str = ""
    message: str = ""
    raw: str = ""


def progress(job: Job, text: str | None, now: datetime) -> Progress | None:
    """From the beginning of the column's text; None if the task said nothing."""
    if text is None:
        return None
    try:
        said = trees.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not _is_number(said.get("done")):
        text = hiding.hide_in_text("".join(hiding.hide_in_json(text)))
        return Progress(raw=trees.plain(text[:300]))
    done, total = said["done"], said.get("total")
    message = trees.plain(hiding.hide_in_text(str(said.get("message") or "")[:2_000]))
    found = Progress(done=_amount(done), message=message)
    if _is_number(total) and total > 0:
        found.total = _amount(total)
        found.share = round(min(1.0, max(0.0, done / total)), 4)
        found.percent = int(found.share * 100)
    if job.status == Status.PROCESSING and job.attempted_at and done > 0:
        seconds = (now - job.attempted_at).total_seconds()
        if seconds >= 1:
            found.rate = _("%s per second") % _amount(done / seconds)
    return found


def _is_number(value: Any) -> TypeGuard[float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and abs(value) < 1e18
    )


def _amount(value: float) -> str:
    return words.grouped(int(value)) if value == int(value) else f"{value:.3g}"


@dataclass(slots=True)
class Error:
    """The last error, and what follows from it."""

    title: str
    name: str
    message: str
    then: str


def last_error(job: Job, state: str, now: datetime) -> Error | None:
    """What went wrong last, for a job that failed, waits to be tried again, or is lost."""
    if state == "lost" and job.lease_expires_at:
        said = _(
            "The lease of worker %(worker)s ran out %(ago)s. The next sweep takes the job back."
        )
        ago = words.age(job.lease_expires_at, now)
        message = said % {"worker": trees.plain(job.worker) or job.lease_owner, "ago": ago}
        return Error(_("Lost"), "", message, "")
    if state not in ("failed", "retrying"):
        return None
    name, message = tracebacks.split_error(job.error)
    if not (name or message):
        message = _("No error was recorded.")
    then = ""
    if state == "retrying":
        said = _("Attempt %(next)s may start %(when)s.")
        then = said % {"next": job.attempt + 1, "when": words.age(job.run_after, now)}
    return Error(_("Last error"), name, message, then)


Fact = tuple[str, SafeString | str]


def facts(
    page: DashboardAdmin, request: HttpRequest, job: Job, worker: Worker | None, now: datetime
) -> list[Fact]:
    """The row in words; what is empty is left out."""
    found = [(label, value) for label, value in _facts(page, request, job, worker, now) if value]
    return [(str(label), value) for label, value in found]


def _facts(
    page: DashboardAdmin, request: HttpRequest, job: Job, worker: Worker | None, now: datetime
) -> Iterator[tuple[str, SafeString | str]]:
    yield _("Id"), format_html('<code id="jq-id">{}</code>', job.pk)
    yield _("Task"), format_html("<code>{}</code>", trees.plain(job.task_path))
    yield _("Queue"), trees.plain(job.queue_name)
    attempt = {"number": job.attempt, "most": job.max_attempts, "back": job.given_back}
    tried = _("%(number)s of %(most)s (%(back)s given back)") if job.given_back else ""
    yield _("Attempt"), (tried or _("%(number)s of %(most)s")) % attempt
    yield _("Priority"), str(job.priority)
    yield _("Enqueued"), words.full_time(job.enqueued_at, now)
    yield _("Due"), words.full_time(job.run_after, now)
    if job.started_at:
        yield _("First started"), words.full_time(job.started_at, now)
    if job.attempted_at:
        yield _("Last started"), words.full_time(job.attempted_at, now)
    if job.finished_at:
        yield _("Finished"), words.full_time(job.finished_at, now)
    yield _waited(job, now)
    yield _ran(job, now)
    yield _("Worker"), trees.plain(job.worker)
    if job.lease_owner and job.lease_expires_at:
        yield _("Lease owner"), _owner(page, request, job, worker)
        yield _("Lease runs out"), _lease(job.lease_expires_at, now)
    if worker:
        yield _("Version"), trees.plain(worker.version)
    yield _("Idempotency key"), trees.plain(job.idempotency_key or "")
    yield _("Timeout"), _("none") if job.timeout is None else words.duration(job.timeout)


def _waited(job: Job, now: datetime) -> Fact:
    if job.status in WAITING:
        waits = (now - job.run_after).total_seconds()
        return _("Waits"), words.duration(waits) if waits > 0 else ""
    if not job.attempted_at:
        return _("Waited"), ""
    return _("Waited"), words.duration((job.attempted_at - job.run_after).total_seconds())


def _ran(job: Job, now: datetime) -> Fact:
    if not job.attempted_at or job.status in WAITING:
        return _("Ran"), ""
    if job.status == Status.PROCESSING:
        return _("Runs"), words.duration((now - job.attempted_at).total_seconds())
    ended = job.finished_at or now
    return _("Ran"), words.duration((ended - job.attempted_at).total_seconds())


def _owner(
    page: DashboardAdmin, request: HttpRequest, job: Job, worker: Worker | None
) -> SafeString | str:
    if worker is None:
        return _("%s, whose row is gone") % job.lease_owner
    if not page.admin_site.is_registered(Worker):
        return trees.plain(str(worker))
    if not page.site_admin(Worker).may(request, "view_worker", worker):
        return trees.plain(str(worker))
    url = page.url("change", worker.pk, model=Worker)
    return format_html('<a href="{}">{}</a>', url, trees.plain(str(worker)))


def _lease(expires: datetime, now: datetime) -> SafeString:
    renewed = expires - timedelta(seconds=conf.options().lease)
    said = words.full_time(expires, now)
    if renewed > now:
        return format_html("{}", said)
    return format_html("{}, {}", said, _("renewed %s") % words.age(renewed, now))


def state_key(job: Job, now: datetime) -> str:
    """The key of the state that the badge shows."""
    return state_of(job, now).key
