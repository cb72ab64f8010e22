"""The commands as people and scripts meet them: what they print and change, how they exit."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command, find_commands, load_command_class
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.models.signals import post_delete

from jobqueue import ids, lifecycle, reconcile, tallies
from jobqueue.management import stats
from jobqueue.models import Job, JobLog, Queue, Status, Sweep, Tally, Worker
from tests.app.models import Note
from tests.factories import JobFactory, JobLogFactory, QueueFactory, WorkerFactory, ago, now

TESTS = Path(__file__).parent
NOWHERE = "00000000-0000-7000-8000-000000000000"

#: What is shown at work here: a flag as `command action --flag`, and the tests that show it.
SHOWN: dict[str, list[str]] = {}

Test = Callable[..., None]


def shows(*flags: str) -> Callable[[Test], Test]:
    """Marks a test that fails when one of these flags does nothing."""

    def mark(test: Test) -> Test:
        for flag in flags:
            SHOWN.setdefault(flag, []).append(test.__name__)
        return test

    return mark


@dataclass
class Ran:
    """What a command printed, and the error or exit code that it ended with."""

    out: str
    err: str
    error: str | None = None
    code: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: object) -> Ran:
    """Run a command in this process, on the test's own connection."""
    out, err = io.StringIO(), io.StringIO()
    error, code = None, 0
    try:
        call_command(*map(str, words), stdout=out, stderr=err)
    except CommandError as raised:
        error, code = str(raised), raised.returncode
    except SystemExit as raised:
        code = int(raised.code or 0)
    return Ran(out.getvalue(), err.getvalue(), error, code)


