"""A job's attempts and what happened to it, as rows of its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import tries
from jobqueue.admin import hiding, tracebacks, trees, words
from jobqueue.admin.states import STATES, State
from jobqueue.lines import ERRORS
from jobqueue.models import Job, JobLog
from jobqueue.timeline import Moment
from jobqueue.tries import Tried

#: Attempts that a page shows, and characters of tracebacks in all of them.
ATTEMPTS = 20
ROOM = 100_000

#: How an attempt can have ended, beyond the states of a job; the key is the colour's.
OUTCOMES: dict[str, State] = {
    **STATES,
    "errored": State("failed", gettext_lazy("Failed"), "✕"),
    "timed_out": State("failed", gettext_lazy("Timed out"), "✕"),
    "not_found": State("failed", gettext_lazy("Task not found"), "✕"),
    "snoozed": State("scheduled", gettext_lazy("Snoozed"), "◷"),
    "released": State("queued", gettext_lazy("Given back"), "○"),
    "": State("cancelled", gettext_lazy("Not recorded"), "–"),
}

#: What can happen, in words.
EVENTS: dict[str, str | Promise] = {
    "enqueued": gettext_lazy("Enqueued"),
    "started": gettext_lazy("Started"),
    "completed": gettext_lazy("Completed"),
    "failed": gettext_lazy("Failed for good"),
    "waiting": gettext_lazy("Waits for a worker"),
    "due": gettext_lazy("Due"),
    "errored": gettext_lazy("Failed"),
    "timed_out": gettext_lazy("Timed out"),
    "lost": gettext_lazy("Lost"),
    "snoozed": gettext_lazy("Snoozed"),
    "not_found": gettext_lazy("Task not found"),
    "released": gettext_lazy("Given back"),
    "cancelled": gettext_lazy("Cancelled"),
    "requeued": gettext_lazy("Requeued"),
    "repaired": gettext_lazy("Repaired"),
    "fenced": gettext_lazy("Late outcome dropped"),
    "note": gettext_lazy("Note"),
    "run_now": gettext_lazy("Run now"),
}

#: The address of what is kept in a line of the log.
Address = Callable[[int, str], str]


@dataclass(slots=True)
class Row:
    """An attempt on the page."""

    tried: Tried
    state: State
    error_class: str
    error: str
    traceback: SafeString | str
    cut: bool
    download: str
    result: str

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return self.tried.outcome in ERRORS or self.tried.outcome == "failed"


def attempts(
    job: Job, below: int | None, *, lost: bool, see: bool, address: Address
) -> tuple[list[Row], int | None]:
    """The newest attempts, or those below a number; and the number below which there are more."""
    rows: list[Row] = []
    room = ROOM
    found = tries.attempts(job, below, ATTEMPTS)
    for tried in found:
        if tried.outcome == "processing" and lost:
            tried.outcome = "lost"
        drawn: SafeString | str = ""
        if tried.traceback and (not rows or sum(map(len, tried.traceback)) <= room):
            drawn = tracebacks.draw(tried.traceback, tried.size, see=see)
            room -= len(drawn)
        name, message = tracebacks.split_error(tried.message)
        kept = see and tried.line is not None
        download = address(tried.line, "traceback") if kept and tried.line and tried.size else ""
        result = (
            address(tried.line, "return_value") if kept and tried.line and tried.returned else ""
        )
        row = Row(
            tried,
            OUTCOMES.get(tried.outcome, OUTCOMES[""]),
            name,
            message,
            drawn,
            len(tried.traceback) > 1,
            download,
            result,
        )
        rows.append(row)
    last = found[-1].number if found else 1
    return rows, last if last > 1 else None


@dataclass(slots=True)
class Line:
    """A moment of the timeline on the page."""

    moment: Moment
    label: str | Promise
    words: str
    reason: str
    links: list[tuple[str, str]]


def lines(moments: list[Moment], *, see: bool, address: Address) -> list[Line]:
    """The moments in words; secrets in them are hidden."""
    return [_line(moment, see, address) for moment in moments]


def _line(moment: Moment, see: bool, address: Address) -> Line:
    # Of these the label says it already.
    said = "" if moment.event in ("failed", "waiting") else moment.message
    said = trees.plain(hiding.hide_in_text(said))
    # What a person did has their reason as its message.
    by_person = bool(moment.actor) or moment.event in (
        JobLog.Event.CANCELLED,
        JobLog.Event.REQUEUED,
    )
    event = moment.event
    if event == JobLog.Event.NOTE and moment.actor and "from" in moment.data:
        event = "run_now"
        said = "" if said == "run now" else said
    parts = [] if by_person else [said]
    if by_person and (before := moment.data.get("from")):
        known = STATES.get(str(before))
        parts.append(_("it was %s") % str(known.label if known else before).lower())
    delay = moment.data.get("delay")
    if isinstance(delay, float):
        parts.append(_("again in %s") % words.duration(delay))
    for key in ("error", "reason"):
        extra = moment.data.get(key)
        if extra and str(extra) not in moment.message and not by_person:
            parts.append(trees.plain(hiding.hide_in_text(str(extra))))
    links: list[tuple[str, str]] = []
    if see and moment.line is not None:
        names = {"traceback": _("traceback"), "return_value": _("result")}
        links = [(names[key], address(moment.line, key)) for key in moment.kept]
    return Line(
        moment,
        EVENTS.get(event, event),
        ", ".join(part for part in parts if part),
        said if by_person else "",
        links,
    )


def requeues(moments: list[Moment]) -> list[Any]:
    """Those moments at which the job was queued once more, newest first."""
    return [each for each in reversed(moments) if each.event == JobLog.Event.REQUEUED]
