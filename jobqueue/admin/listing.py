"""Which jobs a list shows, in which order and how many: worked out from its address, within what indexes can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import cached_property

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import ids
from jobqueue.admin import counting, paging, search, states, windows
from jobqueue.admin.paging import Order, Page, Place
from jobqueue.admin.search import Condition
from jobqueue.admin.words import absolute
from jobqueue.models import Job, Status

#: Parameters of the list's address that say which jobs are meant; the cursors only say which of their pages.
FILTERS = ("state", "queue", "task", "within", "from", "to", "attempt", "q", "all")
CURSORS = ("after", "before")

PERIODS: dict[str, tuple[str | Promise, int]] = {
    "15min": (gettext_lazy("Last 15 minutes"), 900),
    "1h": (gettext_lazy("Last hour"), 3_600),
    "24h": (gettext_lazy("Last 24 hours"), 86_400),
    "7d": (gettext_lazy("Last 7 days"), 604_800),
}

ATTEMPTS: dict[str, tuple[str | Promise, Q]] = {
    "first": (gettext_lazy("First attempt"), Q(attempt__lte=1)),
    "retried": (gettext_lazy("Tried more than once"), Q(attempt__gt=1)),
    "last": (gettext_lazy("No attempt left"), Q(attempt__gte=F("max_attempts"))),
}


@dataclass(frozen=True, slots=True)
class Ground:
    """The rows that the index for a state holds, the order in which it holds them, and whether those in the
    state are all of them."""

    rows: Q
    order: Order
    whole: bool


_ALL = Ground(Q(), paging.NEWEST, whole=True)
_DUE = Ground(Q(status=Status.SCHEDULED), paging.SOONEST, whole=False)
_COMPLETED = replace(_ALL, whole=False)
_LEASED = Ground(Q(status=Status.PROCESSING, lease_owner__isnull=False), paging.NEWEST, whole=False)
_GROUNDS = {
    "": _ALL,
    "scheduled": _DUE,
    "retrying": _DUE,
    "queued": Ground(Q(status=Status.QUEUED), paging.NEXT_TO_RUN, whole=True),
    "processing": _LEASED,
    "lost": _LEASED,
    "completed": _COMPLETED,
    "failed": Ground(Q(status=Status.FAILED), paging.NEWEST, whole=True),
    "cancelled": Ground(Q(status=Status.CANCELLED), paging.NEWEST, whole=True),
}


@dataclass(frozen=True, eq=False)
class Listing:
    """The jobs that match. Nothing is asked of the database until something is asked of the listing.

    `jobs` are those that this person may see; `problems` says what of the address or the search was not
    understood or is not allowed, and then nothing matches.
    """

    jobs: QuerySet[Job]
    now: datetime
    state: str = ""
    conditions: tuple[Condition, ...] = ()
    problems: tuple[str, ...] = ()
    everywhere: bool = False

    @classmethod
    def of(
        cls, jobs: QuerySet[Job], params: Mapping[str, str], *, see_args: bool, now: datetime
    ) -> Listing:
        """The listing at an address: `params` is its query string, of which cursors say nothing here."""
        if any("\0" in value for value in params.values()):
            return cls(jobs, now, problems=(_("A filter holds no character U+0000."),))
        problems: list[str] = []
        conditions: list[Condition] = []
        state = params.get("state", "")
        if state and state not in states.STATES:
            problems.append(_("There is no state “%s”.") % state[:60])
            state = ""
        if name := params.get("queue"):
            conditions.append(search.queue(name))
        if path := params.get("task"):
            conditions.append(search.task(path))
        for read in (_attempt, _within, _between):
            try:
                conditions += read(params, now)
            except search.Refused as refused:
                problems.append(str(refused))
        found, refusals = search.parse(
            params.get("q", ""), see_args=see_args, is_task=cls(jobs, now)._is_task
        )
        return cls(
            jobs,
            now,
            state,
            (*conditions, *found),
            (*problems, *refusals),
            everywhere=bool(params.get("all")),
        )

    def _is_task(self, path: str) -> bool:
        """Whether any of the jobs that a search goes through is of exactly this task."""
        return replace(self, conditions=(search.task(path),)).queryset.order_by()[:1].exists()

    def in_state(self, state: str) -> Listing:
        """The same in another state ("" for any), as a link to it shows it."""
        return replace(self, state=state, everywhere=False)

    # What it stands on

    @property
    def ground(self) -> Ground:
        """What the state offers to go by."""
        return _GROUNDS[self.state]

    @property
    def order(self) -> Order:
        """How the jobs are put in order: newest first; those that wait, as they will run."""
        return self.ground.order

    def _is_indexed(self, condition: Condition) -> bool:
        if condition.index == "queue":
            return self.state == "queued"
        return condition.index == "id" or (
            condition.index == "period" and self.order is paging.NEWEST
        )

    @property
    def is_searched(self) -> bool:
        """Whether a condition beside the state has to be looked for row by row."""
        return not all(map(self._is_indexed, self.conditions))

    @property
    def base(self) -> windows.Base:
        """The rows among which a search looks: what indexes lead to."""
        rows = self.jobs.filter(self.ground.rows)
        for condition in filter(self._is_indexed, self.conditions):
            rows = rows.filter(condition.q)
        return windows.Base(rows, self.order, self.reach)

    @property
    def reach(self) -> int:
        """How many rows a window of it holds."""
        # Those that wait lie scattered in the table, in the order in which they will run.
        far = self.order is paging.NEWEST and any(each.far for each in self.conditions)
        return windows.FAR if far else windows.NEAR

    @property
    def sought(self) -> Q:
        """What rows have to meet that no index leads to."""
        found = Q()
        if self.state and not self.ground.whole:
            found &= states.condition(self.state, self.now)
        for condition in self.conditions:
            if not self._is_indexed(condition):
                found &= windows.aside(condition.q) if condition.index else condition.q
        return found

    @property
    def matching(self) -> QuerySet[Job]:
        """What matches, however far away."""
        return self.jobs.none() if self.problems else self.base.jobs.filter(self.sought)

    @property
    def is_limited(self) -> bool:
        """Whether it keeps to a window, should there be more rows than fit in one."""
        return not (self.problems or self.everywhere) and (
            self.is_searched or not self.ground.whole
        )

    @cached_property
    def end(self) -> Place | None:
        """Where its window ends; None if it goes through all rows."""
        return windows.end(self.base) if self.is_limited else None

    @property
    def windowed(self) -> bool:
        """Whether there are rows that were not looked at."""
        return self.end is not None

    # What it gives

    @property
    def queryset(self) -> QuerySet[Job]:
        """All that match, inside the window if there is one, in order."""
        rows = self.matching.order_by(*paging.terms(self.order))
        return rows if self.end is None else rows.filter(paging.up_to(self.order, self.end))

    def page(
        self,
        size: int,
        *,
        after: str | None = None,
        before: str | None = None,
        rows: Callable[[QuerySet[Job]], QuerySet[Job]] | None = None,
    ) -> Page:
        """Some of them, with the columns that `rows` chooses; a cursor that is none of this listing's is taken
        for the beginning."""
        start, stop = paging.read(self.order, after), paging.read(self.order, before)
        found = paging.page(
            rows(self.matching) if rows else self.matching,
            self.order,
            size,
            end=self.end,
            after=start,
            before=stop,
        )
        if start is None and stop is None and not found.has_older:
            self.__dict__["_count"] = len(found.rows)  # counted by having been read
        return found

    @property
    def _readily(self) -> QuerySet[Job]:
        """What matches, to be counted: along the index that leads to it, or in no order where none does."""
        order = () if self.everywhere and self.is_searched else paging.terms(self.order)
        return self.matching.order_by(*order)

    def count(self) -> int:
        """How many match, or CAP + 1 if there are more than CAP."""
        return self._count

    @cached_property
    def _count(self) -> int:
        stretches = paging.parts(self.order, self.end)
        number = counting.of_all([self._readily.filter(each.condition) for each in stretches])
        return counting.ask([number], self.jobs.db)[0] or 0

    def counts(self) -> dict[str, int | None]:
        """How many jobs match in each state, as `count` counts them; None where a search would go through too
        many rows for a number that nobody asked for."""
        wanted = _numbers({key: self.in_state(key) for key in states.STATES if key != self.state})
        numbers = counting.ask(list(wanted.values()), self.jobs.db)
        found = dict(zip(wanted, numbers, strict=True))
        if self.state:
            found[self.state] = self.count()
        return {key: found[key] for key in states.STATES}

    def newer(self, first: str | None) -> int:
        """How many come before the place of a page's first row, or CAP + 1 if there are more than CAP."""
        place = paging.read(self.order, first)
        if place is None:
            return self.count()
        ranges = paging.before_first(self.order, place, self.end)
        number = counting.of_all([self._readily.filter(each) for each in ranges])
        return counting.ask([number], self.jobs.db)[0] or 0

    def words(self) -> str:
        """The filter in words: "state is Failed, queue is mail"."""
        said = [_("state is %s") % states.STATES[self.state].label] if self.state else []
        said += [condition.words for condition in self.conditions]
        return ", ".join(said) or _("all jobs")

    @property
    def is_filtered(self) -> bool:
        """Whether it is less than all jobs."""
        return bool(self.state or self.conditions or self.problems)