def manage(environment: dict[str, str], *words: object, **pipes: Any) -> subprocess.Popen[str]:
    """Start a command as a process of its own, with pipes for what it prints."""
    command = [sys.executable, "-m", "django", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | pipes
    return subprocess.Popen(command, env=environment, text=True, **pipes)


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def lines_of(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    return (line.rstrip("\n") for line in stream)


def id_of(moment: datetime) -> uuid.UUID:
    """An id as one that was made at that time: pruning goes by it."""
    return uuid.UUID(int=ids.first_at(moment.timestamp()).int | uuid.uuid4().int % 2**62)


def long_ago(days: float = 400, **traits: Any) -> Job:
    """A job that was enqueued and ended so many days ago."""
    then = ago(days * 86_400)
    return JobFactory(id=id_of(then), enqueued_at=then, run_after=then, finished_at=then, **traits)


def many(number: int, like: Job) -> None:
    """So many more jobs, alike but for their ids."""
    values = {field.attname: getattr(like, field.attname) for field in Job._meta.fields}
    rows = (Job(**values | {"id": id_of(like.enqueued_at)}) for _ in range(number))
    Job.objects.bulk_create(rows, batch_size=500)


# Every flag


def flags_of(name: str) -> set[str]:
    """`command action --flag` for each flag of a command that is its own."""
    common = {
        text
        for action in BaseCommand().create_parser("manage.py", name)._actions
        for text in action.option_strings
    }

    def walk(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    yield from walk(inner, f"{path} {word}")
            for text in action.option_strings:
                if text not in common:
                    yield f"{path} {text}"

    return set(walk(load_command_class("jobqueue", name).create_parser("manage.py", name), name))


def commands() -> list[str]:
    return find_commands(str(Path(apps.get_app_config("jobqueue").path) / "management"))


def test_every_flag_is_shown_at_work() -> None:
    flags = set().union(*(flags_of(name) for name in commands() if name != "runworker"))
    assert flags == set(SHOWN)


def test_every_flag_of_runworker_is_shown_at_work() -> None:
    """Elsewhere: its tests start processes. Each flag stands there as a word of a command line."""
    others = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    words = "".join(path.read_text() for path in others)
    unseen = {flag for flag in flags_of("runworker") if f'"{flag.split()[1]}"' not in words}
    assert not unseen


@pytest.mark.parametrize("name", commands())
def test_help_is_ascii(name: str) -> None:
    parser = load_command_class("jobqueue", name).create_parser("manage.py", name)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                assert inner.format_help().isascii()
    assert parser.format_help().isascii()


# reconcile


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


# jobs list


@pytest.mark.django_db
@shows("jobs list --json", "jobs list --status", "jobs list --queue", "jobs list --task")
def test_list_filters() -> None:
    queued = JobFactory(task_path="shop.tasks.charge", queue_name="billing")
    failed = JobFactory(failed=True)
    stopping = JobFactory(stopping=True)
    processing = JobFactory(processing=True, task_path="shop.tasks.discharge")

    def listed(*words: str) -> list[str]:
        return [each["id"] for each in run("jobs", "list", "--json", *words).json]

    newest = [str(job.pk) for job in (processing, stopping, failed, queued)]
    assert listed() == newest
    assert listed("--status", "failed") == [str(failed.pk)]
    assert listed("--status", "processing") == [str(processing.pk)]
    assert listed("--queue", "billing") == [str(queued.pk)]
    assert listed("--task", "shop.tasks.charge") == [str(queued.pk)]
    assert listed("--task", "charge") == [str(queued.pk)]
    assert listed("--queue", "billing", "--status", "failed") == []
    row = run("jobs", "list", "--json", "--status", "cancelled").json[0]
    assert row["stopping"] is True
    assert row["task_path"] == stopping.task_path
    assert row["attempt"] == 1


@pytest.mark.django_db
@shows("jobs list --limit")
def test_list_limit() -> None:
    jobs = JobFactory.create_batch(3)
    ran = run("jobs", "list", "--limit", 2)
    assert str(jobs[2].pk) in ran.out
    assert str(jobs[0].pk) not in ran.out
    assert "The newest 2; --limit N shows more." in ran.out
    assert "--limit" not in run("jobs", "list").out


@pytest.mark.django_db
def test_list_is_empty() -> None:
    assert run("jobs", "list").out == "No jobs.\n"
    assert run("jobs", "list", "--json").json == []


@pytest.mark.parametrize("columns", [40, 80, 100, 120, 300])
@pytest.mark.django_db
def test_list_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    JobFactory(task_path="a" * 300 + ".tasks.send", queue_name="q" * 100)
    JobFactory(scheduled=True, run_after=ago(-400 * 86_400))
    JobFactory(processing=True, attempt=100, max_attempts=320)
    lines = run("jobs", "list").out.splitlines()
    assert max(map(len, lines)) <= max(80, min(columns, 120))
    assert any(line.endswith("tasks.send") for line in lines)
    assert lines[0].split() == ["ID", "STATUS", "TRY", "WHEN"] + (
        ["TASK"] if columns < 100 else ["QUEUE", "TASK"]
    )


@pytest.mark.django_db
def test_list_says_when() -> None:
    JobFactory(scheduled=True, run_after=ago(-7_201))
    assert "in 2h" in run("jobs", "list").out
    Job.objects.update(run_after=ago(-90.5))
    assert re.search(r"in (90|91)s", run("jobs", "list").out)
    Job.objects.all().delete()
    JobFactory(failed=True, finished_at=ago(4 * 86_400))
    assert "4d ago" in run("jobs", "list").out


# jobs show


@pytest.mark.django_db
@shows("jobs show --json")
def test_show_json() -> None:
    job = JobFactory(
        scheduled=True,
        attempt=1,
        args=[1, "ä", 1e16],
        kwargs={"deep": {"er": [None]}},
        idempotency_key="order-1",
        attempted_at=ago(30),
        started_at=ago(30),
    )
    JobLogFactory(
        job=job,
        event=JobLog.Event.ERRORED,
        attempt=1,
        worker="host:7:abcd",
        message="ValueError: no",
        created_at=ago(20),
        data={"traceback": "Traceback ...\nValueError: no", "delay": 2.5},
    )
    shown = run("jobs", "show", job.pk, "--json").json
    assert shown["id"] == str(job.pk)
    assert shown["args"] == [1, "ä", 1e16]
    assert shown["kwargs"] == {"deep": {"er": [None]}}
    assert shown["idempotency_key"] == "order-1"
    assert shown["traceback"] == "Traceback ...\nValueError: no"
    events = [each["event"] for each in shown["timeline"]]
    assert events == ["enqueued", "started", "errored", "due"]
    errored = shown["timeline"][2]
    assert (errored["attempt"], errored["worker"]) == (1, "host:7:abcd")
    assert errored["data"]["delay"] == 2.5
    assert {field.attname for field in Job._meta.fields} <= set(shown)


@pytest.mark.django_db
def test_show_for_people() -> None:
    job = JobFactory(failed=True, attempt=3, given_back=1, max_attempts=3, args=["x" * 5_000])
    JobLogFactory(
        job=job,
        event=JobLog.Event.ERRORED,
        level=JobLog.Level.ERROR,
        attempt=3,
        message="ValueError: no",
        data={"traceback": "Traceback (most recent call last):\nValueError: no"},
    )
    ran = run("jobs", "show", job.pk)
    assert f"Job {job.pk}" in ran.out
    assert "3 of 3 (1 given back)" in ran.out
    assert re.search(r"errored +attempt 3 - ValueError: no", ran.out)
    assert re.search(r"failed +attempt 3 - for good", ran.out)
    assert "  Traceback (most recent call last):\n  ValueError: no" in ran.out
    assert "shortened" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 120


@pytest.mark.django_db
def test_timeline_of_a_life_of_two_runs() -> None:
    """A completed run leaves no line; the requeue that followed it tells of it."""
    job = JobFactory(completed=True, return_value={"sum": 3})
    assert lifecycle.requeue(job.pk, actor="cli:ann", reason="once more")
    shown = run("jobs", "show", job.pk, "--json").json["timeline"]
    assert [each["event"] for each in shown] == [
        *("enqueued", "started", "completed", "requeued", "waiting"),
    ]
    assert shown[3]["actor"] == "cli:ann"
    assert "it was completed - by cli:ann" in " ".join(run("jobs", "show", job.pk).out.split())


@pytest.mark.django_db
def test_show_long_log() -> None:
    job = JobFactory(processing=True)
    JobLogFactory.create_batch(205, job=job, message="a note")
    ran = run("jobs", "show", job.pk)
    assert ran.out.count("a note") == 200
    assert "older lines are not shown" in ran.out
    assert len(run("jobs", "show", job.pk, "--json").json["timeline"]) == 207


@pytest.mark.django_db
def test_show_by_the_beginning_of_an_id() -> None:
    job = JobFactory(id="01890000-0000-7abc-8000-000000000001")
    assert f"Job {job.id}" in run("jobs", "show", "01890000-0000-7a").out
    assert f"Job {job.id}" in run("jobs", "show", "0189000000007ABC8000000000000001").out
    JobFactory(id="01890000-0000-7abc-8000-000000000002")
    assert run("jobs", "show", "01890000").error == (
        "01890000: more than one job's id begins like this, give more of it"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (NOWHERE, "there is no such job"),
        ("0000000", "too short, give 8 digits or more"),
        ("hello", "this is not the id of a job"),
        ("", "this is not the id of a job"),
        ("0" * 33, "this is not the id of a job"),
        ("١" * 32, "this is not the id of a job"),
    ],
)
@pytest.mark.django_db
def test_show_nothing(given: str, reason: str) -> None:
    JobFactory()
    ran = run("jobs", "show", given)
    assert (ran.error, ran.code) == (f"{given}: {reason}", 1)


# jobs cancel, jobs requeue


@pytest.mark.django_db
@shows("jobs cancel --reason")
def test_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    waiting, running_job, done = JobFactory(), JobFactory(processing=True), JobFactory(failed=True)
    words = [waiting.pk, NOWHERE, "nonsense", done.pk, running_job.pk, waiting.pk]
    ran = run("jobs", "cancel", *words, "--reason", "wrong\0order")
    assert ran.out == f"{waiting.pk} cancelled\n{running_job.pk} cancelled\n"
    assert ran.err.splitlines() == [
        f"{NOWHERE}: not cancelled: there is no such job",
        "nonsense: not cancelled: this is not the id of a job",
        f"{done.pk}: not cancelled: it is failed; only these can be cancelled: "
        "processing, queued, scheduled",
    ]
    assert (ran.error, ran.code) == ("3 jobs could not be cancelled.", 1)
    for job in (waiting, running_job):
        line = JobLog.objects.get(job=job)
        assert (line.event, line.actor_name) == ("cancelled", "cli:ann")
        assert line.message == "wrong\\x00order"
    assert Job.objects.get(pk=running_job.pk).is_stopping
    assert run("jobs", "cancel", JobFactory().pk).code == 0


@pytest.mark.django_db
def test_actor_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the user may have a number only."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    job = JobFactory()
    assert run("jobs", "cancel", job.pk).code == 0
    assert JobLog.objects.get(job=job).actor_name == f"cli:{os.getuid()}"


@pytest.mark.django_db
@shows("jobs requeue --reason")
def test_requeue_by_id() -> None:
    failed, stopping = JobFactory(failed=True), JobFactory(stopping=True)
    ran = run("jobs", "requeue", stopping.pk, failed.pk, "--reason", "mended")
    assert ran.out == f"{failed.pk} requeued\n"
    assert ran.err == (
        f"{stopping.pk}: not requeued: its cancelled run has not let go yet; "
        "try again when it has\n"
    )
    assert (ran.error, ran.code) == ("1 job could not be requeued.", 1)
    failed.refresh_from_db()
    assert (failed.status, failed.attempt, failed.max_attempts) == ("queued", 1, 2)
    line = JobLog.objects.get(job=failed)
    assert line.message == "mended"
    assert line.actor_name.startswith("cli:")


@pytest.mark.django_db
@shows("jobs requeue --status", "jobs requeue --queue")
def test_requeue_by_filter() -> None:
    mail = JobFactory.create_batch(2, failed=True, queue_name="mail")
    other = JobFactory(failed=True)
    done = JobFactory(completed=True, queue_name="mail")
    ran = run("jobs", "requeue", "--status", "failed", "--queue", "mail")
    assert (ran.out, ran.code) == ("2 jobs requeued.\n", 0)
    assert set(Job.objects.filter(status="queued")) == set(mail)
    ran = run("jobs", "requeue", "--status", "failed", "--reason", "all")
    assert ran.out == "1 job requeued.\n"
    assert JobLog.objects.get(job=other).message == "all"
    assert Job.objects.get(pk=done.pk).status == "completed"
    JobFactory(stopping=True)
    ran = run("jobs", "requeue", "--status", "cancelled")
    assert ran.code == 0
    assert ran.out.startswith("0 jobs requeued.\n1 job not requeued: its cancelled run has not")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name jobs by their IDs"),
        (["--queue", "mail"], "Name jobs by their IDs"),
        ([NOWHERE, "--status", "failed"], "not both"),
        ([NOWHERE, "--queue", "mail"], "not both"),
        (["--status", "queued"], "invalid choice"),
        (["--status", "failed", "--queue", "\udcff"], "not valid text"),
    ],
)
@pytest.mark.django_db
def test_requeue_refuses(words: list[str], said: str) -> None:
    JobFactory(failed=True)
    ran = run("jobs", "requeue", *words)
    assert ran.code != 0
    assert said in str(ran.error)
    assert Job.objects.get().status == "failed"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list", "--limit", "0"],
        ["jobs", "stats", "--watch", "0"],
        ["jobs", "stats", "--watch", "nan"],
        ["jobs"],
        ["jobs", "cancel"],
        ["prunejobs", "--limit", "-1"],
        ["reconcile", "--every", "0"],
        ["reconcile", "--every", "soon"],
        ["reconcile", "--limit", "many"],
    ],
)
def test_words_that_make_no_sense(words: list[str]) -> None:
    assert run(*words).error


