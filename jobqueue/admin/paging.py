"""Pages of rows without counting them off: each begins where another ended, along an index."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from jobqueue.attempts import MAX_QUEUE_NAME
from jobqueue.models import Job


class Key(NamedTuple):
    """A column that rows are put in order by."""

    field: str
    descending: bool = False


Order = tuple[Key, ...]

#: The orders there are. The last column of each is unique, and the whole is what an index holds.
NEWEST: Order = (Key("id", descending=True),)
NEXT_TO_RUN: Order = (Key("queue_name"), Key("priority", descending=True), Key("id"))
SOONEST: Order = (Key("run_after"), Key("id"))

#: The values of a row's columns of an order: a place in that order.
Place = tuple[Any, ...]


class Stretch(NamedTuple):
    """Rows next to each other in an order: the first columns are equal to those of a place, the next lies
    to one side of it. One condition on each column, so that an index leads to them."""

    same: dict[str, Any]
    side: Q

    @property
    def condition(self) -> Q:
        """The rows."""
        return Q(**self.same) & self.side

    def parted_from(self, other: Stretch) -> bool:
        """Whether the two surely have no row in common."""
        return any(other.same.get(field, value) != value for field, value in self.same.items())


def terms(order: Order, *, backwards: bool = False) -> list[str]:
    """The order, or its reverse, as `order_by` takes it."""
    return [f"{'-' if key.descending != backwards else ''}{key.field}" for key in order]


def place_of(order: Order, job: Job) -> Place:
    """Where a row stands in an order."""
    return tuple(getattr(job, key.field) for key in order)


def beyond(order: Order, place: Place, *, backwards: bool = False) -> list[Stretch]:
    """The rows after a place, or before it: stretch by stretch, the nearest first."""
    found = []
    for number in reversed(range(len(order))):
        key = order[number]
        operator = "lt" if key.descending != backwards else "gt"
        same = {each.field: place[index] for index, each in enumerate(order[:number])}
        found.append(Stretch(same, Q(**{f"{key.field}__{operator}": place[number]})))
    return found


def up_to(order: Order, place: Place) -> Q:
    """The rows before a place as one condition, for whoever cannot go stretch by stretch."""
    key = order[0]
    bound = Q(**{f"{key.field}__{'gte' if key.descending else 'lte'}": place[0]})
    either = Q()
    for stretch in beyond(order, place, backwards=True):
        either |= stretch.condition
    return either if len(order) == 1 else bound & either


def parts(order: Order, end: Place | None) -> list[Stretch]:
    """The rows before `end`, or all of them, in stretches that follow each other in the order."""
    if end is None:
        return [Stretch({}, Q())]
    return beyond(order, end, backwards=True)[::-1]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and whether there are others before and after them."""

    rows: list[Job]
    has_newer: bool
    has_older: bool


def page(
    jobs: QuerySet[Job],
    order: Order,
    size: int,
    *,
    end: Place | None = None,
    after: Place | None = None,
    before: Place | None = None,
) -> Page:
    """The rows that follow `after`, or those that come before `before`, or the first; none from `end` on."""
    backwards = after is None and before is not None
    start = before if backwards else after
    asked = jobs.order_by(*terms(order, backwards=backwards))
    rows: list[Job] = []
    for condition in _walk(order, start, end, backwards=backwards):
        rows += asked.filter(condition)[: size + 1 - len(rows)]
        if len(rows) > size:
            break
    more = len(rows) > size
    rows = rows[:size]
    if backwards:
        return Page(rows[::-1], has_newer=more, has_older=True)
    return Page(rows, has_newer=after is not None, has_older=more)


def _walk(order: Order, start: Place | None, end: Place | None, *, backwards: bool) -> Iterator[Q]:
    """The conditions of all short ranges from `start` on, in the order in which they are walked."""
    within = parts(order, end)
    steps = [Stretch({}, Q())] if start is None else beyond(order, start, backwards=backwards)
    for step in steps:
        for part in reversed(within) if backwards else within:
            if not step.parted_from(part):
                yield step.condition & part.condition


def before_first(order: Order, first: Place, end: Place | None) -> list[Q]:
    """The rows that come before a page whose first row is at `first`."""
    return list(_walk(order, first, end, backwards=True))


# Places in addresses


def written(order: Order, place: Place) -> str:
    """A place as text for an address."""
    return "~".join(_written(value) for value in place)


def _written(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return value.hex
    return value.isoformat() if isinstance(value, datetime) else str(value)


def read(order: Order, text: str | None) -> Place | None:
    """What `written` wrote; None for anything else, also for a place in another order."""
    if not text or len(text) > MAX_QUEUE_NAME + 100:
        return None
    values: Sequence[str] = text.rsplit("~", len(order) - 1)
    if len(values) != len(order):
        return None
    try:
        return tuple(_read(key.field, value) for key, value in zip(order, values, strict=True))
    except ValueError:
        return None


def _read(field: str, text: str) -> Any:
    if field == "id":
        if len(text) != 32:
            raise ValueError(text)
        return uuid.UUID(text)
    if field == "priority":
        if not -100 <= (number := int(text[:5])) <= 100:
            raise ValueError(text)
        return number
    if field == "run_after":
        moment = parse_datetime(text)
        if moment is None or timezone.is_aware(moment) != settings.USE_TZ:
            raise ValueError(text)
        return moment
    if "\0" in text:
        raise ValueError(text)
    return text
