"""What a row of the job list says: how the job stands and since when, what it calls, and what went wrong last."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Case, F, Func, IntegerField, QuerySet, TextField, When
from django.db.models.functions import Cast, Length
from django.db.models.lookups import GreaterThan
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from jobqueue.admin import hiding, trees, words
from jobqueue.models import Job, Status
from jobqueue.texts import storable_text

#: What a list has no use for, and may be large.
HEAVY = ("args", "kwargs", "return_value", "progress")

#: Arguments longer than this stay in the database: characters of JSON.
SMALL = 4_000

#: Characters of an error that a row shows.
ERROR_SHOWN = 200


def light(jobs: QuerySet[Job], *, see_args: bool) -> QuerySet[Job]:
    """The rows without what may be large. With `see_args` small arguments come along as text, `jq_args` and
    `jq_kwargs`, since a value may be nested deeper than Python reads, and the sizes of all."""
    jobs = jobs.defer(*HEAVY)
    if not see_args:
        return jobs
    on_postgres = connections[jobs.db].vendor == "postgresql"
    for column in ("args", "kwargs"):
        text = Cast(column, TextField())
        # As it is stored, maybe compressed: to know that much it need not be read.
        stored: Any = Length(text)
        if on_postgres:
            stored = Func(F(column), function="pg_column_size", output_field=IntegerField())
        small = Case(
            When(GreaterThan(stored, SMALL), then=None),
            When(GreaterThan(Length(text), SMALL), then=None),
            default=text,
            output_field=TextField(),
        )
        jobs = jobs.annotate(**{f"jq_{column}": small, f"jq_{column}_size": stored})
    return jobs


def arguments(job: Any) -> str:
    """The arguments in a line, or how large they are; nothing for a row that was read without them."""
    if not hasattr(job, "jq_args"):
        return ""
    if job.jq_args is None or job.jq_kwargs is None:
        size = (job.jq_args_size or 0) + (job.jq_kwargs_size or 0)
        return _("%s of arguments") % filesizeformat(size)
    try:
        return trees.preview(json.loads(job.jq_args), json.loads(job.jq_kwargs))
    except RecursionError:
        return _("Arguments nested too deep to be shown here")


def when(job: Job, now: datetime) -> SafeString:
    """The time that matters in its state, as a sentence."""
    if job.finished_at is not None:
        ago = words.relative_time(job.finished_at, now)
        if job.status == Status.CANCELLED:
            return format_html(_("cancelled {}"), ago)
        if job.attempted_at is None:
            return format_html(_("finished {}"), ago)
        took = words.duration((job.finished_at - job.attempted_at).total_seconds())
        return format_html(_("finished {}, took {}"), ago, took)
    if job.status == Status.SCHEDULED:
        return format_html(_("due {}"), words.relative_time(job.run_after, now))
    if job.status == Status.QUEUED:
        return format_html(_("waiting {}"), _since(job.run_after, now))
    if job.lease_expires_at is not None and job.lease_expires_at <= now:
        return format_html(_("lease ran out {}"), words.relative_time(job.lease_expires_at, now))
    return format_html(_("running {}"), _since(job.attempted_at or job.run_after, now))


def _since(moment: datetime, now: datetime) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        words.iso(moment),
        words.absolute(moment),
        words.duration((now - moment).total_seconds()),
    )


def what(job: Job) -> SafeString:
    """What is called, with which arguments, and the last error."""
    module, dot, name = job.task_path.rpartition(".")
    call, error = arguments(job), error_line(job)
    return format_html(
        '<span class="jq-line">{}<b>{}</b></span>{}{}',
        module + dot,
        name,
        format_html('<code class="jq-line jq-args">{}</code>', call) if call else "",
        format_html('<span class="jq-line jq-last-error">{}</span>', error) if error else "",
    )


def error_line(job: Job) -> str:
    """The first line of the last error, without what looks like a secret."""
    line = job.error[: 4 * ERROR_SHOWN].strip().partition("\n")[0]
    return storable_text(hiding.hide_in_text(line), ERROR_SHOWN)
