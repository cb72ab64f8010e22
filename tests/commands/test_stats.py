"""`jobs stats`: numbers for people and for scripts."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from jobqueue import tallies
from jobqueue.management import stats
from jobqueue.models import Tally, Worker
from tests.commands.running import lines_of, manage, many, run, running, shows
from tests.factories import JobFactory, QueueFactory, WorkerFactory, ago, now


@pytest.fixture
def busy_site(db: None) -> Worker:
    worker = WorkerFactory(slots=8, queues=["mail"], memory=50_000_000)
    silent = WorkerFactory(slots=4, heartbeat_at=ago(300), asked="stop", asked_at=ago(200))
    WorkerFactory(state=Worker.State.GONE)
    JobFactory(run_after=ago(500))
    JobFactory(run_after=ago(5))
    JobFactory.create_batch(3, scheduled=True, queue_name="mail")
    JobFactory.create_batch(2, processing=True, lease_owner=worker.pk, queue_name="mail")
    JobFactory(stopping=True, lease_owner=worker.pk)
    JobFactory(processing=True, lease_owner=silent.pk)
    JobFactory(failed=True, queue_name="only failed")
    JobFactory(completed=True, queue_name="only completed")
    JobFactory(cancelled=True)
    QueueFactory(name="empty", paused_at=now(), paused_by="ann", pause_reason="a move")
    QueueFactory(name="was paused", paused_at=ago(60), paused_until=ago(30))
    for seconds in (60, 1_800, 5_000):
        Tally.objects.create(
            span=60,
            starts_at=tallies.read("1h").bars[-1].starts_at - timedelta(seconds=seconds),
            queue_name="default",
            task_path="a.b",
            completed=2,
            retried=seconds == 60,
            failed=1,
        )
    return worker


@shows("jobs stats --json")
def test_stats_json(busy_site: Worker) -> None:
    ran = run("jobs", "stats", "--json").json
    assert list(ran) == ["at", "queues", "workers", "slots"]
    queues = {each.pop("queue"): each for each in ran["queues"]}
    assert list(queues) == ["default", "empty", "mail", "only failed", "was paused"]
    default = queues["default"]
    assert 500 <= default.pop("oldest_wait") < 560
    assert default == {
        "queued": 2,
        "scheduled": 0,
        "processing": 1,
        "stopping": 1,
        "failed": 0,
        "paused": False,
        "paused_until": None,
        "paused_by": "",
        "pause_reason": "",
        "last_hour": {"completed": 4, "retried": 1, "failed": 2},
    }
    assert (queues["mail"]["scheduled"], queues["mail"]["processing"]) == (3, 2)
    assert queues["mail"]["oldest_wait"] is None
    assert queues["only failed"]["failed"] == 1
    assert (queues["empty"]["paused"], queues["empty"]["paused_by"]) == (True, "ann")
    assert queues["was paused"]["paused"] is False
    assert ran["slots"] == {"total": 12, "busy": 4}
    workers = {each["id"]: each for each in ran["workers"]}
    assert len(workers) == 2
    assert workers[str(busy_site.pk)]["busy"] == 3
    assert workers[str(busy_site.pk)]["queues"] == ["mail"]
    assert sorted(each["silent"] for each in workers.values()) == [False, True]
    assert sorted(each["asked"] for each in workers.values()) == ["", "stop"]
    assert sorted(each["memory"] or 0 for each in workers.values()) == [0, 50_000_000]


def test_stats_for_people(busy_site: Worker) -> None:
    ran = run("jobs", "stats")
    assert re.search(r"^default +2 +0 +1 +1 +0 +8m$", ran.out, re.MULTILINE)
    assert re.search(r"^empty +0 +0 +0 +0 +0 +yes$", ran.out, re.MULTILINE)
    assert re.search(r"^host:\S+ +running +3 +8 +0s ago +mail$", ran.out, re.MULTILINE)
    assert re.search(r"running, asked to stop .*5m ago, silent +all$", ran.out, re.MULTILINE)
    assert "In the last hour: 4 completed, 1 retried, 2 failed" in ran.out
    assert "2 workers, 4 of 12 slots busy" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 120


@pytest.mark.django_db
def test_stats_of_nothing() -> None:
    ran = run("jobs", "stats")
    assert "No queues yet" in ran.out
    assert "No workers." in ran.out


@pytest.mark.django_db
def test_stats_reads_no_job_that_ended_well() -> None:
    """Every query about jobs is served by a partial index; the parameters are bound as always."""
    JobFactory.create_batch(5)
    JobFactory.create_batch(5, failed=True)
    many(3_000, JobFactory(completed=True))
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
    with connection.execute_wrapper(note):
        stats.gather()
    about_jobs = [(sql, params) for sql, params in asked if '"jobqueue_job"' in sql]
    assert len(about_jobs) == 4
    word = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
    for sql, params in about_jobs:
        with connection.cursor() as cursor:
            cursor.execute(word + sql, params)
            plan = "\n".join(str(row) for row in cursor.fetchall())
        assert re.search(r"jobqueue_(claimable|due|failed|leased)", plan), plan
        assert "Seq Scan" not in plan


@pytest.mark.django_db(transaction=True)
@shows("jobs stats --watch")
def test_stats_watch(child_environment: Callable[..., dict[str, str]]) -> None:
    words = ("jobs", "stats", "--json", "--watch", "0.1")
    with running(manage(child_environment(), *words)) as process:
        seen = map(json.loads, lines_of(process.stdout))
        assert next(seen)["queues"] == []
        JobFactory()
        assert any(each["queues"] for each in seen)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
