"""The rows of the audit log that an address of its page finds, and that this person may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import clock
from jobqueue.actors import Actor
from jobqueue.admin.base import DashboardAdmin
from jobqueue.models import AuditEntry

#: The parameters of the page's address, beside the place in it.
FILTERS = ("who", "verb", "kind", "period", "target", "q")

#: The newest rows, in which a target is looked for that is one among several.
SEARCHED = 10_000

#: Rows that are read at once.
CHUNK = 500

#: Rows that a page looks through at most for what this person may see.
LOOKED_AT = 5_000

#: How many names of people are offered.
PEOPLE = 50

PERIODS: dict[str, tuple[Any, timedelta]] = {
    "1h": (gettext_lazy("Last hour"), timedelta(hours=1)),
    "24h": (gettext_lazy("Last 24 hours"), timedelta(days=1)),
    "7d": (gettext_lazy("Last 7 days"), timedelta(days=7)),
    "30d": (gettext_lazy("Last 30 days"), timedelta(days=30)),
}

KINDS: dict[str, Any] = {
    "job": gettext_lazy("Jobs"),
    "queue": gettext_lazy("Queues"),
    "worker": gettext_lazy("Workers"),
    "sweep": gettext_lazy("Sweeps"),
    "audit": gettext_lazy("Audit log"),
}

VERBS: dict[str, Any] = {
    "requeue": gettext_lazy("Requeue"),
    "run_now": gettext_lazy("Run now"),
    "cancel": gettext_lazy("Cancel"),
    "purge": gettext_lazy("Purge"),
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "quiet": gettext_lazy("Quiet"),
    "stop": gettext_lazy("Stop"),
    "sweep": gettext_lazy("Run a sweep"),
    "export": gettext_lazy("Export"),
    "view": gettext_lazy("Look at"),
}


@dataclass(slots=True)
class Page:
    """Some rows, and whether there are others before and after them."""

    rows: list[AuditEntry] = field(default_factory=list)
    newer: bool = False
    older: bool = False


@dataclass(frozen=True)
class Trail:
    """The rows that match, newest first. `sees` says which of some rows this person may see."""

    entries: QuerySet[AuditEntry]
    params: Mapping[str, str]
    cursor: tuple[str, int] | None
    sees: Callable[[Sequence[AuditEntry]], Iterable[AuditEntry]]

    @classmethod
    def of(cls, page: DashboardAdmin, request: HttpRequest, params: Mapping[str, str]) -> Trail:
        """The rows at an address of the page; what is not understood narrows nothing."""
        asked = {name: params[name].strip()[:400] for name in FILTERS if params.get(name)}
        asked = {name: value.replace("\0", "") for name, value in asked.items()}
        for name, known in (("period", PERIODS), ("kind", KINDS), ("verb", VERBS)):
            if asked.get(name) not in known:
                asked.pop(name, None)
        rows: QuerySet[AuditEntry] = page.get_queryset(request).order_by("-pk")
        if "who" in asked:
            rows = rows.filter(actor_name=asked["who"])
        if "verb" in asked:
            rows = rows.filter(verb=asked["verb"])
        if "kind" in asked:
            rows = rows.filter(target_kind=asked["kind"])
        if "period" in asked:
            since = clock.now(page.using) - PERIODS[asked["period"]][1]
            rows = rows.filter(at__gte=since)
        if "target" in asked:
            rows = rows.filter(_about(rows, asked["target"]))
        if "q" in asked:
            rows = rows.filter(_found(rows, asked["q"]))
        return cls(rows, asked, _cursor(params), _seen_by(page, request))

    def page(self, size: int) -> Page:
        """So many rows at the place that the address names."""
        if self.cursor is None:
            rows = self._some(self.entries, size + 1)
            return Page(rows[:size], newer=False, older=len(rows) > size)
        way, pk = self.cursor
        if way == "before":
            rows = self._some(self.entries.filter(pk__lt=pk), size + 1)
            newer = self._some(self.entries.filter(pk__gte=pk).order_by("pk"), 1)
            return Page(rows[:size], newer=bool(rows and newer), older=len(rows) > size)
        rows = self._some(self.entries.filter(pk__gt=pk).order_by("pk"), size + 1)
        older = self._some(self.entries.filter(pk__lte=pk), 1)
        return Page(rows[:size][::-1], newer=len(rows) > size, older=bool(rows and older))

    def rows(self) -> Iterator[AuditEntry]:
        """All of them, read little by little."""
        return self._walk(self.entries)

    def _some(self, entries: QuerySet[AuditEntry], number: int) -> list[AuditEntry]:
        return list(islice(self._walk(entries, LOOKED_AT), number))

    def _walk(
        self, entries: QuerySet[AuditEntry], limit: int | None = None
    ) -> Iterator[AuditEntry]:
        """By keys, not by a cursor of the database's, which not every pool of connections keeps."""
        upwards = entries.query.order_by == ("pk",)
        looked_at = 0
        chunk: Sequence[AuditEntry] = list(entries[:CHUNK])
        while chunk:
            yield from self.sees(chunk)
            looked_at += len(chunk)
            if len(chunk) < CHUNK or (limit and looked_at >= limit):
                return
            last = chunk[-1].pk
            beyond = Q(pk__gt=last) if upwards else Q(pk__lt=last)
            chunk = list(entries.filter(beyond)[:CHUNK])

    def address(self, **place: int) -> str:
        """The query string of this page, or of another place in it."""
        query = urlencode({**self.params, **place})
        return f"?{query}" if query else "?"

    def choices(self, people: Sequence[str]) -> list[dict[str, Any]]:
        """The filters to choose from: their names, labels and options."""
        options: list[tuple[str, Any, list[tuple[str, Any]]]] = [
            ("who", _("Who"), [(name, name) for name in people if name]),
            ("verb", _("What"), list(VERBS.items())),
            ("kind", _("Target"), list(KINDS.items())),
            ("period", _("When"), [(key, label) for key, (label, _span) in PERIODS.items()]),
        ]
        for name, _label, found in options:
            value = self.params.get(name)
            if value and value not in [key for key, _option in found]:
                found.append((value, value))
        return [
            {"name": name, "label": label, "options": found, "value": self.params.get(name, "")}
            for name, label, found in options
        ]

    def words(self) -> str:
        """The filter, for the row that tells of an export."""
        return ", ".join(f"{name}: {value}" for name, value in self.params.items()) or "all"


