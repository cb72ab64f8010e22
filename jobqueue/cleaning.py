"""How a connection is passed from one job to the next: so that the next cannot tell."""

from __future__ import annotations

import re
import select
from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


def close_if_dead(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that has ended unseen: by the server while no job used it, or by a job
    without Django's knowledge. Without CONN_HEALTH_CHECKS the next job would find out."""
    if connection.connection is not None and _is_dead(connection):
        connection.close()


def _is_dead(connection: BaseDatabaseWrapper) -> bool:
    raw = connection.connection
    if connection.vendor == "postgresql":
        # What the server says at the end waits to be read.
        return bool(raw.closed) or (
            _has_something_to_say(raw.fileno()) and not connection.is_usable()
        )
    if connection.vendor == "sqlite":
        try:
            raw.total_changes  # noqa: B018  # it asks the connection, not the file
        except connection.Database.ProgrammingError:  # type: ignore[attr-defined]
            return True
    return False


def _has_something_to_say(descriptor: int) -> bool:
    """Whether there is something to read; a round trip is only worth while then."""
    poll = select.poll()  # select() fails for the descriptors of a process that has many
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


#: The beginnings of statements that change a session beyond its transaction.
_SESSION = re.compile(
    r"\s*(?:SET\s+(?!LOCAL|TRANSACTION|CONSTRAINTS)|RESET\s|LISTEN\s|PREPARE\s|PRAGMA\s.*[=(]"
    r"|CREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP|SELECT\s+(?:pg_catalog\.)?(?:set_config|pg_(?:try_)?advisory_lock))",
    re.IGNORECASE,
)


def _changes_session(sql: Any) -> bool:
    # Composed statements of psycopg's are not looked into. A semicolon in a text does no harm.
    return not isinstance(sql, str) or any(map(_SESSION.match, sql.split(";")))


class Watch:
    """Sees whether a task changes the session of a connection, and leaves no trace of the task."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._session_changed = False
        connection.execute_wrappers.append(self)

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        self._session_changed = self._session_changed or _changes_session(sql)
        return execute(sql, params, many, context)

    def clean(self) -> None:
        """Close the connection unless the next job could not tell it from a new one.

        As at the end of a request, it is closed when it is old or broken; and also when the task
        has left it inside a transaction or out of autocommit, or has changed its session.
        """
        connection = self._connection
        connection.execute_wrappers[:] = [
            wrapper for wrapper in connection.execute_wrappers if wrapper is not self
        ]
        connection.queries_log.clear()
        if connection.in_atomic_block or connection.needs_rollback or self._session_changed:
            # Closed "in a block" it could not be opened again.
            connection.in_atomic_block = connection.closed_in_transaction = False
            connection.close()
        else:
            connection.close_if_unusable_or_obsolete()
