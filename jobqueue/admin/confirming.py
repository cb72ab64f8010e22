"""The page between a wish and a change: what will happen to how many, why, and only then the change itself.

An address of it carries a signed choice, its form the same choice as it was shown. So what is changed is what was
seen: neither a job that came later, nor one that has moved on since, nor the same job twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, update_wrapper, wraps
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import BadRequest
from django.db import transaction
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import auditing
from jobqueue.admin import cautions, choosing, doing, tokens, verbs, words
from jobqueue.admin.asking import Confirmation, recent_reasons
from jobqueue.admin.base import RIGHTS, DashboardAdmin, TooSlow, in_time
from jobqueue.admin.choosing import Chosen
from jobqueue.admin.panels import migrated
from jobqueue.admin.tokens import Choice, Stale
from jobqueue.admin.verbs import Verb, say
from jobqueue.models import Job

#: How many rows a person without the right to change all that match may choose at once.
AT_ONCE = 100


def urls(page: DashboardAdmin) -> list[URLPattern]:
    """The addresses of the confirmations of a page's verbs: `act/<verb>/`."""
    view = update_wrapper(partial(_confirm, page), _confirm)
    # A batch is a transaction of its own, and what was refused is kept though nothing else is.
    alone = transaction.non_atomic_requests(using=page.using)(view)
    return [page.page("act/<str:verb>/", alone, "act")]


def address(
    page: DashboardAdmin,
    request: HttpRequest,
    verb: str,
    *,
    ids: Sequence[object] = (),
    query: str | None = None,
) -> str:
    """The address at which this person may confirm `verb` (a key of `base.RIGHTS`) on these rows of the page's
    model, or, with `query`, on all jobs that this query string of the list finds."""
    choice = Choice(tuple(str(each) for each in ids), query, _back(page, request, verb, ids))
    return _address(page, request, verb, choice)


def refuse(
    page: DashboardAdmin, request: HttpRequest, verb: str, right: str, message: str = ""
) -> HttpResponse:
    """A page that names the right which is missing (a key of `base.RIGHTS`), and a row of the audit log."""
    needed = f"jobqueue.{RIGHTS[right]}"
    kind = str(page.model._meta.model_name)
    auditing.refused(
        verb, KINDS.get(kind, kind), actor=request.user, message=message or f"without {needed}"
    )
    title = _("You may not do this")
    return page.draw(request, "refused.html", title, status=403, needed=needed)