def people(using: str) -> list[str]:
    """The names that appear, sorted: stepped through along their index, one look a name."""
    entries = AuditEntry.objects.using(using).order_by("actor_name")
    names: list[str] = []
    name = entries.values_list("actor_name", flat=True).first()
    while name is not None and len(names) < PEOPLE:
        names.append(name)
        later = entries.filter(actor_name__gt=name)
        name = later.values_list("actor_name", flat=True).first()
    return names


def _cursor(params: Mapping[str, str]) -> tuple[str, int] | None:
    for way in ("before", "after"):
        text = params.get(way, "")
        if text.isascii() and text.isdigit() and len(text) < 19:
            return way, int(text)
    return None


def _about(rows: QuerySet[AuditEntry], target: str) -> Q:
    """What was done to a thing alone, and, among the newest rows, to it and others."""
    newest = AuditEntry.objects.using(rows.db).order_by("-pk").values_list("pk", flat=True)
    oldest = newest[SEARCHED : SEARCHED + 1].first()
    recent = Q() if oldest is None else Q(pk__gt=oldest)
    return Q(target=target) | recent & (Q(target__contains=target) | Q(message__contains=target))


def _found(rows: QuerySet[AuditEntry], text: str) -> Q:
    try:
        job_id = UUID(text)
    except ValueError:
        return Q(reason__istartswith=text)
    return _about(rows, str(job_id))


def _seen_by(
    page: DashboardAdmin, request: HttpRequest
) -> Callable[[Sequence[AuditEntry]], Iterable[AuditEntry]]:
    """Of rows about jobs a person whose jobs are limited sees those about jobs of theirs, and their own."""
    jobs = page.jobs(request)
    if not (jobs.query.where or jobs.query.is_sliced or jobs.query.combinator):
        return lambda rows: rows
    who = Actor.of(request.user)

    def sees(rows: Sequence[AuditEntry]) -> Iterator[AuditEntry]:
        named = {row.pk: ids_in(row.target) for row in rows if row.target_kind == "job"}
        wanted = {job_id for found in named.values() for job_id in found}
        theirs = set(jobs.filter(pk__in=wanted).values_list("pk", flat=True)) if wanted else set()
        for row in rows:
            own = (row.actor_id, row.actor_name) == (who.id, who.name)
            about = named.get(row.pk)
            if own or about is None or (about and theirs.issuperset(about)):
                yield row

    return sees


def ids_in(target: str) -> list[UUID]:
    """The ids of jobs that a target consists of; none if it is anything else."""
    try:
        return [UUID(part) for part in target.split(", ")]
    except ValueError:
        return []