# jobs stats


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


# prunejobs


@pytest.mark.django_db
@shows("prunejobs --json")
def test_prune() -> None:
    for _ in range(2):
        long_ago(completed=True)
    long_ago(cancelled=True)
    long_ago(failed=True)
    kept = [JobFactory(completed=True), JobFactory(), long_ago(20, failed=True)]
    assert run("prunejobs", "--json").json == {
        "dry_run": False,
        "interrupted": False,
        "removed": {"completed": 2, "cancelled": 1, "failed": 1},
        "total": 4,
        "held": 0,
        "held_ids": [],
    }
    assert set(Job.objects.all()) == set(kept)
    ran = run("prunejobs")
    assert ran.code == 0
    assert "Nothing was old enough" in ran.out
    assert re.search(r"^completed +7d +0$", ran.out, re.MULTILINE)


@pytest.mark.django_db
@shows("prunejobs --dry-run")
def test_prune_dry_run_tells_what_would_be_removed() -> None:
    Note.objects.create(text="mine", job=long_ago(completed=True))
    for _ in range(3):
        long_ago(completed=True)
    long_ago(cancelled=True)
    JobFactory(failed=True)
    dry = run("prunejobs", "--dry-run", "--json").json
    assert "A dry run: nothing was removed." in run("prunejobs", "--dry-run").out
    limited = run("prunejobs", "--dry-run", "--json", "--limit", 2).json
    assert limited["total"] == 2
    assert Job.objects.count() == 6
    real = run("prunejobs", "--json").json
    assert dry["dry_run"] is True
    assert (dry["removed"], dry["held"]) == (real["removed"], real["held"])
    assert dry["held"] == 1