def for_viewers(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view for those who may see the rows of its model; all others are told which right they lack."""

    @wraps(view)
    def guarded(page: DashboardAdmin, request: HttpRequest, *args: Any, **kw: Any) -> HttpResponse:
        if not page.may(request, page.view_verb):
            return refuse(page, request, "view", page.view_verb)
        return view(page, request, *args, **kw)

    return guarded


def guard(page: DashboardAdmin, request: HttpRequest) -> HttpResponse | None:
    """The answer to an action of the list that nobody offered this person; None for any other request."""
    if request.method != "POST":
        return None
    for action in request.POST.getlist("action"):
        verb = action.removesuffix("_jobs")
        if action == verb or verb not in verbs.on("job"):
            continue
        for right in (page.view_verb, verb):
            if not page.may(request, right):
                return refuse(page, request, verb, right)
        for text in request.POST.getlist("_selected_action"):
            try:
                UUID(text)
            except ValueError:
                raise BadRequest("That is no id of a job.") from None
    return None


#: How the audit log calls the models whose names are long.
KINDS = {"auditentry": "audit"}


def _address(page: DashboardAdmin, request: HttpRequest, verb: str, choice: Choice) -> str:
    token = tokens.write(choice, verb, request.user)
    return f"{page.url('act', verb)}?{urlencode({'t': token})}"


def _back(page: DashboardAdmin, request: HttpRequest, verb: str, ids: Sequence[object]) -> str:
    """Where the person is, or, if this is only a part of a page, where that page is."""
    name = getattr(request.resolver_match, "url_name", None) or ""
    detail = f"jobqueue_{page.model._meta.model_name}_change"
    if name.endswith("_changelist"):
        return request.get_full_path()
    if verb != "purge" and len(ids) == 1 and page.model is Job and name.startswith("jobqueue_job_"):
        return page.url("change", quote(str(ids[0])))
    if name == detail and verb != "purge":
        return request.get_full_path()
    return page.url("changelist")


@migrated
def _confirm(page: DashboardAdmin, request: HttpRequest, verb: str) -> HttpResponse:
    """Show what would happen; do it when that is posted."""
    known = verbs.on(page.model._meta.model_name).get(verb)
    if known is None:
        raise Http404
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    for right in (page.view_verb, verb):
        if not page.may(request, right):
            return refuse(page, request, verb, right)
    posted = request.method == "POST"
    token = str((request.POST if posted else request.GET).get("t", ""))
    try:
        choice = tokens.read(token, verb, request.user)
    except Stale as error:
        return _stale(page, request, known, token, str(error))
    if not page.may(request, "bulk") and (choice.query is not None or len(choice.ids) > AT_ONCE):
        return refuse(page, request, verb, "bulk")
    if not posted:
        choice = replace(choice, frozen=None)
    try:
        with in_time(page.using):
            chosen = choosing.choose(page, request, known, choice)
    except TooSlow:
        return _draw(page, request, known, choice, None, None)
    sent = posted and choice.frozen is not None
    frozen = choice.frozen if sent and choice.frozen else choosing.shown(chosen)
    form = Confirmation(
        known,
        frozen,
        chosen.now,
        words.zone(chosen.now),
        every=chosen.every,
        data=request.POST if sent else None,
    )
    if not sent or not form.is_valid():
        return _draw(page, request, known, choice, chosen, form)
    counts = doing.do(page, request, known, choice, chosen, form.cleaned_data)
    level = messages.SUCCESS if counts.changed or known.kind == "sweep" else messages.WARNING
    said = doing.summary(known, counts)
    if not counts.changed:
        before = doing.sent_before(page, request, known, chosen, form.cleaned_data["reason"])
        said = f"{said} {before}".rstrip()
    messages.add_message(request, level, said)
    if counts.left:
        return HttpResponseRedirect(_address(page, request, verb, replace(choice, frozen=None)))
    return HttpResponseRedirect(choice.back)


def _stale(
    page: DashboardAdmin, request: HttpRequest, verb: Verb, token: str, why: str
) -> HttpResponse:
    """Back to the list, which says so; an address without any token was only typed."""
    if token:
        auditing.refused(
            verb.key, verb.kind, actor=request.user, message=f"the confirmation: {why}"
        )
    said = {
        "job": _("This confirmation link is not valid any more. Choose the jobs again."),
        "queue": _("This confirmation link is not valid any more. Choose the queues again."),
        "worker": _("This confirmation link is not valid any more. Choose the workers again."),
        "sweep": _("This confirmation link is not valid any more. Start again from here."),
    }[verb.kind]
    messages.error(request, said)
    return HttpResponseRedirect(page.url("changelist"))


def _draw(
    page: DashboardAdmin,
    request: HttpRequest,
    verb: Verb,
    choice: Choice,
    chosen: Chosen | None,
    form: Confirmation | None,
) -> HttpResponse:
    """The page that asks; without `chosen`, that the database took too long to find the rows."""
    if chosen is None:
        return page.draw(request, "confirm.html", _title(verb, 0), slow=True, back=choice.back)
    offered = chosen.allowed if not chosen.more else 0
    frozen = choosing.shown(chosen)
    return page.draw(
        request,
        "confirm.html",
        _title(verb, offered),
        verb=verb,
        button=say(verb.button, offered) if verb.kind != "sweep" else verb.button,
        chosen=chosen,
        what=_what(verb, choice, chosen),
        groups=[
            {
                "state": group.state,
                "number": group.number,
                "outcome": verb.outcome
                if group.cause is None
                else _("Skipped: %s") % _why(verb, group),
            }
            for group in chosen.groups
            if verb.kind != "sweep"
        ],
        changed=sum(chosen.since.values()),
        first=[_link(page, row) for row in chosen.rows[:5]],
        others=max(0, len(chosen.rows) - 5),
        warnings=cautions.of(page, request, verb, chosen),
        form=form if offered else None,
        reasons=recent_reasons(request, page.using),
        token=tokens.write(choice.after(frozen), verb.key, request.user) if offered else "",
        back=choice.back,
        limit=words.CAP,
    )


def _title(verb: Verb, offered: int) -> str:
    return say(verb.title, offered) if verb.kind != "sweep" else str(verb.title)


def _why(verb: Verb, group: choosing.Group) -> str:
    if group.cause in ("stopping", "forbidden", "asked"):
        return verbs.because(str(group.cause))
    return str(verb.only)


def _what(verb: Verb, choice: Choice, chosen: Chosen) -> str:
    """The choice in words."""
    if choice.query is not None:
        return _("You chose %s.") % choosing.in_words(chosen)
    number = len(chosen.rows)
    return {
        "job": ngettext("You chose %s job.", "You chose %s jobs.", number),
        "queue": ngettext("You chose %s queue.", "You chose %s queues.", number),
        "worker": ngettext("You chose %s worker.", "You chose %s workers.", number),
        "sweep": "",
    }[verb.kind].replace("%s", words.grouped(number))


def _link(page: DashboardAdmin, row: Any) -> dict[str, Any]:
    """One of the rows, by name."""
    about = row.task_path if isinstance(row, Job) else ""
    name = str(row.pk) if isinstance(row, Job) else str(row)
    return {"url": page.url("change", quote(row.pk)), "name": name, "about": about}
