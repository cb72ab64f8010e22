"""The change itself, once it is confirmed; what is said of it; and what the audit log keeps of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import DEFAULT_DB_ALIAS, DatabaseError, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import auditing, lifecycle, orders, queues, sweeps
from jobqueue.actors import Actor, kept_reason
from jobqueue.admin import words
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.choosing import Chosen, in_words
from jobqueue.admin.tokens import Choice
from jobqueue.admin.verbs import Verb, because, cause_of, say
from jobqueue.lifecycle import Counts
from jobqueue.models import AuditEntry, Job, Worker
from jobqueue.task import attempts_of
from jobqueue.texts import describe_exception

#: Seconds after which a request begins no further batch; servers end those that take longer than 30.
IN_ONE_REQUEST = 20.0


def do(
    page: DashboardAdmin,
    request: HttpRequest,
    verb: Verb,
    choice: Choice,
    chosen: Chosen,
    options: Mapping[str, Any],
) -> Counts:
    """Do what was confirmed, and write down who did it; `options` are what the form asked for.

    Returns what became of it. Its `skipped` counts by keys of `verbs.CAUSES`.
    """
    target, rest = _target(verb, choice, chosen)
    before = Counts(skipped=dict(chosen.since))
    about = {
        "actor": request.user,
        "reason": options["reason"],
        "chosen": chosen.frozen.chosen if verb.kind == "job" else len(chosen.rows),
        "message": rest,
    }
    if verb.kind == "job":
        counts = _do_jobs(page, verb, target, about, before, chosen, options)
    elif verb.kind == "sweep":
        counts = _do_sweep(verb, about)
    else:
        counts = _do_rows(page, verb, target, about, chosen, options)
    if counts.changed == 1 and len(chosen.rows) == 1 and page.using == DEFAULT_DB_ALIAS:
        _point(request, verb, chosen.rows[0], options["reason"])
    return counts


def summary(verb: Verb, counts: Counts) -> str:
    """What became of it: numbers first, then what was skipped and why, then what was not reached."""
    parts = [say(verb.done, counts.changed)]
    if not counts.changed and verb.kind != "sweep":
        parts = [_("Nothing was changed.")]
    if counts.skipped:
        parts.append(skipped(counts.skipped))
    if counts.left:
        left = ngettext(
            "%s was not reached in time: confirm again to go on.",
            "%s were not reached in time: confirm again to go on.",
            counts.left,
        )
        parts.append(left % words.grouped(counts.left))
    return " ".join(parts)


def sent_before(
    page: DashboardAdmin, request: HttpRequest, verb: Verb, chosen: Chosen, reason: str
) -> str:
    """What became of it the first time, if this person has sent the same form before: of two clicks it is
    the second that is answered."""
    if verb.kind == "sweep":
        return ""
    first = (
        _sent(verb, chosen, request.user, page.using)
        .filter(
            reason=kept_reason(reason),
            chosen=chosen.frozen.chosen if verb.kind == "job" else len(chosen.rows),
        )
        .order_by("-pk")
        .first()
    )
    return _("You had sent this before: %s") % say(verb.done, first.changed) if first else ""


def skipped(causes: Mapping[str, int]) -> str:
    """ "10 skipped: 8 processing, 2 still stopping." """
    total = words.grouped(sum(causes.values()))
    several = sorted(causes.items(), key=lambda item: -item[1])
    why = ", ".join(f"{words.grouped(number)} {because(cause)}" for cause, number in several)
    return _("%(total)s skipped: %(why)s.") % {"total": total, "why": why}


def _do_jobs(
    page: DashboardAdmin,
    verb: Verb,
    target: str,
    about: Mapping[str, Any],
    before: Counts,
    chosen: Chosen,
    options: Mapping[str, Any],
) -> Counts:
    total = before
    entry = auditing.begin(verb.key, verb.kind, target, **about)

    def on_batch(batch: Counts) -> None:
        total.changed += batch.changed
        for refusal, number in batch.skipped.items():
            total.skip(cause_of(refusal), number)
        auditing.note(entry, total)

    jobs = Job.objects.using(page.using).filter(pk__in=[job.pk for job in chosen.rows])
    common: dict[str, Any] = {
        "actor": about["actor"],
        "reason": options["reason"],
        "on_batch": on_batch,
        "until": time.monotonic() + IN_ONE_REQUEST,
    }
    try:
        if verb.key == "requeue":
            attempts = attempts_of if options.get("attempts") == "all" else 1
            done = lifecycle.requeue_many(jobs, attempts=attempts, **common)
        elif verb.key == "run_now":
            done = lifecycle.run_now_many(jobs, **common)
        elif verb.key == "cancel":
            done = lifecycle.cancel_many(jobs, **common)
        else:
            done = lifecycle.purge_many(jobs, **common)
    except DatabaseError as error:
        auditing.finish(entry, describe_exception(error).short)
        raise
    total.left = done.left
    auditing.note(entry, total)
    auditing.finish(entry, f"{done.left} were not reached in time." if done.left else "")
    return total


def _do_rows(
    page: DashboardAdmin,
    verb: Verb,
    target: str,
    about: Mapping[str, Any],
    chosen: Chosen,
    options: Mapping[str, Any],
) -> Counts:
    """Queues or workers: few rows, one transaction."""
    using, counts = page.using, Counts()
    who = {"actor": about["actor"], "reason": options["reason"]}
    with transaction.atomic(using):
        rows = page.model._default_manager.using(using).filter(
            pk__in=[row.pk for row in chosen.rows]
        )
        locked = list(rows.order_by("pk").select_for_update(no_key=True))
        repeated = _repeated(verb, target, chosen, about["actor"], using)
        entry = auditing.begin(verb.key, verb.kind, target, **about)
        allowed = []
        for row in locked:
            cause = "changed" if repeated else verb.cause(row, chosen.now)
            if cause is None:
                allowed.append(row.pk)
            else:
                counts.skip(cause)
        if not allowed:
            pass
        elif verb.key == "pause":
            counts.changed = len(queues.pause(allowed, until=options.get("until"), **who))
        elif verb.key == "resume":
            counts.changed = len(queues.resume(allowed, **who))
        else:
            asked = Worker.objects.using(using).filter(pk__in=allowed)
            counts.changed = orders.ask(asked, verb.key, **who)
        auditing.note(entry, counts)
        auditing.finish(entry)
    return counts


def _repeated(verb: Verb, target: str, chosen: Chosen, user: Any, using: str) -> bool:
    """Whether this person has done just this since the page was shown: the form was sent twice."""
    return _sent(verb, chosen, user, using).filter(target=target).exists()


def _sent(verb: Verb, chosen: Chosen, user: Any, using: str) -> QuerySet[AuditEntry]:
    """What this person has changed in this way since the page was shown."""
    return AuditEntry.objects.using(using).filter(
        at__gt=chosen.frozen.moment,
        verb=verb.key,
        target_kind=verb.kind,
        actor_id=Actor.of(user).id,
        changed__gt=0,
    )


def _do_sweep(verb: Verb, about: Mapping[str, Any]) -> Counts:
    entry = auditing.begin(verb.key, verb.kind, **about)
    counts = Counts()
    for finding in sweeps.run(about["actor"], dry_run=False):
        counts.changed += finding.repaired
        counts.skip(finding.kind, finding.found - finding.repaired)
    auditing.note(entry, counts)
    auditing.finish(entry)
    return counts


def _target(verb: Verb, choice: Choice, chosen: Chosen) -> tuple[str, str]:
    """What the audit log names, and what of it is too long to be a name."""
    if choice.query is not None:
        return in_words(chosen), ""
    ids = [str(row.pk) for row in chosen.rows]
    whole = ", ".join(ids)
    if len(whole) <= auditing.MAX_TARGET:
        return whole, ""
    return f"{len(ids)} {verb.kind}s", whole


def _point(request: HttpRequest, verb: Verb, row: Model, reason: str) -> None:
    """A line among "Recent actions". It goes with the person's account; the audit log stays."""
    LogEntry.objects.log_actions(
        cast(Any, request.user.pk),  # nobody without an account comes here
        [row],
        DELETION if verb.key == "purge" else CHANGE,
        f"{say(verb.past, 1)}: {reason}",
        single_object=True,
    )
