"""What SQLite goes through for its statements, asked of SQLite itself."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db import connection

from jobqueue import sqlite
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]

OWNER, MOMENT, ID = uuid.uuid4().hex, "2026-01-01 00:00:00", uuid.uuid4().hex
LEASED = (OWNER, MOMENT, MOMENT, MOMENT, WORKER)
NOT_PAUSED = ("default", MOMENT)

#: Each statement with parameters for it, and the indexes by which it may reach jobs.
STATEMENTS: dict[str, tuple[str, tuple[Any, ...], set[str]]] = {
    "claim": (
        sqlite.CLAIM,
        (*LEASED, "default", *NOT_PAUSED, 8),
        {"id", "jobqueue_claimable"},
    ),
    "claim behind": (
        sqlite.CLAIM_BEHIND,
        (*LEASED, "default", 0, ID, *NOT_PAUSED, 8),
        {"id", "jobqueue_claimable"},
    ),
    "claim above": (
        sqlite.CLAIM_ABOVE,
        (*LEASED, "default", 0, *NOT_PAUSED, 8),
        {"id", "jobqueue_claimable"},
    ),
    "claim these": (
        sqlite.CLAIM_THESE,
        (*LEASED, f'["{ID}"]', "default", *NOT_PAUSED),
        {"id"},
    ),
    "complete": (sqlite.COMPLETE, (MOMENT, None, ID, 1, OWNER), {"id"}),
}


@pytest.fixture(params=[False, True], ids=["as made", "analysed"])
def among_others(request: pytest.FixtureRequest) -> None:
    """Jobs that are none of its business, with and without what ANALYZE knows of them."""
    JobFactory.create_batch(60, completed=True)
    JobFactory.create_batch(20)
    JobFactory.create_batch(5, scheduled=True)
    if request.param:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


@pytest.mark.usefixtures("among_others")
@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_goes_through_all_jobs_or_sorts_them(name):
    statement, params, wanted = STATEMENTS[name]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", params)
        steps = [row[3] for row in cursor.fetchall()]
    used = set()
    for step in steps:
        assert "TEMP B-TREE" not in step, steps
        if found := re.match(r"(\w+) job(?:queue_job)? ", step + " "):
            assert found[1] == "SEARCH", steps
            used.add("jobqueue_claimable" if "jobqueue_claimable" in step else "id")
            assert "jobqueue_claimable (queue_name=?" in step or "(id=?)" in step, steps
    assert used == wanted, steps
