"""Numbers of jobs that never cost more than they are worth: each is SQL that stops somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Q, QuerySet

from jobqueue.admin import windows
from jobqueue.admin.paging import terms
from jobqueue.admin.words import CAP
from jobqueue.models import Job

#: A number beside a link is looked for among so many rows; if there are more the link stands alone.
GLANCE = 2_000


class Number(NamedTuple):
    """An expression of SQL, and its parameters; or a column of a table of one row, and that table's."""

    sql: str
    params: tuple[Any, ...] = ()
    table: str = ""


NONE = Number("0")


def of_all(parts: Sequence[QuerySet[Job]]) -> Number:
    """The rows of querysets that have none in common, up to CAP + 1."""
    texts: list[str] = []
    params: list[Any] = []
    for rows in parts:
        # In the order of an index, if it has one: free to choose, a planner reads the table until it has enough,
        # in the belief that they lie everywhere in it, and those that wait all lie at its end.
        try:
            sql, values = _sql(rows.values("pk")[: CAP + 1])
        except EmptyResultSet:
            continue
        texts.append(f"SELECT 1 FROM ({sql}) AS p{len(texts)}")
        params += values
    if not texts:
        return NONE
    inner = " UNION ALL ".join(texts)
    return Number(f"(SELECT COUNT(*) FROM ({inner} LIMIT {CAP + 1}) AS c)", tuple(params))


def within(base: windows.Base, conditions: Sequence[Q]) -> list[Number]:
    """Of each condition the rows among the first of a base that meet it. They are read once for all."""
    rows = base.jobs.order_by(*terms(base.order))
    names = [f"jq_meets_{place}" for place in range(len(conditions))]
    marked = rows.annotate(**dict(zip(names, map(windows.meets, conditions), strict=True)))
    try:
        sql, params = _sql(marked.values(*names)[: base.size])
    except EmptyResultSet:
        return [NONE] * len(conditions)
    sums = ", ".join(f"COALESCE(SUM(w.{name}), 0) AS {name}" for name in names)
    table = f"(SELECT {sums} FROM ({sql}) AS w)"
    return [Number(name, params, table) for name in names]


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
    return base.jobs.annotate(jq_meets=windows.meets(condition)).values("jq_meets")


def _sql(rows: QuerySet[Job, Any]) -> tuple[str, tuple[Any, ...]]:
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    return sql, tuple(params)


def ask(numbers: Sequence[Number], using: str) -> list[int | None]:
    """All of them, in one statement; none is more than CAP + 1."""
    # Columns of the same table come from one reading of it. A list, since a site's own limits may bring in
    # parameters that cannot be hashed.
    tables: list[tuple[str, tuple[Any, ...]]] = []
    columns: list[str] = []
    params: list[Any] = []
    for number in numbers:
        if number.table:
            table = (number.table, number.params)
            if table not in tables:
                tables.append(table)
            columns.append(f"t{tables.index(table)}.{number.sql}")
        else:
            columns.append(number.sql)
            params += number.params
    sql = f"SELECT {', '.join(columns)}"
    if tables:
        sql += f" FROM {', '.join(f'{text} AS t{place}' for place, (text, _) in enumerate(tables))}"
        params += [value for _, values in tables for value in values]
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        row = cursor.fetchone()
    return [None if value is None else min(int(value), CAP + 1) for value in row]
