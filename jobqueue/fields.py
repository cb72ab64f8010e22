"""A JSON column whose values come back as they went in, on every database."""

from __future__ import annotations

from typing import Any

from django.db import models

from jobqueue.values import ExactJSONEncoder, Unreadable


class ExactJSONField(models.JSONField):
    """A JSONField written by `values.dumps`: equal and of the same type from every database.

    As in Django's, None is stored as NULL, and filtering by key works:
    `filter(kwargs__order_id=1)`. The encoder is fixed, and is no part of a migration. PostgreSQL
    keeps -0.0 and 0.0 apart when it compares. What this process cannot read is an Unreadable.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.encoder = ExactJSONEncoder

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError) as error:
            return Unreadable(error)

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["encoder"]
        return name, path, args, kwargs
