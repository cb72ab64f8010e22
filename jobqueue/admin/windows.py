"""How far a search goes that no index can lead: to the end of the first so many rows, found once in a while."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.core.exceptions import EmptyResultSet
from django.db.models import Case, F, IntegerField, Q, QuerySet, UUIDField, Value, When, Window
from django.db.models.expressions import RawSQL
from django.db.models.functions import RowNumber
from django.db.models.lookups import Exact

from jobqueue.admin.paging import Order, Place, terms
from jobqueue.models import Job

#: How many rows are read for conditions that no index serves; and how many where one is about arguments, which
#: nobody looks for in passing.
NEAR, FAR = 10_000, 100_000

#: Seconds for which the end of a window is remembered.
REMEMBERED = 30


@dataclass(frozen=True, slots=True)
class Base:
    """Jobs that an index leads to, in its order, and how many of them a window holds."""

    jobs: QuerySet[Job]
    order: Order
    size: int

    def numbered(self) -> QuerySet[Job, Any]:
        """The ids of the first rows and one more, each with its number."""
        order_by = [
            F(key.field).desc() if key.descending else F(key.field).asc() for key in self.order
        ]
        rows = self.jobs.order_by(*terms(self.order)).annotate(
            jq_id=F("pk"), jq_number=Window(RowNumber(), order_by=order_by)
        )
        return rows.values_list("jq_id", "jq_number")[: self.size + 1]


def meets(condition: Q) -> Case:
    """1 in rows that meet a condition, else 0."""
    return Case(When(condition, then=Value(1)), default=Value(0), output_field=IntegerField())


def aside(condition: Q) -> Q:
    """The same condition where no planner sees an index for it: rows of a window are read in the window's order,
    and an index in another may lead through many more."""
    return Q(Exact(meets(condition), 1))


def end(base: Base) -> Place | None:
    """The place of the first row outside the window of a base; None if all its rows are inside."""
    rows = base.numbered()
    try:
        sql, params = rows.query.get_compiler(rows.db).as_sql()
    except EmptyResultSet:
        return None
    # Remembered by the rows and their order, whoever may see them.
    text = repr((rows.db, sql, params))
    name = f"jobqueue:window:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    place: Place | None = cache.get(name)
    if place is None:
        # The ORM's own SQL, and its parameters apart.
        outside = RawSQL(
            f"SELECT w.jq_id FROM ({sql}) AS w WHERE w.jq_number = %s",
            (*params, base.size + 1),
            output_field=UUIDField(),
        )
        fields = [key.field for key in base.order]
        row = Job.objects.using(rows.db).filter(pk=outside).values_list(*fields)
        place = next(iter(row), ())
        cache.set(name, place, REMEMBERED)
    return place or None
