"""How far a search goes that no index can lead: to the end of the first so many rows, found once in a while."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.core.exceptions import EmptyResultSet
from django.db.models import F, QuerySet, UUIDField, Value, Window
from django.db.models.expressions import RawSQL
from django.db.models.functions import RowNumber

from jobqueue.admin.paging import Order, Place, place_of, terms
from jobqueue.models import Job

#: How many rows a search reads for a condition that no index serves.
SEARCH_WINDOW = 100_000

#: Seconds for which the end of a window is remembered.
REMEMBERED = 30


@dataclass(frozen=True, slots=True)
class Base:
    """Jobs that an index leads to, in its order."""

    jobs: QuerySet[Job]
    order: Order

    def numbered(self) -> tuple[str, tuple[Any, ...]] | None:
        """SQL of the ids of the first rows and one more, each with its number; None if there can be no rows."""
        order_by = [
            F(key.field).desc() if key.descending else F(key.field).asc() for key in self.order
        ]
        rows = (
            self.jobs.order_by(*terms(self.order))
            .annotate(jq_id=F("pk"), jq_number=Window(RowNumber(), order_by=order_by))
            .values_list("jq_id", "jq_number")[: SEARCH_WINDOW + 1]
        )
        try:
            sql, params = rows.query.get_compiler(rows.db).as_sql()
        except EmptyResultSet:
            return None
        return sql, tuple(params)


def ends(bases: Sequence[Base]) -> list[Place | None]:
    """For each base the place of the first row outside its window; None where all rows are inside.

    One statement for those that are not remembered.
    """
    numbered = [base.numbered() for base in bases]
    names = [
        None if each is None else _name(base, *each)
        for base, each in zip(bases, numbered, strict=True)
    ]
    known = cache.get_many({name for name in names if name is not None})
    asked: dict[str, tuple[Base, QuerySet[Job]]] = {}
    for base, name, each in zip(bases, names, numbered, strict=True):
        if name is not None and each is not None and name not in known and name not in asked:
            sql, params = each
            # The ORM's own SQL, and its parameters apart.
            first_outside = RawSQL(
                f"SELECT w.jq_id FROM ({sql}) AS w WHERE w.jq_number = %s",
                (*params, SEARCH_WINDOW + 1),
                output_field=UUIDField(),
            )
            row = Job.objects.using(base.jobs.db).filter(pk=first_outside)
            asked[name] = (base, row.annotate(jq_base=Value(len(asked))))
    if asked:
        fields = sorted({key.field for base, _ in asked.values() for key in base.order})
        queries = [row.only(*fields) for _, row in asked.values()]
        first, *others = queries
        rows = first.union(*others, all=True) if others else first
        found: dict[int, Job] = {row.jq_base: row for row in rows}  # type: ignore[attr-defined]
        fresh = {
            name: place_of(base.order, found[number]) if number in found else ()
            for number, (name, (base, _)) in enumerate(asked.items())
        }
        cache.set_many(fresh, REMEMBERED)
        known |= fresh
    return [known.get(name) or None if name is not None else None for name in names]


def _name(base: Base, sql: str, params: tuple[Any, ...]) -> str:
    """What the end is remembered by: the rows and their order, whoever may see them."""
    text = repr((base.jobs.db, sql, params))
    return f"jobqueue:window:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
