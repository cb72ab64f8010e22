"""The database's clock: the one that all times are compared by and written from."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from django.db import connections
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone

#: What a statement compares with or writes: a time, or the database's own, maybe with a delay.
Moment = datetime | Combinable


def now(using: str) -> datetime:
    """The moment at which the current statement began, by the clock of the database `using`.

    Aware if and only if USE_TZ is on, as the ORM reads and writes times. SQLite lives in this very process, so its
    clock is the process's.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT STATEMENT_TIMESTAMP()")
        (moment,) = cursor.fetchone()
    return cast(datetime, moment)


def moment(using: str) -> Moment:
    """`now` for use in a statement, to which a timedelta may be added: no question to ask first.

    The database evaluates it, so it is exact in the hour that local time repeats in autumn, too;
    without USE_TZ a value that has been read is ambiguous then.
    """
    return timezone.now() if connections[using].vendor == "sqlite" else Now()
