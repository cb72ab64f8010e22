"""What somebody has chosen to change: which rows these are, how they stand, and what would happen to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Model, Q
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _

from jobqueue import clock
from jobqueue.admin import states
from jobqueue.admin.base import DashboardAdmin
from jobqueue.admin.listing import Listing
from jobqueue.admin.states import State
from jobqueue.admin.tokens import Choice, Frozen
from jobqueue.admin.verbs import Verb
from jobqueue.admin.words import CAP
from jobqueue.models import FINAL, Job, Queue, Status, Worker

#: What in the list's query string says where one is in it, not what it finds.
PLACE = ("before", "after", "p", "o", "e")

#: An id below all others.
LOWEST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Group:
    """The chosen rows that stand alike: how many they are, and why they are skipped, if they are."""

    state: State | str
    number: int
    cause: str | None


@dataclass(slots=True)
class Chosen:
    """The rows of a choice, as they stand at `now`. Of jobs there are no more than `CAP`; `more` says that
    there are others. `changed` counts those that were shown and have changed since."""

    rows: list[Any]
    now: datetime
    frozen: Frozen
    words: str = ""
    every: bool = False  # whether nothing narrows it
    problems: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    forbidden: int = 0
    since: dict[str, int] = field(default_factory=dict)
    more: bool = False

    @property
    def allowed(self) -> int:
        """How many rows the verb may be done to."""
        return sum(group.number for group in self.groups if group.cause is None)


def choose(page: DashboardAdmin, request: HttpRequest, verb: Verb, choice: Choice) -> Chosen:
    """The rows of a choice that this person may see; once it was frozen, those alone that were there then."""
    now = clock.now(page.using)
    if verb.kind == "job":
        chosen = _jobs(page, request, choice, now)
    else:
        # A sweep is of no row; queues and workers are few.
        found = page.get_queryset(request).filter(pk__in=choice.ids) if choice.ids else []
        frozen = choice.frozen or Frozen(now, LOWEST, {})
        chosen = Chosen(sorted(found, key=lambda row: str(row.pk)), now, frozen)
    seen = len(chosen.rows)
    chosen.rows = [row for row in chosen.rows if page.may(request, verb.key, row)]
    chosen.forbidden = seen - len(chosen.rows)
    if choice.frozen and (missing := choice.frozen.chosen - len(chosen.rows)) > 0:
        chosen.since = _since(page, request, verb, choice, chosen, missing)
    chosen.groups = [Group("", 1, None)] if verb.kind == "sweep" else _groups(chosen, verb)
    return chosen


def _jobs(page: DashboardAdmin, request: HttpRequest, choice: Choice, now: datetime) -> Chosen:
    jobs = page.jobs(request)
    chosen = Chosen([], now, choice.frozen or _freeze(page, now))
    if choice.query is None:
        jobs = jobs.filter(pk__in=_uuids(choice.ids))
    else:
        asked = {
            name: value
            for name, value in QueryDict(choice.query).dict().items()
            if name not in PLACE and str(value).strip()
        }
        # "In the last hour" is the hour before it was shown.
        then = chosen.frozen.moment
        listing = Listing.of(jobs, asked, see_args=page.may(request, "view_args"), now=then)
        jobs = listing.queryset
        chosen.every, chosen.words = not listing.is_filtered, listing.words()
        chosen.problems = [str(problem) for problem in listing.problems]
    jobs = jobs.filter(_was_there(chosen.frozen)).order_by()
    # Whole rows, but for what may be large: what a person may change is asked row by row.
    jobs = jobs.defer("args", "kwargs", "return_value", "progress")
    found = list(jobs[: CAP + 1])
    chosen.more = len(found) > CAP
    chosen.rows = sorted(found[:CAP], key=lambda job: job.pk, reverse=True)
    return chosen


def _freeze(page: DashboardAdmin, now: datetime) -> Frozen:
    newest = Job.objects.using(page.using).order_by("-pk").values_list("pk", flat=True).first()
    return Frozen(now, newest or LOWEST, dict.fromkeys(Status.values, 0))


def _was_there(frozen: Frozen) -> Q:
    """What was as it is when the choice was shown. An id is not enough: an old job may fail later; nor is a
    moment: ids are made where jobs are enqueued, by other clocks."""
    final = [status for status in frozen.statuses if status in FINAL]
    live = [status for status in frozen.statuses if status not in FINAL]
    return Q(pk__lte=frozen.newest) & (
        Q(status__in=final, finished_at__lte=frozen.moment)
        | Q(status__in=live, enqueued_at__lte=frozen.moment)
    )


def _since(
    page: DashboardAdmin,
    request: HttpRequest,
    verb: Verb,
    choice: Choice,
    chosen: Chosen,
    missing: int,
) -> dict[str, int]:
    """What became of those that were shown and are not any more what they were."""
    if choice.query is not None:
        return {"changed": missing}
    there = {job.pk for job in chosen.rows}
    others = page.jobs(request).filter(pk__in=set(_uuids(choice.ids)) - there)
    counts: Counter[str] = Counter(
        verb.cause(job, chosen.now) or "changed"
        for job in others.defer("args", "kwargs", "return_value", "progress")
        if page.may(request, verb.key, job)
    )
    counts["removed"] = max(0, missing - counts.total())
    return dict(+counts)


def shown(chosen: Chosen) -> Frozen:
    """What the form is to remember of this preview."""
    if not chosen.rows or not isinstance(chosen.rows[0], Job):
        statuses: Mapping[str, int] = {}
    else:
        statuses = Counter(job.status for job in chosen.rows)
    return Frozen(chosen.frozen.moment, chosen.frozen.newest, statuses, chosen.allowed)


def _groups(chosen: Chosen, verb: Verb) -> list[Group]:
    counts: Counter[tuple[Any, str | None]] = Counter(
        (_standing(row, chosen.now), verb.cause(row, chosen.now)) for row in chosen.rows
    )
    found = [Group(state, number, cause) for (state, cause), number in counts.items()]
    return sorted(found, key=lambda group: (group.cause is not None, -group.number))


def _standing(row: Model, now: datetime) -> State | str:
    if isinstance(row, Job):
        return states.state_of(row, now)
    if isinstance(row, Queue):
        return _("Paused") if row.is_paused(now) else _("Running")
    if isinstance(row, Worker):
        return str(row.get_state_display())
    raise TypeError(f"{row!r} has no state.")


def _uuids(ids: Iterable[str]) -> Sequence[UUID]:
    found = set()
    for text in ids:
        try:
            found.add(UUID(text))
        except ValueError:
            continue  # whatever a hand-made request names; it is no job
    return sorted(found)


def in_words(chosen: Chosen) -> str:
    """All that match, for the page and for the audit log."""
    return _("all jobs") if chosen.every else _("all jobs that match: %s") % chosen.words
