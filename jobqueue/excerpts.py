"""JSON columns as text, cut by the database: what they hold can be shown without loading all of it.

Whatever stands in the column is no error here, on SQLite not even text that is no JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import BigIntegerField, Func, TextField


class Excerpt(Func):
    """Text out of a JSON column. SQLite hands it over as bytes, which need not be UTF-8."""

    output_field = TextField()

    def get_db_converters(self, connection: Any) -> list[Any]:
        """Bytes become text."""
        return [_text]


class Start(NamedTuple):
    """The beginning of a column's JSON, and how many bytes all of it is as text."""

    text: str
    size: int


class Beginning(Excerpt):
    """The first `limit` characters of a column's JSON as a `Start`; None for NULL."""

    def __init__(self, column: str, limit: int) -> None:
        super().__init__(column, limit=int(limit))

    # The inner query makes text of the column once, however large it is.
    template = (
        "(SELECT octet_length(whole)::text || ' ' || left(whole, %(limit)d)"
        " FROM (SELECT (%(expressions)s)::text AS whole OFFSET 0) AS once)"
    )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite keeps JSON as text."""
        template = (
            "CAST(length(CAST(%(expressions)s AS BLOB)) || ' '"
            " || substr(%(expressions)s, 1, %(limit)d) AS BLOB)"
        )
        return self.as_sql(compiler, connection, template=template, **context)

    def get_db_converters(self, connection: Any) -> list[Any]:
        """Bytes become text, text becomes a `Start`."""
        return [_text, _start]


class Kept(Excerpt):
    """The text below one key of an object: its first `limit` characters, or the last of them if it
    is negative. NULL for what is no object, has no such key, or has null there."""

    def __init__(self, column: str, key: str, limit: int) -> None:
        assert key.isidentifier()
        super().__init__(
            column, key=key, limit=abs(int(limit)), side="left" if limit > 0 else "right"
        )

    template = "%(side)s(%(expressions)s ->> '%(key)s', %(limit)d)"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """`json_extract` raises for what is not JSON."""
        start = "1" if self.extra["side"] == "left" else f"-{self.extra['limit']}"
        template = (
            "CASE WHEN json_valid(%(expressions)s) THEN CAST(substr("
            f"json_extract(%(expressions)s, '$.%(key)s'), {start}, %(limit)d) AS BLOB) END"
        )
        return self.as_sql(compiler, connection, template=template, **context)


class KeptSize(Func):
    """How many characters the text below one key is; NULL as for `Kept`."""

    output_field = BigIntegerField()

    def __init__(self, column: str, key: str) -> None:
        assert key.isidentifier()
        super().__init__(column, key=key)

    template = "char_length(%(expressions)s ->> '%(key)s')"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """`json_extract` raises for what is not JSON."""
        template = (
            "CASE WHEN json_valid(%(expressions)s)"
            " THEN length(json_extract(%(expressions)s, '$.%(key)s')) END"
        )
        return self.as_sql(compiler, connection, template=template, **context)


def _text(value: Any, expression: Any, connection: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _start(value: str | None, expression: Any, connection: Any) -> Start | None:
    if value is None:
        return None
    size, _space, text = value.partition(" ")
    return Start(text, int(size))
