"""The page of one job: what it says, how it stays up to date, and what it does without an answer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from jobqueue import lifecycle
from jobqueue.admin import facts, history, related, tracebacks
from jobqueue.models import Job
from jobqueue.testing import run_jobs
from tests import tasks_sample as sample
from tests.admin import tasks
from tests.admin.one_job import STATES, address, detail, failed_job, get, part, staff, words_of
from tests.factories import JobFactory, WorkerFactory, ago, now

pytestmark = pytest.mark.django_db


# What it says


def test_why_it_failed_comes_first(admin_client: Client) -> None:
    body = detail(admin_client, failed_job(args=[2983], kwargs={"order": 7}))
    places = [
        body.index(f'data-jq="{name}"')
        for name in ("job-header", "job-error", "attempts", "facts", "args", "kwargs", "timeline")
    ]
    assert places == sorted(places)
    assert "CardError" in part(body, "job-header")
    attempts = part(body, "attempts")
    assert attempts.index(" open data-jq-open>") < attempts.index("File &quot;/srv/shop/tasks.py")
    assert '<span class="jq-library">  File &quot;/srv/venv' in attempts
    assert "<strong>stripe.CardError: no money for canary</strong>" in attempts
    assert "hunter2" not in body
    assert "data-jq-live" not in body


@pytest.mark.parametrize("trait", STATES)
def test_every_state_and_its_buttons(admin_client: Client, trait: str) -> None:
    body = detail(admin_client, JobFactory(**{trait: True}))
    wanted = {
        "scheduled": {"run_now", "cancel"},
        "queued": {"cancel"},
        "processing": {"cancel"},
        "completed": {"requeue", "purge"},
        "failed": {"requeue", "purge"},
        "cancelled": {"requeue", "purge"},
        "stopping": set(),
    }[trait]
    assert set(re.findall(r'data-jq="(requeue|run_now|cancel|purge)"', body)) == wanted
    assert ("data-jq-live" in body) is (trait not in ("completed", "failed", "cancelled"))
    assert not re.search(r'\sstyle="|\son\w+="|<script>|javascript:', body.replace("<script ", ""))


@pytest.mark.parametrize("right", ["requeue_job", "cancel_job", "purge_job"])
def test_each_button_has_its_right(right: str) -> None:
    client = staff("view_job", right)
    verbs = {
        "requeue_job": {"requeue", "run_now"},
        "cancel_job": {"cancel"},
        "purge_job": {"purge"},
    }
    seen: set[str] = set()
    for trait in STATES:
        body = detail(client, JobFactory(**{trait: True}))
        seen |= set(re.findall(r'data-jq="(requeue|run_now|cancel|purge)"', body))
    assert seen == verbs[right]


def test_lost_and_retrying(admin_client: Client) -> None:
    lost = JobFactory(processing=True, worker="web1:4100:abcd", lease_expires_at=ago(190))
    header = words_of(part(detail(admin_client, lost), "job-header"))
    assert "The lease of worker web1:4100:abcd ran out 3 min ago." in header
    assert "next sweep" in header
    assert "Lost" in part(detail(admin_client, lost), "attempts")
    retrying = JobFactory(scheduled=True, attempt=1, error="ValueError: no")
    header = words_of(part(detail(admin_client, retrying), "job-header"))
    assert "Retrying" in header
    assert "Attempt 2 may start in" in header


def test_lease_owner_and_durations(admin_client: Client) -> None:
    worker = WorkerFactory(version="1.4.2")
    job = JobFactory(
        processing=True, lease_owner=worker.pk, run_after=ago(5580), attempted_at=ago(2820)
    )
    found = words_of(part(detail(admin_client, job), "facts"))
    assert reverse("admin:jobqueue_worker_change", args=[worker.pk]) in detail(admin_client, job)
    assert "Waited 46 min" in found
    assert "Runs 47 min" in found
    assert "1.4.2" in found
    assert "renewed" in found
    gone = JobFactory(processing=True)
    assert f"{gone.lease_owner}, whose row is gone" in detail(admin_client, gone)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"done": 42, "total": 100, "message": "row 42"}, "42 % 42 of 100"),
        ({"done": 5, "total": None, "message": ""}, "5 done"),
        ({"done": 7, "total": 5}, "100 % 7 of 5"),
        ({"done": True}, "done"),
        ([1], "[1]"),
        ("half", "half"),
        ({"done": 1, "total": 0}, "1 done"),
    ],
)
def test_progress(admin_client: Client, said: Any, shown: str) -> None:
    job = JobFactory(processing=True, progress=said)
    assert shown in words_of(part(detail(admin_client, job), "job-header"))
    assert 'data-jq="job-progress"' not in detail(admin_client, JobFactory(processing=True))


def test_times_have_their_offset(admin_client: Client) -> None:
    body = detail(admin_client, failed_job())
    stamps = re.findall(r'datetime="([^"]*)"', body)
    assert len(stamps) > 5
    assert all(re.search(r"[+-]\d\d:\d\d$", stamp) for stamp in stamps)


def test_timeline_names_people_and_reasons(admin_client: Client) -> None:
    job = JobFactory(completed=True, return_value={"sum": 3})
    assert lifecycle.requeue(job.pk, actor="ada", reason="The price was wrong")
    assert lifecycle.cancel(job.pk, actor="ben", reason="Not needed")
    lines = words_of(part(detail(admin_client, job), "timeline"))
    events = re.findall(r"Enqueued|Started|Completed|Requeued|Cancelled", lines)
    assert events == ["Enqueued", "Started", "Completed", "Requeued", "Cancelled"]
    assert "ada it was completed The price was wrong" in lines
    assert "ben it was queued Not needed" in lines
    assert "by ada" in words_of(part(detail(admin_client, job), "related"))


def test_history_survives_a_requeue(admin_client: Client) -> None:
    """ADM-08: a job that fails twice, is requeued and succeeds keeps its first errors."""
    result = sample.fail.using(max_attempts=2).enqueue("the first error")
    run_jobs(until=now() + 2 * (now() - ago(3600)))
    job = Job.objects.get(pk=result.id)
    assert job.status == "failed"
    assert lifecycle.requeue(job.pk, actor="ada", reason="The card is fine now")
    Job.objects.filter(pk=job.pk).update(task_path="tests.tasks_sample.noop")
    run_jobs()
    body = detail(admin_client, job)
    attempts = part(body, "attempts")
    assert "Completed" in attempts
    assert words_of(attempts).count("ValueError : the first error") == 2
    assert attempts.count("Traceback (most recent call last)") == 2
    assert "ada" in part(body, "timeline")
    assert "The card is fine now" in part(body, "timeline")


@pytest.mark.parametrize("task", [tasks.grumble, tasks.grumble_atomically])
def test_lines_before_an_error_are_kept(admin_client: Client, task: Any) -> None:
    """LOG-01: what a task said before it raised, in order, with the error as the last entry."""
    result = task.enqueue()
    run_jobs()
    lines = words_of(part(detail(admin_client, Job.objects.get(pk=result.id)), "timeline"))
    said = ["first line", "second line", "third line", "the error comes last"]
    assert [lines.index(each) for each in said] == sorted(lines.index(each) for each in said)


def test_last_of_the_task(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory(failed=True)
    JobFactory.create_batch(25, completed=True)
    JobFactory(task_path="another.task")
    found = part(detail(admin_client, job), "related")
    assert found.count("jq-square jq-state-completed") == 20
    assert re.search(r"Completed, [\d.]+ s ago", found)
    monkeypatch.setattr(related, "WINDOW", 3)
    assert part(detail(admin_client, job), "related").count("jq-square jq-state") == 3


def test_a_job_nobody_ran_and_one_without_a_trace(admin_client: Client) -> None:
    assert "Not tried yet." in detail(admin_client, JobFactory())
    assert "Not recorded" in detail(admin_client, JobFactory(scheduled=True, attempt=2))
    assert "without arguments" in detail(admin_client, JobFactory())


# Live


def test_fragment(admin_client: Client) -> None:
    job = JobFactory(processing=True)
    for name, inside in (
        ("head", "Processing"),
        ("attempts", "Attempt 1"),
        ("timeline", "Enqueued"),
        ("", "Attempt 1"),
    ):
        response = get(admin_client, f"{address(job, 'live')}?part={name}")
        assert "no-store" in response["Cache-Control"]
        assert response["X-JQ-Now"]  # by which clock its ages are
        assert "X-JQ-Final" not in response
        body = response.content.decode()
        assert inside in body
        assert "<html" not in body
        assert "<section" not in body
    assert f'data-jq-live="{address(job, "live")}?part=head"' in detail(admin_client, job)


def test_fragment_of_a_job_that_ends(admin_client: Client) -> None:
    """H3: badge, buttons and attempts are those of the end, and it says so."""
    job = JobFactory(processing=True)
    Job.objects.filter(pk=job.pk).update(
        status="completed", lease_owner=None, lease_expires_at=None, finished_at=now()
    )
    response = get(admin_client, address(job, "live"))
    assert response["X-JQ-Final"] == "1"
    body = response.content.decode()
    assert 'data-jq="requeue"' in body
    assert 'data-jq="cancel"' not in body
    assert "Processing" not in body
    stopping = JobFactory(stopping=True)
    assert "X-JQ-Final" not in get(admin_client, address(stopping, "live"))


def test_history_is_the_audit_log(admin_client: Client) -> None:
    job = JobFactory()
    response = admin_client.get(address(job, "history"))
    wanted = reverse("admin:jobqueue_auditentry_changelist")
    assert response["Location"] == f"{wanted}?target={job.pk}"
    assert f"{wanted}?target={job.pk}" in detail(admin_client, job)
    assert "jobqueue_auditentry" not in detail(staff("view_job"), job)


# When the database does not answer


@pytest.fixture
def locked() -> Iterator[Callable[[str], None]]:
    """Locks a table from another connection until the test is over."""
    free, held = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hold(table: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            held.set()
            free.wait(30)
        connection.close()

    def lock(table: str) -> None:
        threads.append(threading.Thread(target=hold, args=[table]))
        threads[0].start()
        assert held.wait(10)

    yield lock
    free.set()
    for thread in threads:
        thread.join()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("table", ["jobqueue_joblog", "jobqueue_job"])
def test_a_slow_database_costs_a_panel(
    admin_client: Client, locked: Callable[[str], None], table: str
) -> None:
    job = failed_job(args=["shown"])
    locked(table)
    began = time.monotonic()
    body = detail(admin_client, job)
    assert time.monotonic() - began < 4
    assert 'data-jq="slow"' in body
    assert ("shown" in body) is (table == "jobqueue_joblog")


def test_split_error() -> None:
    assert tracebacks.split_error("ValueError: no: x") == ("ValueError", "no: x")
    assert tracebacks.split_error("jobqueue.Odd") == ("jobqueue.Odd", "")
    assert tracebacks.split_error("it did not work: x") == ("", "it did not work: x")
    assert tracebacks.split_error("") == ("", "")
    assert history.OUTCOMES[""].label == "Not recorded"
    assert facts.allows(JobFactory(stopping=True), "purge") is False
