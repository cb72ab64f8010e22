"""What a statement is, and the way it is sent: past the cursors where nobody wants to see it."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobqueue.values import loads

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Statement(str):
    """SQL with `%s` for each parameter, and the same as the server's protocol has it: with `$1` and so on.

    `has_one_plan` says that a plan made once will do for good, as for an INSERT of values: one that
    was made for an empty table would be kept when it has filled.
    """

    numbered: bytes
    name: bytes
    has_one_plan: bool

    def __new__(cls, text: str, *, has_one_plan: bool = False) -> Statement:
        self = super().__new__(cls, text)
        numbers = itertools.count(1)
        self.numbered = re.sub("%s", lambda _: f"${next(numbers)}", text).encode()
        self.has_one_plan = has_one_plan
        # The same name means the same statement to everyone, behind a pooler, too.
        self.name = b"jobqueue_" + hashlib.sha1(self.numbered).hexdigest()[:16].encode()
        return self


class Column(Enum):
    """What a column of an answer holds."""

    UUID = "uuid"
    TEXT = "text"
    JSON = "jsonb"
    INT = "int"
    FLOAT = "float8"
    MOMENT = "timestamptz"


def query(
    connection: BaseDatabaseWrapper,
    statement: Statement,
    params: Sequence[bytes | None],
    columns: Sequence[Column],
) -> list[tuple[Any, ...]]:
    """Execute a statement and return its rows, of these columns, as the ORM would read them.

    The parameters are in PostgreSQL's text format; see `array` and `number`.
    """
    from jobqueue.postgres import wire  # the driver need not be installed where PostgreSQL is not

    if wire.is_open(connection):
        return wire.fetch(connection, statement, params, columns)
    return _query_by_cursor(connection, statement, params, columns)


def _query_by_cursor(
    connection: BaseDatabaseWrapper,
    statement: Statement,
    params: Sequence[bytes | None],
    columns: Sequence[Column],
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [None if each is None else each.decode() for each in params])
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    # Django leaves JSON to its fields.
    documents = [place for place, column in enumerate(columns) if column is Column.JSON]
    if not documents:
        return rows
    plain = [list(row) for row in rows]
    for row in plain:
        for place in documents:
            row[place] = None if row[place] is None else loads(row[place])
    return [tuple(row) for row in plain]


def number(value: float) -> bytes:
    """A number as a parameter."""
    return repr(value).encode()


def array(values: Iterable[str | int]) -> bytes:
    """Numbers, or texts without commas, quotes and braces, as the parameter for an array."""
    return f"{{{','.join(map(str, values))}}}".encode()


def uuids(values: Iterable[UUID]) -> bytes:
    """UUIDs as the parameter for an array."""
    return array([each.hex for each in values])


def documents(values: Sequence[str | None]) -> bytes:
    """JSON texts, or None for NULL, as the parameter for an array."""
    return f"{{{','.join(map(_element, values))}}}".encode()


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
