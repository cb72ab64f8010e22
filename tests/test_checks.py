"""The system checks: each code is produced by what it is about, and by nothing else."""

import contextlib
import sqlite3.dbapi2
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, Tags, run_checks
from django.core.management import get_commands
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql import psycopg_any
from django.test import override_settings

from jobqueue import backend, checks, conf
from jobqueue.compat import task_backends
from jobqueue.routers import JobQueueRouter

CURE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL",
}


class Nowhere:
    """A router that lets no table be made."""

    def allow_migrate(self, *args: Any, **hints: Any) -> bool:
        return False


class Room:
    """What a case may arrange; all of it is undone afterwards."""

    def __init__(self, stack: contextlib.ExitStack, patch: pytest.MonkeyPatch, path: Path) -> None:
        self.stack = stack
        self.patch = patch
        self.path = path

    def settings(self, **changes: Any) -> None:
        self.stack.enter_context(override_settings(**changes))

    def options(self, **options: Any) -> None:
        self.settings(TASKS={"default": {"BACKEND": conf.BACKEND, "OPTIONS": options}})

    def database(self, engine: str = "sqlite3", routers: Any = None, **given: Any) -> None:
        """A database `queue` that holds the queue."""
        params = {"ENGINE": f"django.db.backends.{engine}", "NAME": self.path / "q.db", **given}
        complete = connections.configure_settings({"default": {}, "queue": params})
        self.patch.setitem(connections.settings, "queue", complete["queue"])
        self.stack.callback(self._forget)
        self.settings(DATABASE_ROUTERS=[JobQueueRouter()] if routers is None else routers)
        self.options(database="queue")

    def _forget(self) -> None:
        # SQLite's own close() keeps a database in memory open.
        BaseDatabaseWrapper.close(connections["queue"])
        del connections["queue"]

    def app(self, command: str) -> None:
        """An app above all others, with one command and named for it."""
        app = f"app_with_{command}"
        folder = self.path / app / "management" / "commands"
        folder.mkdir(parents=True)
        (folder / f"{command}.py").touch()
        for package in (folder, folder.parent, folder.parent.parent):
            (package / "__init__.py").touch()
        self.patch.syspath_prepend(self.path)
        names = [each.name for each in apps.get_app_configs()]
        forget = get_commands.cache_clear  # type: ignore[attr-defined]
        self.stack.callback(forget)
        self.settings(INSTALLED_APPS=[app, *names])
        forget()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Room]:
    with contextlib.ExitStack() as stack:
        made = Room(stack, monkeypatch, tmp_path)
        made.options()
        yield made


def elsewhere(room: Room) -> None:
    room.database(routers=[], OPTIONS=CURE)


def old_sqlite(room: Room) -> None:
    room.database(OPTIONS=CURE)
    room.patch.setattr(sqlite3.dbapi2, "sqlite_version_info", (3, 34, 1))


def old_driver(room: Room) -> None:
    room.database("postgresql")
    assert connections["queue"].vendor == "postgresql"  # It is imported with the driver it has.
    room.patch.setattr(psycopg_any, "is_psycopg3", False)


def two_aliases(room: Room) -> None:
    room.settings(TASKS={name: {"BACKEND": conf.BACKEND} for name in ("default", "second")})


def bare_options(room: Room) -> None:
    room.settings(TASKS={"default": {"BACKEND": conf.BACKEND, "OPTIONS": None}})


def atomic_task(room: Room) -> None:
    room.database(OPTIONS=CURE)
    room.patch.setattr(backend, "atomic_tasks", {"shop.tasks.pay"})


def no_app(room: Room) -> None:
    room.settings(INSTALLED_APPS=["django.contrib.contenttypes"])


OF_THE_BACKEND = {"jobqueue.E013", "jobqueue.E014"}

CASES: dict[str, tuple[Callable[[Room], None], str]] = {
    "jobqueue.E001": (bare_options, "must be a dictionary"),
    "jobqueue.E002": (lambda room: room.options(leese=1), "'leese'"),
    "jobqueue.E003": (lambda room: room.options(lease="1"), '"lease"'),
    "jobqueue.E004": (lambda room: room.options(lease=-1), '"lease"'),
    "jobqueue.E005": (lambda room: room.options(lease=2, heartbeat=3), "heartbeat (3 s)"),
    "jobqueue.E006": (lambda room: room.options(retention={"done": 1}), "'done'"),
    "jobqueue.E007": (two_aliases, "default, second"),
    "jobqueue.E008": (lambda room: room.options(database="typo"), "'typo'"),
    "jobqueue.E009": (elsewhere, "'queue', but the routers send jobs to 'default'"),
    "jobqueue.E010": (lambda room: room.database("dummy"), "django.db.backends.dummy"),
    "jobqueue.E011": (old_sqlite, "3.34.1"),
    "jobqueue.E012": (old_driver, "psycopg2"),
    "jobqueue.E013": (no_app, "not installed"),
    "jobqueue.E014": (atomic_task, "shop.tasks.pay"),
    "jobqueue.E015": (lambda room: room.options(redis="typo"), "'typo', which is not in CACHES"),
    "jobqueue.E016": (lambda room: room.options(redis="default"), "is not django-redis's"),
    "jobqueue.W001": (lambda room: room.settings(TASKS={}), "No alias"),
    "jobqueue.W002": (lambda room: room.options(lease=4, heartbeat=3), "heartbeat (3 s)"),
    "jobqueue.W003": (lambda room: room.options(backoff_max=1), "backoff_base (2 s)"),
    "jobqueue.W004": (lambda room: room.database(OPTIONS=CURE), "'queue'"),
    "jobqueue.W005": (lambda room: room.database(), "journal_mode is delete"),
    "jobqueue.W006": (lambda room: room.database(), "IMMEDIATE"),
    "jobqueue.W007": (lambda room: room.app("runworker"), "'app_with_runworker'"),
}


