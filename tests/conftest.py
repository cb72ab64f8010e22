"""What every test may use: which database this is, private servers, a process's environment."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.db import connection, connections

from jobqueue.ready import Breaker, Line, Shelf, pushing, shelf_on
from tests.servers import PrivatePostgres, PrivateRedis, ServerUnavailable

PROJECT = Path(__file__).resolve().parent.parent
VENDORS = {"postgres": ("postgresql", "needs PostgreSQL"), "sqlite": ("sqlite", "needs SQLite")}


def pytest_report_header() -> list[str]:
    version = f" {sqlite3.sqlite_version}" if connection.vendor == "sqlite" else ""
    return [f"database: {connection.vendor}{version}"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `postgres` or `sqlite` on another database. What drives a browser comes
    last: it leaves an event loop in this thread."""
    items.sort(key=lambda item: "browser" in item.path.parent.name)
    for item in items:
        for marker, (vendor, reason) in VENDORS.items():
            if item.get_closest_marker(marker) and connection.vendor != vendor:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def database_vendor() -> str:
    """`postgresql` or `sqlite`."""
    return connection.vendor


@pytest.fixture
def private_postgres() -> Iterator[PrivatePostgres]:
    """A running PostgreSQL of this test alone, empty: to stop, restart, cut and kill."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def private_redis() -> Iterator[PrivateRedis]:
    """A running Redis of this test alone; where there is none to be had the test is skipped."""
    try:
        server = PrivateRedis()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def on_redis(
    private_redis: PrivateRedis, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shelf]:
    """The queue uses a Redis of this test alone, here and in the processes that the test starts.

    Its sets, over a line that the test may use as it likes; the server is `private_redis`.
    """
    with use_redis(private_redis.url, settings, monkeypatch) as shelf:
        yield shelf


@contextmanager
def use_redis(url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """Have the queue use the Redis at `url`."""
    prefix = f"test-{secrets.token_hex(4)}"
    monkeypatch.setenv("JOBQUEUE_TEST_REDIS", url)
    monkeypatch.setenv("JOBQUEUE_TEST_REDIS_PREFIX", prefix)
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "queue": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
    }
    default = settings.TASKS["default"]
    options = default.get("OPTIONS", {}) | {"redis": "queue", "redis_prefix": prefix}
    settings.TASKS = {"default": default | {"OPTIONS": options}}
    pushing.forget()
    shelf = shelf_on(Line("queue", Breaker()))
    try:
        yield shelf
    finally:
        shelf.line.close()
        pushing.forget()


@pytest.fixture
def on_private_postgres(
    private_postgres: PrivatePostgres, django_db_blocker: Any
) -> Iterator[PrivatePostgres]:
    """`private_postgres`, migrated, and Django's default database during this test.

    It takes the place of `db` and `transactional_db`, and its commits are real. Mark the test
    `postgres`.
    """
    # Every thread's connection reads this one dictionary.
    database = connections.databases["default"]
    before = dict(database)
    with django_db_blocker.unblock():
        connection.close()
        database.update(
            NAME="postgres",
            USER="jobqueue",
            PASSWORD=private_postgres.password,
            HOST="127.0.0.1",
            PORT=str(private_postgres.port),
        )
        try:
            call_command("migrate", verbosity=0, interactive=False)
            yield private_postgres
        finally:
            connection.close()
            database.clear()
            database.update(before)


@pytest.fixture
def child_environment() -> Callable[..., dict[str, str]]:
    """Makes the environment of a process that is to use this test's database and settings.

    `child_environment(options={"lease": 2}, JOBQUEUE_TEST_USE_TZ="0")`: `options` are the backend's
    OPTIONS there, other names are variables. The test's rows must be committed to be seen: take
    `transactional_db` or `on_private_postgres`.
    """

    def make(options: dict[str, Any] | None = None, **variables: str) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": database_url(),
            "JOBQUEUE_TEST_OPTIONS": json.dumps(options or {}),
            "PYTHONPATH": str(PROJECT),
            "PYTHONUNBUFFERED": "1",
            **variables,
        }

    return make


def database_url() -> str:
    """The URL of the default database as it is now: the test database, or a private server's."""
    database = {name: str(value or "") for name, value in connection.settings_dict.items()}
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    user, password, host, name = (
        quote(database[key], safe="") for key in ("USER", "PASSWORD", "HOST", "NAME")
    )
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port = f":{database['PORT']}" if database["PORT"] else ""
    return f"postgres://{login}{host}{port}/{name}"
