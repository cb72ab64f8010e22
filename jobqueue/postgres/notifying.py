"""How a wake-up is sent."""

from __future__ import annotations

from django.db import connections

from jobqueue.postgres.statements import Column, Statement, query

# A wake-up need not outlive a crash. Without this its commit would wait for the disk like an insert's.
NOTIFY = Statement(
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)::text",
    has_one_plan=True,
)

NOTIFY_IN_TRANSACTION = "SELECT pg_notify(%s, %s)"


def notify(using: str, channel: str, payload: str) -> None:
    """Send a payload on a channel, when the current transaction commits if there is one."""
    connection = connections[using]
    if not connection.in_atomic_block:
        query(connection, NOTIFY, (channel.encode(), payload.encode()), (Column.TEXT, Column.TEXT))
        return
    with connection.cursor() as cursor:
        cursor.execute(NOTIFY_IN_TRANSACTION, (channel, payload))