def own(messages: list[CheckMessage]) -> list[CheckMessage]:
    """Ours, without what the database that this test run happens to use is about."""
    return [each for each in messages if str(each.id).startswith("jobqueue.")]


def test_every_code_has_a_case() -> None:
    assert set(CASES) == set(checks.CODES)


@pytest.mark.parametrize("code", checks.CODES)
def test_each_code_is_produced(code: str, room: Room, django_db_blocker: Any) -> None:
    before = {each.id for each in checks.check()}
    assert code not in before
    arrange, words = CASES[code]
    arrange(room)
    # Without a connection: the test run would refuse one.
    found = list(task_backends["default"].check()) if code in OF_THE_BACKEND else checks.check()
    if code == "jobqueue.W005":
        with django_db_blocker.unblock():
            found = checks.check_connection(databases=["queue"])
    (message,) = [each for each in found if each.id == code]
    assert words in message.msg
    assert message.hint
    assert message.is_serious() == (".E" in code)
    # A database of its own brings its own warning, and a bare SQLite has two faults.
    allowed = before | {code, "jobqueue.W004"}
    assert {each.id for each in found} <= allowed


def test_a_sound_configuration_has_no_problem(room: Room, django_db_blocker: Any) -> None:
    room.database(OPTIONS=CURE)
    with django_db_blocker.unblock():
        assert checks.check_connection(databases=["queue"]) == []
    assert {each.id for each in checks.check()} == {"jobqueue.W004"}


def test_wal_that_was_set_by_hand_counts(room: Room, django_db_blocker: Any) -> None:
    room.database(OPTIONS={"transaction_mode": "immediate"})
    with contextlib.closing(sqlite3.dbapi2.connect(room.path / "q.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    with django_db_blocker.unblock():
        assert checks.check_connection(databases=["queue"]) == []
    assert {each.id for each in checks.check()} == {"jobqueue.W004"}


def test_a_database_in_memory_needs_neither(room: Room, django_db_blocker: Any) -> None:
    room.database(NAME="file:queue?mode=memory&cache=shared")
    with django_db_blocker.unblock():
        assert checks.check_connection(databases=["queue"]) == []
    assert {each.id for each in checks.check()} == {"jobqueue.W004"}


def test_a_router_that_forbids_the_tables_is_found(room: Room) -> None:
    room.database(routers=[Nowhere(), JobQueueRouter()], OPTIONS=CURE)
    (found,) = [each for each in checks.check() if each.id == "jobqueue.E009"]
    assert "tables" in found.msg
    assert "JobQueueRouter" in str(found.hint)


def test_a_database_of_its_own_beside_an_empty_default_is_sound(room: Room) -> None:
    room.database(OPTIONS=CURE)
    empty = connections.configure_settings({"default": {}})["default"]
    room.stack.callback(connections.__setitem__, "default", connections["default"])
    room.patch.setitem(connections.settings, "default", empty)
    del connections["default"]
    assert checks.check() == []


def test_other_databases_are_not_looked_at(room: Room) -> None:
    room.database()
    assert checks.check_connection(databases=["default"]) == []
    assert checks.check_connection(databases=None) == []


def test_other_apps_are_not_answered_for(room: Room) -> None:
    room.options(leese=1)
    other = [apps.get_app_config("contenttypes")]
    assert checks.check(app_configs=other) == []
    assert checks.check_connection(app_configs=other, databases=["default"]) == []
    both = [*other, apps.get_app_config("jobqueue")]
    assert "jobqueue.E002" in {each.id for each in checks.check(app_configs=both)}


def test_a_command_of_another_name_hides_nothing(room: Room) -> None:
    room.app("walkworker")
    assert "jobqueue.W007" not in {each.id for each in checks.check()}


def test_the_app_registers_them(room: Room, django_db_blocker: Any) -> None:
    room.database()
    assert "jobqueue.W006" in {each.id for each in own(run_checks(tags=["jobqueue"]))}
    with django_db_blocker.unblock():
        asked = own(run_checks(tags=[Tags.database], databases=["queue"]))
    assert {each.id for each in asked} == {"jobqueue.W005"}
