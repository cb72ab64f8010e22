"""What is kept of the passes of the clock's repairs: little where nothing happened, all where something did."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import reconcile, sweeps
from jobqueue.findings import Finding, Repaired
from jobqueue.models import Job, Status, Sweep, Tally, Worker
from jobqueue.sweeps import Recorder, run
from tests.factories import JobFactory, WorkerFactory, ago, now
from tests.lifecycle.acts import held, row
from tests.lifecycle.test_reconcile import CASES, refusing


def found(kind: str, number: int = 1, left: dict[str, str] | None = None) -> list[Finding]:
    """What a pass says that has repaired so many of a kind, and none of another."""
    finding = Finding(kind, kind, found=number + len(left or {}), left=left or {})
    finding.note(Repaired(uuid.UUID(int=each), "before", "after") for each in range(number))
    return [finding, Finding("due" if kind != "due" else "lost", "nothing")]


def record(recorder: Recorder, *passes: list[Finding]) -> None:
    for each in passes:
        recorder.record(each, now(), 0.25)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are shared are written after each pass."""
    monkeypatch.setattr(sweeps, "WRITE_EVERY", 0.0)


@pytest.mark.django_db
class TestRecorder:
    @pytest.mark.usefixtures("at_once")
    def test_passes_like_all_others_share_a_row(self):
        recorder = Recorder(worker="host:1:abc")
        began = now()
        record(recorder, found("due", 3), found("due", 0), found("gone"), found("due", 2))
        sweep = Sweep.objects.get()
        assert (sweep.passes, sweep.eventful, sweep.worker) == (4, False, "host:1:abc")
        assert sweep.found == sweep.repaired == {"due": 5, "gone": 1}
        assert (sweep.repairs, sweep.left, sweep.took) == ([], [], 0.25)
        assert began <= sweep.started_at <= sweep.finished_at

    def test_it_is_written_once_in_a_while(self):
        recorder = Recorder(worker="w")
        record(recorder, found("due"))
        with CaptureQueriesContext(connection) as queries:
            for _ in range(50):
                recorder.record(found("due"), ago(0), 0.1)
        assert not [query for query in queries if "jobqueue_sweep" in query["sql"]]
        assert Sweep.objects.get().passes == 1
        recorder.close()
        sweep = Sweep.objects.get()
        assert (sweep.passes, sweep.found) == (51, {"due": 51})

    @pytest.mark.parametrize("kind", ["lost", "stopping", "silent", "undispatched", "stale"])
    def test_one_that_repaired_something_has_a_row_of_its_own(self, kind):
        recorder = Recorder(worker="w")
        record(recorder, found("due"), found(kind, 2), found(kind, 1), found("due"))
        plain, first, second = Sweep.objects.order_by("pk")
        assert (plain.eventful, first.eventful, second.eventful) == (False, True, True)
        assert (first.passes, first.found, first.repaired) == (1, {kind: 2}, {kind: 2})
        assert first.repairs == [
            [kind, str(uuid.UUID(int=place)), "before", "after"] for place in range(2)
        ]
        assert second.repaired == {kind: 1}

    @pytest.mark.usefixtures("at_once")
    def test_what_can_never_be_repaired_does_not_fill_the_table(self):
        recorder = Recorder()
        stuck = found("lost", 0, {"a": "it stays as it is"})
        record(recorder, stuck, stuck, stuck)
        sweep = Sweep.objects.get()
        assert (sweep.passes, sweep.eventful, sweep.repairs) == (3, True, [])
        assert sweep.left == [["lost", "a", "it stays as it is"]]
        record(recorder, found("lost", 1, {"a": "it stays as it is"}))
        record(recorder, stuck)
        record(recorder, found("lost", 0, {"b": "another"}))
        assert list(Sweep.objects.order_by("pk").values_list("passes", flat=True)) == [3, 2, 1]

    def test_rows_that_others_hold_are_nothing_special(self):
        busy = Finding("lost", "running", found=4)
        record(Recorder(), [busy])
        assert Sweep.objects.get().eventful is False

    def test_only_the_first_are_told_and_the_important_ones_before(self):
        many = [found("due", 600)[0], found("lost", 3)[0]]
        record(Recorder(), many)
        sweep = Sweep.objects.get()
        assert sweep.found == {"due": 600, "lost": 3}
        assert len(sweep.repairs) == 500
        assert [each[0] for each in sweep.repairs[:4]] == ["lost", "lost", "lost", "due"]

    def test_text_that_a_database_refuses(self):
        finding = Finding("alien", "rubbish", found=2, left={"\ud800": "b\0" + "c" * 9_000})
        finding.note([Repaired("a\0", "x", "y")])
        record(Recorder(), [finding])
        sweep = Sweep.objects.get()
        assert sweep.repairs == [["alien", "a\\x00", "x", "y"]]
        assert sweep.left[0][1] == "\\ud800"
        assert len(sweep.left[0][2]) <= 500


