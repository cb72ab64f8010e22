"""What an upgrade does to a site that is at work."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

FIRST = "0001_initial"


def later_migrations() -> list[str]:
    names = MigrationLoader(None).disk_migrations
    return sorted(name for app, name in names if app == "jobqueue" and name != FIRST)


@pytest.mark.django_db
@pytest.mark.postgres  # SQLite's way of changing a table is not for a site at work
@pytest.mark.parametrize("name", later_migrations())
def test_the_table_of_jobs_is_not_touched(name: str) -> None:
    """It may have millions of rows: a column, an index or a constraint there would need another way
    than a plain migration."""
    out = StringIO()
    call_command("sqlmigrate", "jobqueue", name, stdout=out)
    assert not re.search(r'"jobqueue_job(?:log)?"', out.getvalue())


@pytest.mark.django_db
@pytest.mark.postgres
def test_workers_of_the_version_before_can_still_say_who_they_are() -> None:
    """While hosts are upgraded one by one, old ones insert rows that lack the newer columns."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobqueue_worker (id, host, pid, queues, slots, version, started_at,"
            " heartbeat_at, state) VALUES (gen_random_uuid(), 'host', 1, '[]', 8, '0.1.0', now(),"
            " now(), 'running')"
        )
        cursor.execute("SELECT asked, asked_by, memory FROM jobqueue_worker")
        assert cursor.fetchall() == [("", "", None)]
