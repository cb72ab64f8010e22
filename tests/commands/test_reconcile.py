"""`reconcile`: what it repairs, says and leaves, and how it waits."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from django.db import connection

from jobqueue import reconcile
from jobqueue.models import Job, Status, Sweep, Worker
from tests.commands.running import lines_of, manage, run, running, shows
from tests.factories import JobFactory, WorkerFactory, ago


@pytest.fixture
def one_of_each_kind(db: None) -> dict[str, Any]:
    return {
        "lost": JobFactory(processing=True, lease_expires_at=ago(5)),
        "stopping": JobFactory(stopping=True, lease_expires_at=ago(5)),
        "due": JobFactory(scheduled=True, run_after=ago(1)),
        "silent": WorkerFactory(heartbeat_at=ago(120)),
        "gone": WorkerFactory(heartbeat_at=ago(172_800), state=Worker.State.GONE),
    }


@pytest.mark.django_db
def test_reconcile_with_nothing_to_do() -> None:
    JobFactory()
    JobFactory(processing=True)
    WorkerFactory()
    ran = run("reconcile")
    assert ran.code == 0
    for kind in reconcile.KINDS:
        assert re.search(rf"^{kind.name} +{kind.what} +0 +0 +0 +0$", ran.out, re.MULTILINE)
    assert ran.out.endswith("Nothing to repair.\n")


@shows("reconcile --json")
def test_reconcile_repairs_every_kind(one_of_each_kind: dict[str, Any]) -> None:
    """A kind that is added to the list has to be added to the fixture."""
    ran = run("reconcile", "--json")
    assert set(one_of_each_kind) == {kind.name for kind in reconcile.KINDS}
    one = {"found": 1, "repaired": 1, "skipped": 0, "failed": 0}
    assert ran.json["kinds"] == dict.fromkeys(one_of_each_kind, one)
    assert list(ran.json) == ["at", "seconds", "dry_run", "kinds", "failures"]
    assert ran.json["dry_run"] is False
    assert ran.json["failures"] == []
    assert ran.code == 0
    statuses = [
        Job.objects.get(pk=one_of_each_kind[kind].pk).status for kind in ("lost", "stopping", "due")
    ]
    assert statuses == ["scheduled", "cancelled", "queued"]
    assert Worker.objects.get().state == Worker.State.GONE
    assert "Nothing to repair." in run("reconcile").out
    eventful, plain = Sweep.objects.order_by("-eventful")
    assert (eventful.eventful, plain.eventful) == (True, False)
    assert eventful.repaired == dict.fromkeys(one_of_each_kind, 1)
    assert eventful.actor_name == plain.actor_name != ""


@shows("reconcile --dry-run")
def test_reconcile_dry_run_changes_nothing(one_of_each_kind: dict[str, Any]) -> None:
    before = list(Job.objects.order_by("pk").values()), list(Worker.objects.order_by("pk").values())
    ran = run("reconcile", "--dry-run")
    assert "A dry run: nothing was changed." in ran.out
    assert re.search(r"^lost +running, lease expired +1$", ran.out, re.MULTILINE)
    asjson = run("reconcile", "--dry-run", "--json").json
    one = {"found": 1, "repaired": 0, "skipped": 0, "failed": 0}
    assert asjson["kinds"] == dict.fromkeys(one_of_each_kind, one)
    assert asjson["dry_run"] is True
    after = list(Job.objects.order_by("pk").values()), list(Worker.objects.order_by("pk").values())
    assert after == before


@pytest.mark.django_db
@shows("reconcile --limit")
def test_reconcile_limit_is_for_each_kind() -> None:
    JobFactory.create_batch(5, processing=True, lease_expires_at=ago(5))
    JobFactory.create_batch(5, scheduled=True, run_after=ago(1))
    assert run("reconcile", "--json", "--dry-run", "--limit", 2).json["kinds"]["due"]["found"] == 2
    kinds = run("reconcile", "--json", "--limit", 2).json["kinds"]
    assert (kinds["lost"]["repaired"], kinds["due"]["repaired"]) == (2, 2)
    assert Job.objects.filter(status=Status.PROCESSING).count() == 3


@pytest.fixture
def stuck(db: None) -> Job:
    """A lost job that the database itself does not let anybody repair."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "CREATE TRIGGER stuck BEFORE UPDATE ON jobqueue_job WHEN OLD.task_path = 'stuck' "
                "BEGIN SELECT RAISE(ABORT, 'this row is stuck'); END"
            )
        else:
            cursor.execute(
                "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'this row is stuck'; END $$"
            )
            cursor.execute(
                "CREATE TRIGGER stuck BEFORE UPDATE ON jobqueue_job FOR EACH ROW "
                "WHEN (OLD.task_path = 'stuck') EXECUTE FUNCTION stuck()"
            )
    return JobFactory(task_path="stuck", processing=True, lease_expires_at=ago(5))


