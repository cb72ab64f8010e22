"""The router: the queue's tables stand in its database, and nothing else does."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router
from django.test import override_settings

from jobqueue import conf
from jobqueue.models import Job, JobLog
from jobqueue.routers import JobQueueRouter


@pytest.fixture(autouse=True)
def two_databases(monkeypatch: pytest.MonkeyPatch) -> Any:
    queue = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    complete = connections.configure_settings({"default": {}, "queue": queue})["queue"]
    monkeypatch.setitem(connections.settings, "queue", complete)
    tasks = {"default": {"BACKEND": conf.BACKEND, "OPTIONS": {"database": "queue"}}}
    with override_settings(TASKS=tasks, DATABASE_ROUTERS=["jobqueue.routers.JobQueueRouter"]):
        yield


def test_every_model_of_the_queue_goes_to_its_database() -> None:
    for model in apps.get_app_config("jobqueue").get_models():
        assert router.db_for_read(model) == "queue"
        assert router.db_for_write(model) == "queue"
        assert router.allow_migrate_model("queue", model)
        assert not router.allow_migrate_model("default", model)


def test_it_has_no_opinion_about_others() -> None:
    ours = JobQueueRouter()
    assert ours.db_for_read(ContentType) is None
    assert ours.db_for_write(ContentType) is None
    assert ours.allow_migrate("default", "contenttypes") is None
    assert ours.allow_migrate("queue", "contenttypes") is None
    assert ours.allow_relation(ContentType(), ContentType()) is None
    assert ours.allow_relation(Job(), ContentType()) is None


def test_the_queue_relates_to_itself() -> None:
    assert JobQueueRouter().allow_relation(Job(), JobLog()) is True


def test_it_follows_the_options() -> None:
    with override_settings(TASKS={"default": {"BACKEND": conf.BACKEND}}):
        assert router.db_for_write(Job) == "default"
        assert router.allow_migrate("default", "jobqueue")
        assert not router.allow_migrate("queue", "jobqueue")


SITE = """
import django
from django.conf import settings

def sqlite(name):
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": name}

settings.configure(
    DATABASES={"default": sqlite("app.db"), "queue": sqlite("queue.db")},
    DATABASE_ROUTERS=["jobqueue.routers.JobQueueRouter"],
    INSTALLED_APPS=["jobqueue", "django.contrib.contenttypes"],
    TASKS={"default": {"BACKEND": "jobqueue.backend.JobQueueBackend",
                       "OPTIONS": {"database": "queue"}}},
)
django.setup()

from django.core.management import call_command
call_command("migrate", database="default", verbosity=0)
call_command("migrate", database="queue", verbosity=0)

import site_tasks
result = site_tasks.hello.enqueue(1)
assert site_tasks.hello.get_result(result.id).args == [1]
"""

TASKS = """
from jobqueue import task

@task
def hello(number):
    pass
"""


def test_two_sqlite_files_hold_what_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "site_main.py").write_text(SITE)
    (tmp_path / "site_tasks.py").write_text(TASKS)
    root = Path(conf.__file__).parent.parent
    subprocess.run(
        [sys.executable, "site_main.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        check=True,
    )
    made = {}
    for name in ("app", "queue"):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            made[name] = {row[0] for row in rows}
            if name == "queue":
                assert connection.execute("SELECT count(*) FROM jobqueue_job").fetchone() == (1,)
    models = apps.get_app_config("jobqueue").get_models()
    tables = {each._meta.db_table for each in models if each._meta.managed}
    assert tables <= made["queue"]
    assert not tables & made["app"]
    assert "django_content_type" in made["app"]
