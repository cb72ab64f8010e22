"""The system checks: settings that cannot work, and settings that one will regret.

Those of `check` open no connection; `check_connection` runs where Django's database checks do
(`migrate`, `runworker`, `check --database`). That a PostgreSQL server is new enough is not among
them: Django itself refuses one older than 14 when it connects.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.apps import AppConfig, apps
from django.core.cache import InvalidCacheBackendError, caches
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Dubious
from django.core.exceptions import ImproperlyConfigured
from django.core.management import find_commands, get_commands
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from jobqueue import conf
from jobqueue.conf import Problem

CODES: Final[dict[str, str]] = {
    "jobqueue.E001": "OPTIONS is not a dictionary.",
    "jobqueue.E002": "A key that nothing reads.",
    "jobqueue.E003": "An option of the wrong type.",
    "jobqueue.E004": "An option out of range.",
    "jobqueue.E005": "The heartbeat is not shorter than the lease.",
    "jobqueue.E006": "retention names something that is not a final status.",
    "jobqueue.E007": "Two aliases use the backend.",
    "jobqueue.E008": "database is not in DATABASES.",
    "jobqueue.E009": "The routers send jobqueue's models to another database.",
    "jobqueue.E010": "The database is neither PostgreSQL nor SQLite.",
    "jobqueue.E011": "The SQLite library is older than 3.35.",
    "jobqueue.E012": "PostgreSQL is reached through psycopg2 instead of psycopg 3.",
    "jobqueue.E013": "A backend in TASKS is jobqueue's, but the app is not installed.",
    "jobqueue.E014": "A task is atomic, but the queue's database is not the one it writes to.",
    "jobqueue.E015": "redis is not in CACHES.",
    "jobqueue.E016": "The cache named by redis is not one of django-redis's.",
    "jobqueue.W001": "No alias uses the backend.",
    "jobqueue.W002": "The heartbeat is longer than half of the lease.",
    "jobqueue.W003": "backoff_base is longer than backoff_max.",
    "jobqueue.W004": "The queue's database is not the one whose transactions enqueue could join.",
    "jobqueue.W005": "SQLite without write-ahead logging.",
    "jobqueue.W006": "SQLite without immediate transactions.",
    "jobqueue.W007": "Another app's command hides one of jobqueue's.",
}
"""Every code with what it is about; the page on operations prints this table.

E013 and E014 come from the backend's own `check`, which Django calls for each backend in `TASKS`.
"""

SQLITE_CURE: Final = (
    'In DATABASES, set "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": '
    '"PRAGMA journal_mode=WAL"}.'
)


def check(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """What the settings and the installed apps tell."""
    if not _asked(app_configs):
        return []
    found = [*conf.problems(), *_commands()]
    if conf.alias() is not None:
        found += _database(conf.options().database)
        found += _redis(conf.options().redis)
    return _messages(found)


def check_connection(
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """What only the queue's database itself can tell, if it is among those to be checked."""
    alias = conf.options().database
    if conf.alias() is None or not _asked(app_configs) or alias not in (databases or ()):
        return []
    return _messages(_journal(connections[alias]))


def _asked(app_configs: Sequence[AppConfig] | None) -> bool:
    return app_configs is None or any(each.label == "jobqueue" for each in app_configs)


def _messages(found: Iterable[Problem]) -> list[CheckMessage]:
    return [
        (Error if ".E" in each.code else Dubious)(each.message, hint=each.hint, id=each.code)
        for each in found
    ]


def _database(alias: str) -> Iterator[Problem]:
    if alias not in connections:
        yield Problem(
            "jobqueue.E008",
            f"The option database is {alias!r}, which is not in DATABASES.",
            f"It has: {', '.join(sorted(connections))}.",
        )
        return
    yield from _routing(alias)
    connection = connections[alias]
    if connection.vendor == "sqlite":
        yield from _sqlite(connection)
    elif connection.vendor == "postgresql":
        from django.db.backends.postgresql import psycopg_any

        if not psycopg_any.is_psycopg3:
            yield Problem(
                "jobqueue.E012",
                f"The queue's database {alias!r} is reached through psycopg2.",
                'jobqueue needs psycopg 3: pip install "psycopg[binary]".',
            )
    else:
        yield Problem(
            "jobqueue.E010",
            f"The queue's database {alias!r} is neither PostgreSQL nor SQLite, but "
            f"{connection.settings_dict['ENGINE']}.",
            "Keep the queue in a PostgreSQL or SQLite database: name it in the option database.",
        )


