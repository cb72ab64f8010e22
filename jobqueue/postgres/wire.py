"""How a statement of the hot path reaches PostgreSQL: one message there, one back, and little Python between.

A cursor of Django's and one of psycopg's cost as much as a small INSERT itself. So the statement goes to the
driver's protocol layer, on Django's own connection and with its promises: the same checks, the same
errors, no prepared statement that a pooler could lose. Who wants to see statements (a debug cursor, an execute
wrapper, a patched connection) sees them: then a cursor is used as ever.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import generators, pq

from jobqueue.postgres.statements import Column, Statement
from jobqueue.values import loads

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # the server counts microseconds from here

#: How often a connection sends a statement before it has it prepared.
PREPARE_AFTER = 3

#: No such statement; its plan must not be used any more.
_OUT_OF_DATE = frozenset({b"26000", b"0A000"})
_NAME_TAKEN = b"42P05"

#: How often each connection has used each statement, by its name.
_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[bytes, int]] = WeakKeyDictionary()


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
    if not settings.USE_TZ:
        return False  # local times are the server's to tell: only it knows the session's zone
    raw = connection.connection
    if not isinstance(raw, psycopg.Connection):
        return False
    pgconn = raw.pgconn
    # Outside of autocommit the first statement has to begin the transaction, which cursors do.
    return pgconn.pipeline_status == pq.PipelineStatus.OFF and (
        raw.autocommit or pgconn.transaction_status == pq.TransactionStatus.INTRANS
    )


def fetch(
    connection: BaseDatabaseWrapper,
    statement: Statement,
    params: Sequence[bytes | None],
    columns: Sequence[Column],
) -> list[tuple[Any, ...]]:
    """Execute a statement on a connection that `is_open`, and return its rows.

    The parameters are in the server's text format.
    """
    raw: psycopg.Connection[Any] = connection.connection
    with connection.wrap_database_errors, raw.lock:
        result = _execute(raw, statement, params)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(result, encoding=raw.info.encoding)
    readers = [
        (place, _moment_reader(connection) if column is Column.MOMENT else _READERS[column])
        for place, column in enumerate(columns)
    ]
    get = result.get_value
    return [
        tuple(
            [None if (field := get(row, place)) is None else read(field) for place, read in readers]
        )
        for row in range(result.ntuples)
    ]


def _execute(
    raw: psycopg.Connection[Any], statement: Statement, params: Sequence[bytes | None]
) -> Any:
    pgconn = raw.pgconn
    alone = raw.autocommit and pgconn.transaction_status == pq.TransactionStatus.IDLE
    if alone and statement.has_one_plan and _is_prepared(raw, statement):
        pgconn.send_query_prepared(statement.name, params, result_format=pq.Format.BINARY)
        result = _wait(raw)
        if result.error_field(pq.DiagnosticField.SQLSTATE) not in _OUT_OF_DATE:
            return result
        # A pooler has given this connection another server's, or a migration has changed the table.
        # Nothing was executed, and there is no transaction that could have broken.
        _prepared[raw][statement.name] = -(10**9)
    pgconn.send_query_params(statement.numbered, params, result_format=pq.Format.BINARY)
    return _wait(raw)


def _is_prepared(raw: psycopg.Connection[Any], statement: Statement) -> bool:
    """Whether the server has parsed and planned the statement for this connection, which pays from
    its third use on."""
    prepared = _prepared.get(raw)
    if prepared is None:
        prepared = _prepared[raw] = {}
    uses = prepared.get(statement.name, 0)
    if uses == PREPARE_AFTER:
        raw.pgconn.send_prepare(statement.name, statement.numbered)
        result = _wait(raw)
        taken = result.error_field(pq.DiagnosticField.SQLSTATE) == _NAME_TAKEN
        if result.status != pq.ExecStatus.COMMAND_OK and not taken:
            return False
    prepared[statement.name] = uses + 1
    return uses >= PREPARE_AFTER


def _wait(raw: psycopg.Connection[Any]) -> Any:
    # As the driver's cursors do: a signal's handler runs meanwhile, and so do other greenlets.
    results = raw.wait(generators.execute(raw.pgconn))
    if not results:
        # The driver's cursors know of this case, too. What the server did with it nobody can tell.
        raise psycopg.OperationalError("the server has sent no result")
    return results[-1]


def _moment_reader(connection: BaseDatabaseWrapper) -> Callable[[bytes], datetime]:
    """Reads moments as the ORM would from this connection; those of one statement are mostly few."""
    known: dict[bytes, datetime] = {}
    zone = connection.timezone

    def read(field: bytes) -> datetime:
        moment = known.get(field)
        if moment is None:
            microseconds = int.from_bytes(field, "big", signed=True)
            moment = _EPOCH + timedelta(microseconds=microseconds)
            known[field] = moment = moment if zone is UTC else moment.astimezone(zone)
        return moment

    return read


def _document(field: bytes) -> Any:
    # The first byte is the format's version. Half of all arguments are empty.
    return {} if field == b"\x01{}" else loads(field[1:])


def _float(field: bytes) -> float:
    value: float = _FLOAT.unpack(field)[0]
    return value


_FLOAT = struct.Struct("!d")
_READERS: dict[Column, Callable[[bytes], Any]] = {
    Column.UUID: lambda field: UUID(bytes=field),
    Column.TEXT: bytes.decode,
    Column.JSON: _document,
    Column.INT: lambda field: int.from_bytes(field, "big", signed=True),
    Column.FLOAT: _float,
}
