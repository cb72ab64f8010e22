"""The short way to PostgreSQL keeps the promises of a cursor: its checks, its errors, its observers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    transaction,
)
from django.test.utils import CaptureQueriesContext

from jobqueue import lifecycle
from jobqueue.models import Job
from tests.lifecycle.acts import new_job
from tests.tasks_sample import noop

wire = pytest.importorskip("jobqueue.postgres.wire", reason="needs psycopg")

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that went the short way."""
    statements: list[bytes] = []
    fetch = wire.fetch

    def noted(connection: Any, statement: Any, *rest: Any) -> Any:
        statements.append(statement.numbered)
        return fetch(connection, statement, *rest)

    monkeypatch.setattr(wire, "fetch", noted)
    return statements


@contextmanager
def wrapped() -> Iterator[list[str]]:
    seen: list[str] = []

    def wrapper(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(wrapper):
        yield seen


def test_a_lone_job_goes_the_short_way(sent: list[bytes]) -> None:
    job = noop.enqueue(1, name="é")
    assert sum(b"INSERT" in each for each in sent) == 1
    row = Job.objects.get(pk=job.id)
    assert (row.args, row.kwargs, row.enqueued_at) == ([1], {"name": "é"}, job.enqueued_at)


def test_in_a_transaction_once_it_has_begun(sent: list[bytes]) -> None:
    with transaction.atomic():
        first = noop.enqueue()
        second = noop.enqueue()
        transaction.set_rollback(True)
    # The first statement of a transaction begins it, and a cursor sends that.
    assert sum(b"INSERT" in each for each in sent) == 1
    assert not Job.objects.filter(pk__in=[first.id, second.id]).exists()


def test_who_wants_to_see_statements_sees_them(sent: list[bytes]) -> None:
    with wrapped() as seen:
        noop.enqueue()
    with CaptureQueriesContext(connection) as captured:
        noop.enqueue()
    assert not any(b"INSERT" in each for each in sent)
    assert any("INSERT INTO jobqueue_job" in sql for sql in seen)
    assert any("INSERT INTO jobqueue_job" in query["sql"] for query in captured.captured_queries)


def test_not_on_an_event_loop(sent: list[bytes]) -> None:
    async def enqueue() -> None:
        noop.enqueue()

    noop.enqueue()
    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(enqueue())
    assert Job.objects.count() == 1


def test_not_in_another_threads_connection(sent: list[bytes]) -> None:
    noop.enqueue()
    errors: list[BaseException] = []

    def look() -> None:
        try:
            wire.is_open(connection_of_main)
        except DatabaseError as error:
            errors.append(error)

    connection_of_main = connection._connections[connection._alias]  # type: ignore[attr-defined]
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert "can only be used in that same thread" in str(errors[0])


def test_not_in_a_broken_transaction(sent: list[bytes]) -> None:
    with transaction.atomic():
        noop.enqueue()
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            noop.enqueue()


def test_errors_are_djangos(sent: list[bytes]) -> None:
    with pytest.raises(IntegrityError, match="jobqueue_priority") as caught:
        lifecycle.enqueue([new_job(priority=101)])
    assert caught.value.__cause__.sqlstate == "23514"  # type: ignore[union-attr]
    assert sum(b"INSERT" in each for each in sent) == 1
    noop.enqueue()  # the connection has taken no harm


def test_a_connection_that_was_cut_is_an_error_once(sent: list[bytes]) -> None:
    noop.enqueue()
    with connection.cursor() as cursor, pytest.raises((OperationalError, InterfaceError)):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises((OperationalError, InterfaceError)):
        noop.enqueue()
    connection.close()
    noop.enqueue()
    assert Job.objects.count() == 2


def test_no_answer_at_all_is_the_connections_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(pgconn: Any) -> Iterator[Any]:
        yield from ()
        return []

    with monkeypatch.context() as patched:
        patched.setattr(wire.generators, "execute", unanswered)
        with pytest.raises(OperationalError, match="sent no result"):
            noop.enqueue()
    connection.close()
    noop.enqueue()


def test_what_is_sent_often_is_prepared(sent: list[bytes]) -> None:
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    assert b"INSERT INTO jobqueue_job" in b"".join(prepared())
    noop.enqueue()
    assert Job.objects.count() == 2 * wire.PREPARE_AFTER + 1


def test_a_pooler_that_has_lost_what_was_prepared(sent: list[bytes]) -> None:
    """Behind PgBouncer the next statement may reach a server that never heard of it, or one where
    another client has prepared the same under the same name."""
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    assert Job.objects.count() == 4 * wire.PREPARE_AFTER
    wire._prepared.clear()
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    wire._prepared.clear()  # the name is taken now, by the same statement
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    assert Job.objects.count() == 8 * wire.PREPARE_AFTER


def test_a_migration_that_changes_what_was_prepared(sent: list[bytes]) -> None:
    for _ in range(2 * wire.PREPARE_AFTER):
        noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobqueue_job ALTER status TYPE text")
    try:
        noop.enqueue()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_job ALTER status TYPE varchar(10)")
    assert Job.objects.count() == 2 * wire.PREPARE_AFTER + 1


def prepared() -> list[bytes]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement.encode() for (statement,) in cursor.fetchall()]
