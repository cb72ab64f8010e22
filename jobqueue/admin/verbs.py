"""What staff may do: the words for each verb, which rows it may be done to, and why others are skipped."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from jobqueue import lifecycle
from jobqueue.admin import words
from jobqueue.lifecycle.batches import GONE
from jobqueue.lifecycle.purging import HELD
from jobqueue.lifecycle.states import STILL_STOPPING
from jobqueue.models import Job, Queue, Status, Worker

#: A text, maybe one with a plural in it.
Text = str | Promise


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do. The texts with a number take `count`, see `say`; `cause` says why a row is skipped."""

    key: str
    kind: str
    title: Text  # of the page that asks
    button: Text
    meaning: Text
    outcome: Text  # what happens to a row, in a word or two
    only: Text  # which rows it may be done to
    done: Text  # what the message says afterwards
    past: Text  # what the audit log says
    cause: Callable[[Any, datetime], str | None]
    danger: bool = False
    typed: bool = False  # whether the number must be typed however small it is


#: Why a row was skipped, where it is not for the state it is in.
CAUSES: dict[str, Text] = {
    "changed": _("changed since the page was shown"),
    "forbidden": _("not yours to change"),
    "stopping": _("still stopping"),
    "removed": _("removed meanwhile"),
    "held": _("kept by a row of another table"),
    "running": _("not paused"),
    "quiet": _("quiet already"),
    "asked": _("asked already"),
    "gone": _("gone"),
    **{str(status.value): _(status.label.lower()) for status in Status},
}


def say(text: Text, count: int, **more: object) -> str:
    """One of a verb's texts for so many rows."""
    return str(text % {"count": words.grouped(count), "n": count, **more})


def because(cause: str) -> str:
    """A cause in words; one that the lifecycle gives is in words already."""
    return str(CAUSES.get(cause, cause))


def cause_of(refusal: str) -> str:
    """The key among `CAUSES` of what the lifecycle says when it leaves a job as it is."""
    known = {STILL_STOPPING: "stopping", GONE: "removed", HELD: "held"}
    status = re.match(r"it is (\w+);", refusal)
    return status.group(1) if status else known.get(refusal, refusal)


def _job_is(event: lifecycle.Event) -> Callable[[Job, datetime], str | None]:
    def cause(job: Job, now: datetime) -> str | None:
        refused = lifecycle.refusal(event, job.status, stopping=job.is_stopping)
        return cause_of(refused) if refused else None

    return cause


def _purgeable(job: Job, now: datetime) -> str | None:
    refused = lifecycle.purge_refusal(job.status, stopping=job.is_stopping)
    return cause_of(refused) if refused else None


def _any(row: object, now: datetime) -> None:
    return None


def _paused(queue: Queue, now: datetime) -> str | None:
    return None if queue.is_paused(now) else "running"


def _not_quiet(worker: Worker, now: datetime) -> str | None:
    if worker.state != Worker.State.RUNNING:
        return worker.state
    return "asked" if worker.asked else None


def _not_stopping(worker: Worker, now: datetime) -> str | None:
    if worker.state == Worker.State.GONE:
        return worker.state
    return "asked" if worker.asked == Worker.Order.STOP else None