def _numbers(listings: Mapping[str, Listing]) -> dict[str, counting.Number]:
    """Of each listing what counts it. They were not chosen and must not take long: no end is looked up for them."""
    found: dict[str, counting.Number] = {}
    parts: dict[Ground, list[str]] = {}
    for key, each in listings.items():
        if each.problems:
            found[key] = counting.NONE
        elif each.is_searched:
            found[key] = counting.at_a_glance(each.base, each.sought)
        elif each.ground.whole:
            found[key] = counting.of_all([each._readily])
        else:
            parts.setdefault(each.ground, []).append(key)
    for keys in parts.values():
        # States that share their ground are told apart in one reading of it.
        sought = [listings[key].sought for key in keys]
        found |= zip(keys, counting.within(listings[keys[0]].base, sought), strict=True)
    return found


# What addresses say beside the search


def _attempt(params: Mapping[str, str], now: datetime) -> list[Condition]:
    if not (key := params.get("attempt")):
        return []
    if key not in ATTEMPTS:
        raise search.Refused(_("“%s” was not understood.") % f"attempt={key[:60]}")
    label, q = ATTEMPTS[key]
    return [Condition(q, str(label).lower())]


def _within(params: Mapping[str, str], now: datetime) -> list[Condition]:
    if not (key := params.get("within")):
        return []
    if key not in PERIODS:
        raise search.Refused(_("“%s” was not understood.") % f"within={key[:60]}")
    label, seconds = PERIODS[key]
    start = ids.first_at((now - timedelta(seconds=seconds)).timestamp())
    return [Condition(Q(pk__gte=start), _("enqueued: %s") % str(label).lower(), "period")]


def _between(params: Mapping[str, str], now: datetime) -> list[Condition]:
    found = []
    for name, operator, words in (
        ("from", "gte", _("enqueued from %s")),
        ("to", "lt", _("enqueued before %s")),
    ):
        if text := params.get(name):
            try:
                moment = _moment(text, end=name == "to")
                bound, said = ids.first_at(moment.timestamp()), absolute(moment)
            except (ValueError, OverflowError):
                raise search.Refused(
                    _("“%s” is no time; write 2026-11-29 or 2026-11-29T13:00.") % text[:60]
                ) from None
            found.append(Condition(Q(**{f"pk__{operator}": bound}), words % said, "period"))
    return found


def _moment(text: str, *, end: bool) -> datetime:
    """A day or a time in the current zone; as an end a day is over when the next begins."""
    if (day := parse_date(text)) is not None:
        moment = datetime.combine(day + timedelta(days=1) if end else day, time())
    elif (found := parse_datetime(text)) is not None:
        moment = found
    else:
        raise ValueError(text)
    if settings.USE_TZ and timezone.is_naive(moment):
        return timezone.make_aware(moment)
    if not settings.USE_TZ and timezone.is_aware(moment):
        return timezone.make_naive(moment)
    return moment
