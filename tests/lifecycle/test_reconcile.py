"""Reconcile: every kind of disagreement is found, counted and repaired, and none stops the pass."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from jobqueue import lifecycle, reconcile
from jobqueue.attempts import Ending
from jobqueue.findings import Finding
from jobqueue.lifecycle import Note
from jobqueue.models import Job, JobLog, Status, Worker
from jobqueue.reconcile import KINDS, sweep
from tests.factories import JobFactory, WorkerFactory, ago
from tests.lifecycle.acts import (
    WORKER,
    claimed,
    events,
    expire,
    held,
    local_time_too,
    make_due,
    outcome,
    picture,
    row,
    together,
)


def lost() -> Job:
    return JobFactory(processing=True, lease_expires_at=ago(1))


def stopping() -> Job:
    return JobFactory(stopping=True, lease_expires_at=ago(1))


def due() -> Job:
    return JobFactory(scheduled=True, run_after=ago(1))


def silent() -> Worker:
    return WorkerFactory(heartbeat_at=ago(31))


def gone() -> Worker:
    return WorkerFactory(heartbeat_at=ago(86_401), state=Worker.State.GONE)


#: For each kind: a row that disagrees, one that does not, and whether the first is right now.
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], bool]]] = {
    "lost": (
        lost,
        lambda: JobFactory(processing=True),
        lambda job: (row(job).status, events(job)) == ("scheduled", ["lost"]),
    ),
    "stopping": (
        stopping,
        lambda: JobFactory(stopping=True),
        lambda job: (row(job).lease_owner, events(job)) == (None, ["repaired"]),
    ),
    "due": (
        due,
        lambda: JobFactory(scheduled=True),
        lambda job: row(job).status == Status.QUEUED,
    ),
    "silent": (
        silent,
        lambda: WorkerFactory(heartbeat_at=ago(25)),
        lambda worker: Worker.objects.get(pk=worker.pk).state == Worker.State.GONE,
    ),
    "gone": (
        gone,
        lambda: WorkerFactory(heartbeat_at=ago(86_300), state=Worker.State.GONE),
        lambda worker: not Worker.objects.filter(pk=worker.pk).exists(),
    ),
}


def found(findings: list[Finding]) -> dict[str, tuple[int, int]]:
    return {each.kind: (each.found, each.repaired) for each in findings if each.found}


def test_every_kind_is_among_the_cases():
    assert list(CASES) == [kind.name for kind in KINDS]


@pytest.mark.django_db
class TestKinds:
    @local_time_too
    @pytest.mark.parametrize("kind", CASES)
    def test_it_is_repaired_and_nothing_else_is_touched(self, kind):
        wrong, right, repaired = CASES[kind]
        first, second, sound = wrong(), wrong(), right()
        before = type(sound).objects.filter(pk=sound.pk).values().get()
        findings = sweep()
        assert found(findings) == {kind: (2, 2)}
        assert repaired(first)
        assert repaired(second)
        assert type(sound).objects.filter(pk=sound.pk).values().get() == before
        assert found(sweep()) == {}

    @pytest.mark.parametrize("kind", CASES)
    def test_a_dry_run_only_counts(self, kind):
        wrong, _, _ = CASES[kind]
        each = wrong()
        before = type(each).objects.filter(pk=each.pk).values().get()
        assert found(sweep(dry_run=True)) == {kind: (1, 0)}
        assert type(each).objects.filter(pk=each.pk).values().get() == before
        assert JobLog.objects.count() == 0

    def test_all_at_once_in_words(self):
        for wrong, _, _ in CASES.values():
            wrong()
        findings = sweep()
        assert [(each.kind, each.found, each.repaired, each.left) for each in findings] == [
            (kind, 1, 1, {}) for kind in CASES
        ]
        assert all(each.what for each in findings)

    def test_no_more_than_the_limit(self, monkeypatch):
        for _ in range(5):
            due()
        assert found(sweep(limit=3, dry_run=True)) == {"due": (3, 0)}
        assert found(sweep(limit=3)) == {"due": (3, 3)}
        monkeypatch.setattr(reconcile, "BATCH", 1)
        assert found(sweep()) == {"due": (2, 2)}

    def test_without_taking_leases(self):
        for wrong, _, _ in CASES.values():
            wrong()
        findings = sweep(take_leases=False)
        assert [each.kind for each in findings] == ["due", "silent", "gone"]
        assert Job.objects.filter(lease_owner__isnull=False).count() == 2

    def test_a_worker_is_silent_after_as_long_as_a_lease(self, settings):
        settings.TASKS = {
            "default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": {"lease": 300}}
        }
        silent()
        assert found(sweep()) == {}


@contextmanager
def refusing(table: str, pk: uuid.UUID) -> Iterator[None]:
    """The database refuses every UPDATE of one row, as a constraint of somebody else's might."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'this row stays as it is'; END $$"
            )
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} FOR EACH ROW "
                f"WHEN (OLD.id = '{pk}') EXECUTE FUNCTION refuse()"
            )
        else:
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} WHEN OLD.id = '{pk.hex}' "
                "BEGIN SELECT RAISE(ABORT, 'this row stays as it is'); END"
            )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"DROP TRIGGER refuse ON {table}")
                cursor.execute("DROP FUNCTION refuse()")
            else:
                cursor.execute("DROP TRIGGER refuse")