@pytest.mark.django_db(transaction=True)
class TestNeverInTheWay:
    @pytest.mark.postgres
    @pytest.mark.usefixtures("at_once")
    def test_who_holds_its_row_is_not_waited_for(self):
        recorder = Recorder()
        record(recorder, found("due"))
        with held(Sweep.objects.get()):
            record(recorder, found("due"))
        record(recorder, found("due"))
        assert Sweep.objects.get().passes == 3

    def test_what_the_database_refuses_raises_nothing(self, caplog):
        recorder = Recorder()
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_sweep RENAME TO away")
        try:
            record(recorder, found("lost"), found("due"))
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE away RENAME TO jobqueue_sweep")
        assert "Cannot write down" in caplog.text
        record(recorder, found("due"))
        assert Sweep.objects.get().passes == 2

    def test_a_row_that_cannot_be_repaired_is_told_with_its_reason(self):
        good, bad = (JobFactory(processing=True, lease_expires_at=ago(1)) for _ in range(2))
        with refusing("jobqueue_job", bad.pk):
            run(actor="Ada")
        sweep = Sweep.objects.get()
        assert sweep.repairs == [["lost", str(good.pk), "processing", "scheduled"]]
        assert sweep.left == [["lost", str(bad.pk), "this row stays as it is"]]


@pytest.mark.django_db
class TestRun:
    def test_it_repairs_and_says_who_asked(self):
        made = {kind: wrong() for kind, (wrong, _, _) in CASES.items()}
        last = JobFactory(processing=True, lease_expires_at=ago(1), max_attempts=1)
        user = get_user_model().objects.create_user("ada")
        findings = run(actor=user)
        assert all(CASES[kind][2](each) for kind, each in made.items())
        assert {each.kind: each.repaired for each in findings if each.repaired} == {
            **dict.fromkeys(CASES, 1),
            "lost": 2,
        }
        sweep = Sweep.objects.get()
        assert (sweep.actor_name, sweep.worker, sweep.passes) == ("ada", "", 1)
        assert sweep.eventful is True
        assert {tuple(each) for each in sweep.repairs} == {
            ("lost", str(made["lost"].pk), "processing", "scheduled"),
            ("lost", str(last.pk), "processing", "failed"),
            ("stopping", str(made["stopping"].pk), "cancelled, still stopping", "cancelled"),
            ("due", str(made["due"].pk), "scheduled", "queued"),
            ("silent", str(made["silent"].pk), "silent", "gone"),
            ("gone", str(made["gone"].pk), "gone", "removed"),
        }
        tally = Tally.objects.get(span=60)
        assert (tally.failed, tally.retried) == (1, 1)

    def test_a_dry_one_changes_nothing_at_all(self):
        for wrong, _, _ in CASES.values():
            wrong()
        before = list(Job.objects.order_by("pk").values()), list(Worker.objects.values())
        findings = run(actor="Ada", dry_run=True)
        assert {each.kind: each.found for each in findings if each.found} == dict.fromkeys(CASES, 1)
        assert (list(Job.objects.order_by("pk").values()), list(Worker.objects.values())) == before
        assert not Sweep.objects.exists()

    def test_one_that_finds_nothing_is_kept_too(self):
        run(actor="Ada")
        sweep = Sweep.objects.get()
        assert (sweep.actor_name, sweep.found, sweep.eventful) == ("Ada", {}, True)

    def test_it_has_a_bound(self):
        for _ in range(4):
            JobFactory(scheduled=True, run_after=ago(1))
        run(limit=3)
        assert Job.objects.filter(status=Status.SCHEDULED).count() == 1

    def test_owners_come_first_after_a_restart(self, monkeypatch):
        job = JobFactory(processing=True, lease_expires_at=ago(1))
        monkeypatch.setattr(reconcile, "hold_off", lambda: 5.0)
        run()
        assert row(job).status == Status.PROCESSING
        monkeypatch.setattr(reconcile, "hold_off", lambda: 0.0)
        run()
        assert row(job).status == Status.SCHEDULED


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("on_redis")
def test_redis_is_looked_at_too():
    run()  # it knows nothing yet
    assert Sweep.objects.get().repaired == {"forgotten": 1}
    job = JobFactory()
    findings = {each.kind: each for each in run(dry_run=True)}
    assert findings["undispatched"].found == 1
    run(actor="Ada")
    (told,) = Sweep.objects.get(actor_name="Ada").repairs
    assert told == ["undispatched", str(job.pk), "queued, missing in Redis", "in Redis"]


@pytest.mark.django_db
def test_what_is_old_is_removed():
    day = 86_400
    for eventful, days in ((True, 29), (True, 31), (False, 1), (False, 3)):
        moment = ago(days * day)
        Sweep.objects.create(started_at=moment, finished_at=moment, eventful=eventful)
    # Begun long ago, and still at it.
    Sweep.objects.create(started_at=ago(90 * day), finished_at=now())
    assert sweeps.prune(1) == 1
    assert sweeps.prune() == 1
    assert sweeps.prune() == 0
    assert Sweep.objects.count() == 3


@pytest.mark.django_db
def test_workers_that_are_silent_stay_to_be_seen_for_a_day():
    worker = WorkerFactory(heartbeat_at=ago(23 * 3_600))
    run()
    run()
    assert Worker.objects.get(pk=worker.pk).state == Worker.State.GONE
    Worker.objects.update(heartbeat_at=ago(25 * 3_600))
    run()
    assert not Worker.objects.exists()
