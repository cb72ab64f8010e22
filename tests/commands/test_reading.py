"""`jobs list` and `jobs show`: which jobs, and what people and scripts read of them."""

from __future__ import annotations

import re

import pytest
from django.db import transaction

from jobqueue import lifecycle
from jobqueue.models import Job, JobLog, Status
from tests.commands.running import NOWHERE, run, shows
from tests.factories import JobFactory, JobLogFactory, ago
from tests.lifecycle.acts import reading_few_digits

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
def test_what_cannot_be_read_is_shown_so_and_kept() -> None:
    huge = 10**1000
    job = JobFactory(completed=True, args=[huge], kwargs={"a": huge}, return_value=huge)
    JobLogFactory(job=job, event=JobLog.Event.REQUEUED, attempt=1, data={"return_value": huge})
    with reading_few_digits():
        shown = run("jobs", "show", job.pk)
        assert shown.out.count("cannot be read here: Exceeds the limit (640 digits)") == 3
        assert "cannot be read" in run("jobs", "show", job.pk, "--json").json["args"]
        run("jobs", "requeue", job.pk)
        (row,) = Job.objects.filter(pk=job.pk)
        assert row.status == Status.QUEUED
        with pytest.raises(TypeError, match="must not be written"), transaction.atomic():
            row.save()
    assert Job.objects.get(pk=job.pk).args == [huge]


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