@pytest.mark.django_db(transaction=True)
class TestWhatCannotBeRepaired:
    @pytest.mark.parametrize("kind", ["lost", "stopping", "due", "silent"])
    def test_it_is_left_with_its_reason_and_the_others_are_repaired(self, kind, caplog):
        wrong, _, repaired = CASES[kind]
        rows = [wrong() for _ in range(5)]
        others = [make() for name, (make, _, _) in CASES.items() if name not in (kind, "gone")]
        bad = rows[2]
        before = type(bad).objects.filter(pk=bad.pk).values().get()
        with refusing(bad._meta.db_table, bad.pk), caplog.at_level(logging.ERROR, "jobqueue"):
            findings = {each.kind: each for each in sweep()}
        finding = findings[kind]
        assert (finding.found, finding.repaired) == (5, 4)
        assert finding.left == {str(bad.pk): "this row stays as it is"}
        assert type(bad).objects.filter(pk=bad.pk).values().get() == before
        assert all(repaired(each) for each in rows if each is not bad)
        for name in {"lost", "stopping", "due", "silent"} - {kind}:
            assert (findings[name].found, findings[name].repaired) == (1, 1)
        assert len(others) == 3
        assert f"Cannot repair {bad.pk}" in caplog.text
        # The reason gone, the next pass repairs it.
        assert found(sweep()) == {kind: (1, 1)}

    @pytest.mark.postgres
    @pytest.mark.parametrize("kind", CASES)
    def test_a_locked_row_is_passed_over(self, kind):
        wrong, _, repaired = CASES[kind]
        first, second = wrong(), wrong()
        with held(first):
            findings = {each.kind: each for each in sweep()}
            assert (findings[kind].found, findings[kind].repaired) == (2, 1)
            assert findings[kind].left == {}
        assert repaired(second)
        sweep()
        assert repaired(first)


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_passes_side_by_side_repair_each_row_once(self):
        made = {kind: [wrong() for _ in range(8)] for kind, (wrong, _, _) in CASES.items()}
        answers = together(*[sweep] * 6)
        for kind in ("lost", "stopping", "due"):
            done = sum(each.repaired for answer in answers for each in answer if each.kind == kind)
            assert done == 8, kind
        for kind, rows in made.items():
            assert all(CASES[kind][2](each) for each in rows)
        assert JobLog.objects.filter(event="lost").count() == 8

    def test_a_pass_over_a_healthy_queue_writes_nothing(self):
        for _, right, _ in CASES.values():
            right()
        JobFactory.create_batch(5)
        before = list(Job.objects.order_by("pk").values())
        assert found(sweep()) == {}
        assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.django_db
def test_after_a_restart_of_the_server_owners_come_first(settings):
    waits = reconcile.hold_off()
    if connection.vendor == "sqlite":
        assert waits == 0.0
        return
    assert 0.0 <= waits <= 10.0
    long = {"lease": 86_400, "heartbeat": 80_000}
    settings.TASKS = {"default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": long}}
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM now() - pg_postmaster_start_time())")
        age = float(cursor.fetchone()[0])
    assert reconcile.hold_off() == pytest.approx(max(0.0, 80_000 - age), abs=30)


#: How each event comes into the log.
EVENTS: dict[JobLog.Event, Callable[[], Any]] = {
    JobLog.Event.ERRORED: lambda: lifecycle.settle([outcome(claimed(), Ending.ERRORED)]),
    JobLog.Event.TIMED_OUT: lambda: lifecycle.settle([outcome(claimed(), Ending.TIMED_OUT)]),
    JobLog.Event.LOST: lambda: lifecycle.recover([lost().pk]),
    JobLog.Event.SNOOZED: lambda: lifecycle.settle([outcome(claimed(), Ending.SNOOZED)]),
    JobLog.Event.NOT_FOUND: lambda: lifecycle.settle([outcome(claimed(), Ending.NOT_FOUND)]),
    JobLog.Event.RELEASED: lambda: lifecycle.settle([outcome(claimed(), Ending.RELEASED)]),
    JobLog.Event.CANCELLED: lambda: lifecycle.cancel(JobFactory().pk),
    JobLog.Event.REQUEUED: lambda: lifecycle.requeue(JobFactory(failed=True).pk),
    JobLog.Event.REPAIRED: lambda: lifecycle.recover([stopping().pk]),
    JobLog.Event.FENCED: lambda: lifecycle.settle([outcome(taken_away())]),
    JobLog.Event.NOTE: lambda: lifecycle.take_notes([Note(claimed(), "said")]),
}


def taken_away() -> Any:
    attempt = claimed()
    expire(attempt)
    Job.objects.filter(pk=attempt.id).update(lease_owner=uuid.uuid4())
    return attempt


@pytest.mark.django_db
@pytest.mark.parametrize("event", list(JobLog.Event))
def test_every_event_of_the_log_is_shown(event):
    EVENTS[event]()
    line = JobLog.objects.last()
    assert line.event == event
    assert line.message or event in ("cancelled", "requeued")


@pytest.mark.django_db
def test_a_repaired_job_runs_again():
    job = lost()
    sweep()
    make_due(job)
    sweep()
    (attempt,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
    assert (attempt.id, attempt.attempt) == (job.pk, 2)
    assert picture(job)["worker"] == WORKER
