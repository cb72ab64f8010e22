"""The few statements that PostgreSQL does faster than the ORM can say, whole and readable.

Only the lifecycle and the dispatch use them, and for each they have a plain way that does the same on every
database; one suite of tests proves them equal. The ids to change are chosen by `= ANY (ARRAY (SELECT ...))` or in a
materialised CTE: `IN (SELECT ... LIMIT n)` may be run more than once and take more than n.
"""

from __future__ import annotations

from django.db import connections

from jobqueue.postgres.inserting import copy, insert
from jobqueue.postgres.locking import extend_alone, is_lock_timeout, patiently, want, wanted
from jobqueue.postgres.moving import Wanted, claim, complete, exchange
from jobqueue.postgres.notifying import notify

__all__ = [
    "Wanted",
    "claim",
    "complete",
    "copy",
    "exchange",
    "extend_alone",
    "insert",
    "is_lock_timeout",
    "notify",
    "patiently",
    "serves",
    "want",
    "wanted",
]

#: Tests turn this off to prove the plain ways on PostgreSQL too.
enabled = True


def serves(using: str) -> bool:
    """Whether these statements can be used on the database `using`."""
    return enabled and connections[using].vendor == "postgresql"