VERBS: dict[str, Verb] = {
    verb.key: verb
    for verb in (
        Verb(
            "requeue",
            "job",
            ngettext_lazy("Requeue %(count)s job?", "Requeue %(count)s jobs?", "n"),
            ngettext_lazy("Requeue %(count)s job", "Requeue %(count)s jobs", "n"),
            _(
                "Each goes back to its queue for a new attempt. What happened so far stays in its log."
            ),
            _("Queued once more"),
            _("only completed, failed and cancelled jobs can be requeued"),
            ngettext_lazy("%(count)s job queued.", "%(count)s jobs queued.", "n"),
            ngettext_lazy("Requeued %(count)s job", "Requeued %(count)s jobs", "n"),
            _job_is(lifecycle.Event.REQUEUED),
        ),
        Verb(
            "run_now",
            "job",
            ngettext_lazy("Run %(count)s job now?", "Run %(count)s jobs now?", "n"),
            ngettext_lazy("Run %(count)s job now", "Run %(count)s jobs now", "n"),
            _("Each is due at once, and goes to its queue without waiting for its time."),
            _("Queued now"),
            _("only jobs that wait for their time can be run now"),
            ngettext_lazy(
                "%(count)s job queued to run now.", "%(count)s jobs queued to run now.", "n"
            ),
            ngettext_lazy("Ran %(count)s job now", "Ran %(count)s jobs now", "n"),
            _job_is(lifecycle.Event.RUN_NOW),
        ),
        Verb(
            "cancel",
            "job",
            ngettext_lazy("Cancel %(count)s job?", "Cancel %(count)s jobs?", "n"),
            ngettext_lazy("Cancel %(count)s job", "Cancel %(count)s jobs", "n"),
            _(
                "They will not run. One that is running is cancelled at once and for good, and its code"
                " is told to stop."
            ),
            _("Cancelled"),
            _("it has ended already"),
            ngettext_lazy("%(count)s job cancelled.", "%(count)s jobs cancelled.", "n"),
            ngettext_lazy("Cancelled %(count)s job", "Cancelled %(count)s jobs", "n"),
            _job_is(lifecycle.Event.CANCELLED),
            danger=True,
        ),
        Verb(
            "purge",
            "job",
            ngettext_lazy("Purge %(count)s job?", "Purge %(count)s jobs?", "n"),
            ngettext_lazy("Purge %(count)s job", "Purge %(count)s jobs", "n"),
            _("The jobs and their logs are deleted for ever. There is no way back."),
            _("Deleted for ever"),
            _("only completed, failed and cancelled jobs can be purged"),
            ngettext_lazy("%(count)s job purged.", "%(count)s jobs purged.", "n"),
            ngettext_lazy("Purged %(count)s job", "Purged %(count)s jobs", "n"),
            _purgeable,
            danger=True,
            typed=True,
        ),
        Verb(
            "pause",
            "queue",
            ngettext_lazy("Pause %(count)s queue?", "Pause %(count)s queues?", "n"),
            ngettext_lazy("Pause %(count)s queue", "Pause %(count)s queues", "n"),
            _(
                "Workers take no new jobs from it. Jobs that are running go on, and new ones are still"
                " accepted."
            ),
            _("Paused"),
            "",
            ngettext_lazy("%(count)s queue paused.", "%(count)s queues paused.", "n"),
            ngettext_lazy("Paused %(count)s queue", "Paused %(count)s queues", "n"),
            _any,
        ),
        Verb(
            "resume",
            "queue",
            ngettext_lazy("Resume %(count)s queue?", "Resume %(count)s queues?", "n"),
            ngettext_lazy("Resume %(count)s queue", "Resume %(count)s queues", "n"),
            _("Workers take jobs from it again."),
            _("Resumed"),
            _("it is not paused"),
            ngettext_lazy("%(count)s queue resumed.", "%(count)s queues resumed.", "n"),
            ngettext_lazy("Resumed %(count)s queue", "Resumed %(count)s queues", "n"),
            _paused,
        ),
        Verb(
            "quiet",
            "worker",
            ngettext_lazy("Quiet %(count)s worker?", "Quiet %(count)s workers?", "n"),
            ngettext_lazy("Quiet %(count)s worker", "Quiet %(count)s workers", "n"),
            _(
                "It takes no new jobs and finishes the running ones. It stays so until it is stopped."
            ),
            _("Asked to be quiet"),
            _("only a running worker can be quieted"),
            ngettext_lazy(
                "%(count)s worker asked to be quiet.", "%(count)s workers asked to be quiet.", "n"
            ),
            ngettext_lazy(
                "Asked %(count)s worker to be quiet", "Asked %(count)s workers to be quiet", "n"
            ),
            _not_quiet,
        ),
        Verb(
            "stop",
            "worker",
            ngettext_lazy("Stop %(count)s worker?", "Stop %(count)s workers?", "n"),
            ngettext_lazy("Stop %(count)s worker", "Stop %(count)s workers", "n"),
            _(
                "It takes no new jobs. Those that have not ended within its grace time go back to their"
                " queues."
            ),
            _("Asked to stop"),
            _("it is stopping or gone already"),
            ngettext_lazy(
                "%(count)s worker asked to stop.", "%(count)s workers asked to stop.", "n"
            ),
            ngettext_lazy("Asked %(count)s worker to stop", "Asked %(count)s workers to stop", "n"),
            _not_stopping,
            danger=True,
        ),
        Verb(
            "sweep",
            "sweep",
            _("Run a sweep now?"),
            _("Run a sweep now"),
            _(
                "One pass over all jobs that repairs what is stored wherever it disagrees with what is true."
                " Workers do the same with every tick; it is safe at any time."
            ),
            "",
            "",
            ngettext_lazy(
                "The sweep repaired %(count)s thing.", "The sweep repaired %(count)s things.", "n"
            ),
            ngettext_lazy("Ran a sweep: %(count)s repair", "Ran a sweep: %(count)s repairs", "n"),
            _any,
        ),
    )
}

#: The one other thing that the audit log tells of.
EXPORTED = _("Exported the audit log")


def on(model_name: str | None) -> dict[str, Verb]:
    """The verbs that a page of this model confirms."""
    return {key: verb for key, verb in VERBS.items() if verb.kind == model_name}