def _redis(alias: str | None) -> Iterator[Problem]:
    if alias is None:
        return
    if alias not in caches.settings:
        yield Problem(
            "jobqueue.E015",
            f"The option redis is {alias!r}, which is not in CACHES.",
            f"It has: {', '.join(sorted(caches.settings))}.",
        )
        return
    try:
        served = callable(getattr(getattr(caches[alias], "client", None), "get_client", None))
    except (ImportError, InvalidCacheBackendError, ImproperlyConfigured) as error:
        served, why = False, f" ({error})"
    else:
        why = ""
    if not served:
        yield Problem(
            "jobqueue.E016",
            f"The cache {alias!r}, named by the option redis, is not django-redis's{why}.",
            'Its BACKEND must be "django_redis.cache.RedisCache": pip install '
            '"django-jobqueue[redis]".',
        )


def _routing(alias: str) -> Iterator[Problem]:
    job = apps.get_model("jobqueue", "Job")
    answer = router.db_for_write(job)
    cure = 'Put "jobqueue.routers.JobQueueRouter" first in DATABASE_ROUTERS.'
    if answer != alias:
        yield Problem(
            "jobqueue.E009",
            f"The option database is {alias!r}, but the routers send jobs to {answer!r}.",
            cure,
        )
    elif not router.allow_migrate_model(alias, job):
        yield Problem(
            "jobqueue.E009",
            f"The routers do not let jobqueue's tables be made in its database {alias!r}.",
            cure,
        )
    # An empty "default" is Django's way to say that every model is routed elsewhere.
    if alias != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].vendor != "unknown":
        yield Problem(
            "jobqueue.W004",
            f"The queue's database is {alias!r}, so a job is not enqueued in the transaction of "
            f"code that writes to {DEFAULT_DB_ALIAS!r}: it stays when that is rolled back, and may "
            "start before it is committed.",
            "Keep the queue in the database that the enqueuing code writes to, or enqueue from "
            "transaction.on_commit() and silence this check with SILENCED_SYSTEM_CHECKS.",
        )


def _sqlite(connection: BaseDatabaseWrapper) -> Iterator[Problem]:
    version = connection.get_database_version()
    if version < (3, 35):
        yield Problem(
            "jobqueue.E011",
            f"The SQLite library is {'.'.join(map(str, version))}; jobqueue needs 3.35 or newer.",
            "Use a newer Python or system library, or PostgreSQL.",
        )
    mode = str(connection.settings_dict["OPTIONS"].get("transaction_mode"))
    name = str(connection.settings_dict["NAME"])
    # A database in memory belongs to one process: there is no other to collide with.
    in_memory = name == ":memory:" or "mode=memory" in name
    if mode.upper() not in {"IMMEDIATE", "EXCLUSIVE"} and not in_memory:
        yield Problem(
            "jobqueue.W006",
            f"The queue's SQLite database {connection.alias!r} does not begin its transactions "
            "with IMMEDIATE: one that reads and then writes fails with "
            '"database is locked" at once, whatever the timeout.',
            SQLITE_CURE,
        )


def _journal(connection: BaseDatabaseWrapper) -> Iterator[Problem]:
    # Asked, not read from the settings: the mode lasts once it is set, by whatever way, and not
    # every file system can do it. (Reading the file's header instead would, when it is closed,
    # drop the locks that SQLite holds on it in this process.)
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    if mode not in {"wal", "memory"}:
        yield Problem(
            "jobqueue.W005",
            f"The queue's SQLite database {connection.alias!r} does not use write-ahead logging "
            f"(its journal_mode is {mode}): readers and writers block each other.",
            SQLITE_CURE,
        )


def _commands() -> Iterator[Problem]:
    ours = apps.get_app_config("jobqueue")
    current = get_commands()
    for name in find_commands(os.path.join(ours.path, "management")):
        if current.get(name, ours.name) != ours.name:
            yield Problem(
                "jobqueue.W007",
                f"`manage.py {name}` runs the command of {current[name]!r} instead of jobqueue's.",
                f'Put "jobqueue" above {current[name]!r} in INSTALLED_APPS.',
            )
