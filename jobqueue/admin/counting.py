"""Numbers of jobs that never cost more than they are worth: each is SQL that stops somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from jobqueue.admin import windows
from jobqueue.admin.paging import terms
from jobqueue.admin.words import CAP
from jobqueue.models import Job

#: A number beside a link is looked for among so many rows; if there are more the link stands alone.
GLANCE = 2_000


class Number(NamedTuple):
    """An expression of SQL, and its parameters."""

    sql: str
    params: tuple[Any, ...] = ()


NONE = Number("0")


def of_all(parts: Sequence[QuerySet[Job]]) -> Number:
    """The rows of querysets that have none in common, up to CAP + 1."""
    texts: list[str] = []
    params: list[Any] = []
    for rows in parts:
        try:
            sql, values = _sql(rows.order_by().values("pk"))
        except EmptyResultSet:
            continue
        texts.append(sql)
        params += values
    if not texts:
        return NONE
    inner = " UNION ALL ".join(texts)
    return Number(f"(SELECT COUNT(*) FROM ({inner} LIMIT {CAP + 1}) AS c)", tuple(params))


def within(base: windows.Base, condition: Q) -> Number:
    """The rows among the first of a base that meet a condition, up to CAP + 1."""
    rows = _marked(base, condition).order_by(*terms(base.order))
    try:
        sql, params = _sql(rows[: base.size])
    except EmptyResultSet:
        return NONE
    found = f"SELECT 1 FROM ({sql}) AS w WHERE w.jq_meets = 1 LIMIT {CAP + 1}"
    return Number(f"(SELECT COUNT(*) FROM ({found}) AS c)", params)


def at_a_glance(base: windows.Base, condition: Q) -> Number:
    """The rows of a base that meet a condition, if the base is small; else NULL."""
    limit = min(GLANCE, base.size)
    try:
        sql, params = _sql(_marked(base, condition).order_by()[: limit + 1])
    except EmptyResultSet:
        return NONE
    number = f"CASE WHEN COUNT(*) <= {limit} THEN COALESCE(SUM(c.jq_meets), 0) END"
    return Number(f"(SELECT {number} FROM ({sql}) AS c)", params)


def _marked(base: windows.Base, condition: Q) -> QuerySet[Job, Any]:
    meets = Case(When(condition, then=Value(1)), default=Value(0), output_field=IntegerField())
    return base.jobs.annotate(jq_meets=meets).values("jq_meets")


def _sql(rows: QuerySet[Job, Any]) -> tuple[str, tuple[Any, ...]]:
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    return sql, tuple(params)


def ask(numbers: Sequence[Number], using: str) -> list[int | None]:
    """All of them, in one statement; none is more than CAP + 1."""
    sql = ", ".join(number.sql for number in numbers)
    params = [value for number in numbers for value in number.params]
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {sql}", params)
        row = cursor.fetchone()
    return [None if value is None else min(int(value), CAP + 1) for value in row]
