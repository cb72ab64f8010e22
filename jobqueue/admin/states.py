"""The states that staff see: those of the table, and three that a row shows only when it is looked at closely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from jobqueue.models import Job, Status


@dataclass(frozen=True, slots=True)
class State:
    """A state, its word and its sign. `key` is what stands in addresses and in class names."""

    key: str
    label: str | Promise
    glyph: str


STATES: dict[str, State] = {
    state.key: state
    for state in (
        State("scheduled", _("Scheduled"), "◷"),
        State("queued", _("Queued"), "○"),
        State("processing", _("Processing"), "▶"),
        State("retrying", _("Retrying"), "↻"),
        State("completed", _("Completed"), "✓"),
        State("failed", _("Failed"), "✕"),
        State("cancelled", _("Cancelled"), "⊘"),
        State("lost", _("Lost"), "?"),
    )
}

#: Not a chip of its own: a cancelled job whose code has not let go.
STOPPING = State("cancelled", _("Cancelled, still stopping"), "⊘")


def badge(state: State) -> SafeString:
    """A state as a sign, a word and a colour."""
    return format_html(
        '<span class="jq-state jq-state-{}"><span aria-hidden="true">{}</span> {}</span>',
        state.key,
        state.glyph,
        state.label,
    )


def state_of(job: Job, now: datetime) -> State:
    """How the job stands at `now`, by the database's clock."""
    if job.is_stopping:
        return STOPPING
    if job.status == Status.SCHEDULED and job.error:
        return STATES["retrying"]
    if job.status == Status.PROCESSING and job.lease_expires_at and job.lease_expires_at <= now:
        return STATES["lost"]
    return STATES[job.status]


def condition(key: str, now: datetime) -> Q:
    """The rows of a state at `now`. Each row is in one state; KeyError for what is none."""
    return {
        "scheduled": Q(status=Status.SCHEDULED, error=""),
        "retrying": Q(status=Status.SCHEDULED) & ~Q(error=""),
        "queued": Q(status=Status.QUEUED),
        # The owner is named for the index of all that is leased.
        "processing": Q(
            status=Status.PROCESSING, lease_owner__isnull=False, lease_expires_at__gt=now
        ),
        "lost": Q(status=Status.PROCESSING, lease_owner__isnull=False, lease_expires_at__lte=now),
        "completed": Q(status=Status.COMPLETED),
        "failed": Q(status=Status.FAILED),
        "cancelled": Q(status=Status.CANCELLED),
    }[key]
