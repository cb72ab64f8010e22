"""What somebody should know before they confirm: a paused queue, an unknown task, the same error again and again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import paths, queues
from jobqueue.admin import words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.choosing import Chosen
from jobqueue.admin.verbs import Verb
from jobqueue.exceptions import TaskNotFound
from jobqueue.models import Job, JobLog, Status

#: How many of the newest jobs' logs are read for errors that repeat, and how many lines of them.
READ = 50
LINES = 2_000

#: How many times the same error is too often.
OFTEN = 3

#: How many names a warning gives.
NAMED = 5


def of(page: DashboardAdmin, request: HttpRequest, verb: Verb, chosen: Chosen) -> list[str]:
    """The warnings for this verb on these rows."""
    if verb.key in ("requeue", "run_now"):
        rows = [job for job in chosen.rows if verb.cause(job, chosen.now) is None]
        return [*_repeating(page, rows), *_waiting(rows), *_unknown(rows)]
    if verb.key == "pause":
        return list(_going_on(page, request, chosen))
    if verb.key == "purge" and chosen.allowed:
        return [_("Only the row about it in the audit log will be left.")]
    return []


def _repeating(page: DashboardAdmin, jobs: list[Job]) -> Iterator[str]:
    """Jobs that failed with one and the same error again and again will hardly fare better now."""
    newest = [job.pk for job in jobs[:READ] if job.status == Status.FAILED or job.error]
    events = (JobLog.Event.ERRORED, JobLog.Event.TIMED_OUT, JobLog.Event.LOST)
    lines = JobLog.objects.using(page.using).filter(job_id__in=newest, event__in=events)
    errors: dict[UUID, list[str]] = defaultdict(list)
    for pk, message in lines.order_by("-pk").values_list("job_id", "message")[:LINES]:
        errors[pk].append(message)
    number = sum(len(told) >= OFTEN and len(set(told[:OFTEN])) == 1 for told in errors.values())
    if number:
        whole = len(newest)
        yield ngettext(
            "%(number)s of the newest %(whole)s failed with the same error three times in a row.",
            "%(number)s of the newest %(whole)s failed with the same error three times in a row each.",
            number,
        ) % {"number": words.grouped(number), "whole": words.grouped(whole)}


def _waiting(jobs: list[Job]) -> Iterator[str]:
    held = queues.paused()
    for name, number in sorted(Counter(job.queue_name for job in jobs).items()):
        if name in held:
            yield ngettext(
                "Queue %(name)s is paused: %(number)s job will wait there.",
                "Queue %(name)s is paused: %(number)s jobs will wait there.",
                number,
            ) % {"name": name, "number": words.grouped(number)}


def _unknown(jobs: list[Job]) -> Iterator[str]:
    for path, number in Counter(job.task_path for job in jobs).most_common(NAMED):
        try:
            paths.resolve(path)
        except TaskNotFound:
            yield ngettext(
                "Task %(path)s is not known to this process: %(number)s job waits until a worker knows it,"
                " and fails after a day.",
                "Task %(path)s is not known to this process: %(number)s jobs wait until a worker knows it,"
                " and fail after a day.",
                number,
            ) % {"path": path, "number": words.grouped(number)}


def _going_on(page: DashboardAdmin, request: HttpRequest, chosen: Chosen) -> Iterator[str]:
    running = page.jobs(request).filter(
        queue_name__in=[queue.pk for queue in chosen.rows],
        status=Status.PROCESSING,
        lease_owner__isnull=False,
    )
    number = running.order_by()[: words.CAP + 1].count()
    if number:
        yield ngettext(
            "%s job that is running goes on.", "%s jobs that are running go on.", number
        ) % words.capped(number)