def test_reconcile_says_what_could_not_be_repaired(stuck: Job) -> None:
    JobFactory.create_batch(3, processing=True, lease_expires_at=ago(5))
    ran = run("reconcile")
    assert ran.code == 1
    assert ran.error == "1 row could not be repaired."
    assert re.search(r"^lost .* 4 +3 +0 +1$", ran.out, re.MULTILINE)
    assert f"Not repaired: lost {stuck.pk}: this row is stuck" in ran.out
    again = run("reconcile", "--json")
    assert again.code == 1
    failure = {"kind": "lost", "id": str(stuck.pk), "reason": "this row is stuck"}
    assert again.json["failures"] == [failure]
    assert again.json["kinds"]["lost"] == {"found": 1, "repaired": 0, "skipped": 0, "failed": 1}


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_reconcile_skips_what_others_hold() -> None:
    held, free = JobFactory.create_batch(2, processing=True, lease_expires_at=ago(5))
    with closing(connection.copy()) as other, other.cursor() as cursor:
        other.set_autocommit(False)
        cursor.execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE", [held.pk])
        ran = run("reconcile", "--json")
        other.rollback()
    assert ran.code == 0
    assert ran.json["kinds"]["lost"] == {"found": 2, "repaired": 1, "skipped": 1, "failed": 0}
    assert Job.objects.get(pk=held.pk).status == Status.PROCESSING
    assert Job.objects.get(pk=free.pk).status == Status.SCHEDULED


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.django_db(transaction=True)
@shows("reconcile --every")
def test_reconcile_every(child_environment: Callable[..., dict[str, str]], stop: int) -> None:
    words = ("reconcile", "--every", "0.1", "--json")
    with running(manage(child_environment({"lease": 60}), *words)) as process:
        passes = map(json.loads, lines_of(process.stdout))
        assert next(passes)["kinds"]["due"]["found"] == 0
        job = JobFactory(scheduled=True, run_after=ago(1))
        assert any(each["kinds"]["due"]["repaired"] for each in passes)
        process.send_signal(stop)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert all(json.loads(line) for line in out.splitlines())
    assert Job.objects.get(pk=job.pk).status == Status.QUEUED


@pytest.mark.postgres
def test_reconcile_every_outlives_the_database(
    on_private_postgres: Any, child_environment: Callable[..., dict[str, str]]
) -> None:
    environment = child_environment({"lease": 1, "heartbeat": 0.2})
    words = ("reconcile", "--every", "0.05", "--json")
    with running(manage(environment, *words)) as process:
        passes, said = map(json.loads, lines_of(process.stdout)), lines_of(process.stderr)
        next(passes)
        on_private_postgres.stop()
        # Nothing else may be said before: not a traceback, not the same once more.
        assert next(line for line in said if not line.startswith("PostgreSQL")).startswith(
            "The database 'default' "
        )
        assert next(said) == "Trying again until it answers."
        on_private_postgres.start()
        assert next(said) == "The database is back."
        assert "workers may extend their leases before any is taken" in next(said)
        connection.close()
        JobFactory(processing=True, lease_expires_at=ago(1))
        assert any(each["kinds"]["lost"]["repaired"] for each in passes)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.postgres
def test_reconcile_lets_owners_come_first(on_private_postgres: Any, settings: Any) -> None:
    """After a start of PostgreSQL it waits for one heartbeat, and says why; a dry run need not."""

    def heartbeat(seconds: float) -> None:
        options = {"lease": 1_000, "heartbeat": seconds}
        backend = {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
        settings.TASKS = {"default": backend}

    heartbeat(400)
    JobFactory(processing=True, lease_expires_at=ago(1))
    assert run("reconcile", "--dry-run").err == ""
    age = 400 - reconcile.hold_off()
    heartbeat(age + 0.5)
    ran = run("reconcile", "--json")
    said = re.fullmatch(
        r"PostgreSQL has just been started: for (0\.\d) s workers may extend their leases before "
        r"any is taken\.\n",
        ran.err,
    )
    assert said
    assert ran.json["kinds"]["lost"]["repaired"] == 1
    assert run("reconcile").err == ""


@pytest.mark.postgres
def test_reconcile_can_be_stopped_while_it_waits(
    on_private_postgres: Any, child_environment: Callable[..., dict[str, str]]
) -> None:
    environment = child_environment({"lease": 3_000, "heartbeat": 1_000})
    with running(manage(environment, "reconcile")) as process:
        assert "PostgreSQL has just been started" in next(lines_of(process.stderr))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")