@pytest.mark.django_db
@shows("prunejobs --limit")
def test_prune_limit() -> None:
    for _ in range(5):
        long_ago(completed=True)
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 2
    assert Job.objects.count() == 3
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 2
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 1


@pytest.mark.django_db
def test_prune_leaves_what_others_hold_and_says_so() -> None:
    held = [long_ago(completed=True) for _ in range(12)]
    for job in held:
        Note.objects.create(text="mine", job=job)
    long_ago(completed=True)
    ran = run("prunejobs", "--limit", 5)
    assert re.search(r"^completed +7d +1$", ran.out, re.MULTILINE)
    assert "Left, held by a foreign key of another table: 12 jobs" in ran.out
    assert "and 2 more (--json lists them all)" in ran.out
    assert ran.code == 0
    answer = run("prunejobs", "--json").json
    assert (answer["total"], answer["held"]) == (0, 12)
    assert set(answer["held_ids"]) == {str(job.pk) for job in held}


@pytest.mark.django_db
def test_prune_keeps_what_the_settings_keep(settings: Any) -> None:
    options = {"retention": {"completed": None, "failed": None, "cancelled": None}}
    backend = {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
    settings.TASKS = {"default": backend}
    long_ago(completed=True)
    ran = run("prunejobs")
    assert re.search(r"^completed +for ever +0$", ran.out, re.MULTILINE)
    assert run("prunejobs", "--dry-run", "--json").json["total"] == 0
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_prune_interrupted_keeps_what_is_done() -> None:
    """The signal comes during the first batch: that one is finished, and no other is begun."""
    many(1_100, long_ago(completed=True))

    def interrupt(**kwargs: Any) -> None:
        post_delete.disconnect(interrupt, sender=Job)
        os.kill(os.getpid(), signal.SIGTERM)

    post_delete.connect(interrupt, sender=Job)
    ran = run("prunejobs", "--json")
    assert ran.code == 143
    assert ran.json["interrupted"] is True
    assert ran.json["total"] == 500
    assert ran.err == "Stopped early; what was removed stays removed.\n"
    assert Job.objects.count() == 601


# Any terminal, any pipe, any database


HOSTILE = "\x1b[2J\x1b]0;owned\x07evil\u202e.tåsk😀"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.django_db(transaction=True)
def test_nothing_hostile_reaches_the_terminal(
    child_environment: Callable[..., dict[str, str]], encoding: str
) -> None:
    job = JobFactory(task_path=HOSTILE, queue_name="q\nq", failed=True, error=f"E: {HOSTILE}")
    JobLogFactory(job=job, message=HOSTILE, actor_name=HOSTILE, data={"traceback": HOSTILE})
    QueueFactory(name=HOSTILE)
    WorkerFactory(host=HOSTILE, queues=[HOSTILE])
    environment = child_environment(PYTHONIOENCODING=encoding)
    script = (
        "import django, sys; django.setup()\n"
        "from django.core.management import call_command as call\n"
        f"call('jobs', 'list'); call('jobs', 'show', '{job.pk}'); call('jobs', 'stats')\n"
        f"call('jobs', 'show', '{job.pk}', '--json'); call('jobs', 'list', '--json')\n"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env=environment, capture_output=True, check=True)
    out = ran.stdout.decode(encoding)
    assert not set(out) & set("\x1b\x07\u202e")
    assert "\\x1b[2J" in out
    assert ("😀" in out) is (encoding == "utf-8")
    assert ran.stderr == b""


@pytest.mark.parametrize("words", [["jobs", "list"], ["jobs", "stats", "--watch", "0.01"]])
@pytest.mark.django_db(transaction=True)
def test_reader_of_the_pipe_leaves(
    child_environment: Callable[..., dict[str, str]], words: list[str]
) -> None:
    JobFactory.create_batch(50)
    read, write = os.pipe()
    os.close(read)
    with running(manage(child_environment(), *words, stdout=write)) as process:
        os.close(write)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, "")


@pytest.mark.parametrize("words", [["jobs", "list"], ["reconcile"], ["prunejobs"]])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://nobody@127.0.0.1:1/nothing", "The database 'default' cannot be reached: "),
        (
            "sqlite:///{folder}/empty.sqlite3",
            "The tables of jobqueue are missing on the database 'default'. "
            "Run: manage.py migrate --database default",
        ),
    ],
)
def test_no_database(
    child_environment: Callable[..., dict[str, str]],
    tmp_path: Path,
    words: list[str],
    url: str,
    said: str,
) -> None:
    environment = child_environment() | {"DATABASE_URL": url.format(folder=tmp_path)}
    with running(manage(environment, *words)) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"CommandError: {said}")
    assert "Traceback" not in err


def test_queue_without_rows_is_not_made_by_looking(db: None) -> None:
    JobFactory(queue_name="new")
    run("jobs", "stats")
    assert not Queue.objects.exists()
