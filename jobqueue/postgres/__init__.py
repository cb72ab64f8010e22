"""The few statements that PostgreSQL does faster than the ORM can say, whole and readable.

Only the lifecycle and the dispatch use them; `sqlite` has its own, and one suite of tests proves them equal. The ids to
change are chosen by `= ANY (ARRAY (SELECT ...))` or in a materialised CTE: `IN (SELECT ... LIMIT n)` may be run more
than once and take more than n.
"""

from __future__ import annotations

from jobqueue.postgres.inserting import copy, insert
from jobqueue.postgres.locking import extend_alone, is_lock_timeout, patiently, want, wanted
from jobqueue.postgres.moving import claim, complete, exchange
from jobqueue.postgres.notifying import notify

__all__ = [
    "claim",
    "complete",
    "copy",
    "exchange",
    "extend_alone",
    "insert",
    "is_lock_timeout",
    "notify",
    "patiently",
    "want",
    "wanted",
]
