"""How a statement of the hot path reaches PostgreSQL: one message there, one back, and little Python between.

A cursor of Django's and one of psycopg's cost as much as a small INSERT itself. So the statement goes to the
driver's protocol layer, on Django's own connection and with its promises: the same checks, the same
errors, no prepared statement that a pooler could lose. Who wants to see statements (a debug cursor, an execute
wrapper, a patched connection) sees them: then a cursor is used as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import generators, pq

#: A row as the server sends it in its binary format.
Fields = list[bytes | None]

_BINARY = pq.Format.BINARY
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # the server counts microseconds from here


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a statement may be sent past the cursors of this PostgreSQL connection just now.

    Connects if need be. Raises what a cursor would raise: outside of the connection's thread, on an
    event loop, in a transaction that is broken.
    """
    connection.ensure_connection()
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    if connection.execute_wrappers or connection.queries_logged or "cursor" in vars(connection):
        return False
    raw = connection.connection
    if not isinstance(raw, psycopg.Connection):
        return False
    pgconn = raw.pgconn
    # Outside of autocommit the first statement has to begin the transaction, which cursors do.
    return pgconn.pipeline_status == pq.PipelineStatus.OFF and (
        raw.autocommit or pgconn.transaction_status == pq.TransactionStatus.INTRANS
    )


def fetch(
    connection: BaseDatabaseWrapper, statement: bytes, params: Sequence[bytes | None]
) -> list[Fields]:
    """Execute a statement on a connection that `is_open`, and return its rows.

    The parameters, `$1` and so on in it, are in the server's text format.
    """
    raw: psycopg.Connection[Any] = connection.connection
    with connection.wrap_database_errors, raw.lock:
        raw.pgconn.send_query_params(statement, params, result_format=_BINARY)
        # Waits as the driver's cursors do: a signal's handler runs, and other greenlets do.
        result = raw.wait(generators.execute(raw.pgconn))[-1]
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(result, encoding=raw.info.encoding)
    columns = range(result.nfields)
    return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]


def moment(connection: BaseDatabaseWrapper, field: bytes) -> datetime:
    """The moment in a field, as the ORM would read it from this connection."""
    aware = _EPOCH + timedelta(microseconds=int.from_bytes(field, "big", signed=True))
    if not settings.USE_TZ:
        return aware.astimezone(ZoneInfo(connection.timezone_name)).replace(tzinfo=None)
    return aware if connection.timezone is UTC else aware.astimezone(connection.timezone)
