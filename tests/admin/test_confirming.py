"""Every change that staff make: what the confirmation shows, what it does, and what it writes down."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve, reverse
from django.utils import timezone

from jobqueue import ids, lifecycle
from jobqueue.admin import choosing, doing
from jobqueue.models import AuditEntry, Job, JobLog, Queue, Worker
from tests.admin.people import JOBS, address, confirm, form, send, staff, tick, token_of
from tests.factories import JobFactory, JobLogFactory, QueueFactory, WorkerFactory, ago, now

pytestmark = pytest.mark.django_db

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
FAILED = "state=failed"


def statuses(*jobs: Job) -> list[str]:
    found = dict(Job.objects.values_list("pk", "status"))
    return [str(found.get(job.pk, "none")) for job in jobs]


def many(number: int, **values: Any) -> list[Job]:
    """So many jobs like one of the factory's, fast."""
    job = JobFactory(**values)
    row = {field.attname: getattr(job, field.attname) for field in Job._meta.fields}
    more = [Job(**row | {"id": ids.uuid7()}) for _ in range(number - 1)]
    return [job, *Job.objects.bulk_create(more, batch_size=500)]


def table(body: str) -> list[list[str]]:
    """The preview: state, number, what will happen."""
    found = re.search(r'<table data-jq="preview"[^>]*>.*?</table>', body, re.DOTALL)
    assert found
    rows = re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", found[0], re.DOTALL)
    return [
        [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.split(r"</t[hd]>", row)[:3]]
        for row in rows
    ]


# What is shown and done


def test_two_ticked_jobs() -> None:
    client = staff("requeue_job")
    one, two, other = JobFactory.create_batch(3, failed=True)
    url = tick(client, "requeue", one, two, query=FAILED)
    body = client.get(url).content.decode()
    for text in ("Requeue 2 jobs?", "Requeue 2 jobs<", str(one.pk), "Back, change nothing"):
        assert text in body
    assert AuditEntry.objects.count() == 0
    assert statuses(one, two) == ["failed"] * 2
    assert confirm(client, url, "the API is back") == ["2 jobs queued."]
    assert statuses(one, two, other) == ["queued", "queued", "failed"]
    user = User.objects.get()
    for job in (one, two):
        line = JobLog.objects.get(job=job)
        assert (line.event, line.message) == ("requeued", "the API is back")
        assert (line.actor_id, line.actor_name) == (str(user.pk), "ann")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.target_kind, entry.reason) == ("requeue", "job", "the API is back")
    assert (entry.actor_id, entry.actor_name, entry.result) == (str(user.pk), "ann", "done")
    assert (entry.chosen, entry.changed, entry.skipped) == (2, 2, {})
    assert set(entry.target.split(", ")) == {str(one.pk), str(two.pk)}
    assert not LogEntry.objects.exists()  # it points at single rows only


def test_back_to_where_one_came_from() -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    url = tick(client, "requeue", job, query="state=failed&q=task:tests.tasks_sample.nothing")
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    response = client.post(url, data)
    assert response["Location"].endswith("?state=failed&q=task:tests.tasks_sample.nothing")
    assert urlparse(response["Location"]).netloc == ""


def test_all_that_match() -> None:
    client = staff("requeue_job", "bulk_job")
    jobs = many(281, failed=True)
    other = JobFactory(failed=True, queue_name="mail")
    url = tick(client, "requeue", jobs[0], query="state=failed&queue=default", across=True)
    assert len(url) < 600
    body = client.get(url).content.decode()
    assert "Requeue 281 jobs?" in body
    assert "state is Failed" in body
    assert table(body) == [["✕ Failed", "281", "Queued once more"]]
    assert len(body) < 20_000
    assert len(re.findall("<input", body)) < 10
    assert confirm(client, url) == ["281 jobs queued."]
    assert statuses(other) == ["failed"]
    assert Job.objects.filter(status="queued").count() == 281
    entry = AuditEntry.objects.get()
    assert (entry.chosen, entry.changed) == (281, 281)
    assert "state is Failed" in entry.target


def test_the_form_is_as_small_for_many() -> None:
    client = staff("cancel_job", "bulk_job")
    many(1_200)
    url = address(client, "job", "cancel", query="state=queued")
    body = client.get(url).content.decode()
    assert len(body) < 20_000
    assert len(re.findall("<input", body)) < 10
    assert confirm(client, url, number="1,200") == ["1,200 jobs cancelled."]
    assert not Job.objects.exclude(status="cancelled").exists()
    assert AuditEntry.objects.get().changed == 1_200


def test_what_changes_between_preview_and_confirmation_is_left_alone() -> None:
    client = staff("requeue_job", "cancel_job", "bulk_job")
    seen, taken = JobFactory.create_batch(2, failed=True)
    running = JobFactory(processing=True)
    url = address(client, "job", "requeue", query=FAILED)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    new = JobFactory(failed=True)
    Job.objects.filter(pk=running.pk).update(
        status="failed", finished_at=now(), lease_owner=None, lease_expires_at=None
    )
    lifecycle.requeue(taken.pk)
    assert send(client, url, data) == [
        "1 job queued. 1 skipped: 1 changed since the page was shown."
    ]
    assert statuses(seen, taken, new, running) == ["queued", "queued", "failed", "failed"]
    assert AuditEntry.objects.get().skipped == {"changed": 1}


def test_what_became_of_ticked_jobs_is_said() -> None:
    client = staff("cancel_job")
    waiting, running, gone = JobFactory(), JobFactory(processing=True), JobFactory()
    url = tick(client, "cancel", waiting, running, gone)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    ended = {"status": "completed", "finished_at": now()}
    Job.objects.filter(pk=running.pk).update(lease_owner=None, lease_expires_at=None, **ended)
    gone.delete()
    (message,) = send(client, url, data)
    assert message.startswith("1 job cancelled. 2 skipped: ")
    assert "1 completed" in message
    assert "1 removed meanwhile" in message
    assert AuditEntry.objects.get().chosen == 3


def test_a_job_that_came_later_by_a_slow_clock_is_left_alone() -> None:
    """Its id is lower than the newest that was seen; the database's clock knows better."""
    client = staff("cancel_job", "bulk_job")
    early = ids.uuid7()
    seen = JobFactory()
    url = address(client, "job", "cancel", query="state=queued")
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    late = JobFactory(id=early, enqueued_at=now() + timedelta(microseconds=1))
    send(client, url, data)
    assert statuses(seen, late) == ["cancelled", "queued"]


def test_mixed_states_are_told_apart_before_and_after() -> None:
    client = staff("requeue_job")
    jobs = [
        *JobFactory.create_batch(3, failed=True),
        *JobFactory.create_batch(2, processing=True),
        JobFactory(stopping=True),
        JobFactory(),
        JobFactory(scheduled=True, error="ValueError: no"),
    ]
    url = tick(client, "requeue", *jobs)
    only = "Skipped: only completed, failed and cancelled jobs can be requeued"
    assert sorted(table(client.get(url).content.decode())) == sorted(
        [
            ["✕ Failed", "3", "Queued once more"],
            ["▶ Processing", "2", only],
            ["⊘ Cancelled, still stopping", "1", "Skipped: still stopping"],
            ["○ Queued", "1", only],
            ["↻ Retrying", "1", only],
        ]
    )
    (message,) = confirm(client, url)
    head, _, tail = message.partition(": ")
    assert head == "3 jobs queued. 5 skipped"
    assert set(tail.rstrip(".").split(", ")) == {
        *("2 processing", "1 still stopping", "1 queued", "1 scheduled")
    }
    entry = AuditEntry.objects.get()
    assert entry.skipped == {"processing": 2, "stopping": 1, "queued": 1, "scheduled": 1}
    assert (entry.chosen, entry.changed) == (8, 3)


def test_nothing_to_do_is_said_at_once() -> None:
    client = staff("requeue_job", "cancel_job")
    job = JobFactory(completed=True)
    body = client.get(tick(client, "cancel", job)).content.decode()
    assert 'data-jq="nothing"' in body
    assert 'name="reason"' not in body


@pytest.mark.parametrize(
    ("reason", "said"),
    [("", "Say why"), ("   ", "Say why"), ("x" * 301, "At most 300 characters")],
)
def test_a_reason_is_required(reason: str, said: str) -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    url = tick(client, "requeue", job)
    data = form(client.get(url).content.decode()) | {"reason": reason}
    body = client.post(url, data).content.decode()
    field = re.search(r'<input[^>]*name="reason"[^>]*>', body)
    assert field
    assert 'aria-invalid="true"' in field[0]
    assert "id_reason_error" in field[0]
    assert " autofocus" in field[0]
    assert re.search(f'id="id_reason_error"[^>]*>{said}', body)
    assert statuses(job) == ["failed"]
    assert not AuditEntry.objects.exists()
    # And from there it goes on.
    assert send(client, url, form(body) | {"reason": "so"}) == ["1 job queued."]


def test_own_recent_reasons_are_offered() -> None:
    client, other = staff("requeue_job"), staff("requeue_job", name="ben")
    confirm(client, tick(client, "requeue", JobFactory(failed=True)), 'the "API" is back')
    confirm(other, tick(other, "requeue", JobFactory(failed=True)), "mine alone")
    body = client.get(tick(client, "requeue", JobFactory(failed=True))).content.decode()
    assert '<option value="the &quot;API&quot; is back">' in body
    assert "mine alone" not in body


def test_purge_needs_the_number() -> None:
    client = staff("purge_job")
    jobs = [*JobFactory.create_batch(3, failed=True), JobFactory()]
    JobLogFactory(job=jobs[0])
    url = tick(client, "purge", *jobs)
    body = client.get(url).content.decode()
    assert "Type 3 to confirm." in body
    for wrong in ("", "4", "three", "-3"):
        answer = client.post(url, form(body) | {"reason": "x", "number": wrong})
        assert answer.status_code == 200
        assert Job.objects.count() == 4
        field = re.search(r'<input[^>]*name="number"[^>]*>', answer.content.decode())
        assert field
        assert 'aria-invalid="true"' in field[0]
        assert " autofocus" in field[0]
    assert confirm(client, url, number="3") == ["3 jobs purged. 1 skipped: 1 queued."]
    assert list(Job.objects.all()) == [jobs[3]]
    assert not JobLog.objects.exists()
    assert AuditEntry.objects.get().changed == 3


def test_an_empty_filter_needs_the_number() -> None:
    client = staff("requeue_job", "bulk_job")
    JobFactory.create_batch(2, failed=True)
    url = tick(client, "requeue", Job.objects.first(), across=True)
    body = client.get(url).content.decode()
    assert "You chose all jobs." in body
    assert "Type 2 to confirm." in body
    assert client.post(url, form(body) | {"reason": "x"}).status_code == 200
    assert confirm(client, url, number="2") == ["2 jobs queued."]


def test_more_than_one_request_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "CAP", 3)
    client = staff("cancel_job", "bulk_job")
    JobFactory.create_batch(4)
    body = client.get(address(client, "job", "cancel", query="state=queued")).content.decode()
    assert 'data-jq="too-many"' in body
    assert "Narrow the filter, or use manage.py jobs." in body
    assert 'name="reason"' not in body


def test_what_was_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle.batches, "BATCH", 2)
    client = staff("requeue_job")
    jobs = JobFactory.create_batch(5, failed=True)
    url = tick(client, "requeue", *jobs)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    begun = iter([0.0, 0.0, 30.0, 30.0])
    monkeypatch.setattr("jobqueue.lifecycle.batches.time.monotonic", lambda: next(begun, 30.0))
    monkeypatch.setattr(doing, "IN_ONE_REQUEST", 20.0)
    response = client.post(url, data)
    assert "/act/requeue/?t=" in response["Location"]
    monkeypatch.undo()
    body = client.get(response["Location"]).content.decode()
    assert "2 jobs queued. 3 were not reached in time: confirm again to go on." in body
    assert "Requeue 3 jobs?" in body
    entry = AuditEntry.objects.get()
    assert (entry.result, entry.chosen, entry.changed) == ("done", 5, 2)
    assert entry.message == "3 were not reached in time."
    confirm(client, response["Location"])
    assert not Job.objects.filter(status="failed").exists()


def test_a_batch_and_its_numbers_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies in the middle leaves a row that says so, with what was changed until then."""
    monkeypatch.setattr(lifecycle.batches, "BATCH", 2)
    client = staff("requeue_job")
    jobs = JobFactory.create_batch(5, failed=True)
    url = tick(client, "requeue", *jobs)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    calls = []

    def note(entry: AuditEntry, counts: lifecycle.Counts) -> None:
        calls.append(counts.changed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        entry.changed = counts.changed
        entry.save()

    monkeypatch.setattr(doing.auditing, "note", note)
    with pytest.raises(KeyboardInterrupt):
        client.post(url, data)
    entry = AuditEntry.objects.get()
    assert (entry.result, entry.changed) == ("running", 2)
    assert Job.objects.filter(status="queued").count() == 2


# Twice


def test_sent_twice() -> None:
    client = staff("requeue_job")
    jobs = JobFactory.create_batch(2, failed=True)
    url = tick(client, "requeue", *jobs)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    assert send(client, url, data) == ["2 jobs queued."]
    again = "Nothing was changed. 2 skipped: 2 queued."
    assert send(client, url, data) == [f"{again} You had sent this before: 2 jobs queued."]
    assert send(client, url, data | {"reason": "another"}) == [again]
    # One of them has run and failed again meanwhile: the reload does not queue it once more.
    Job.objects.filter(pk=jobs[0].pk).update(status="failed", finished_at=now(), attempt=2)
    (message,) = send(client, url, data)
    assert "1 changed since the page was shown" in message
    assert statuses(*jobs) == ["failed", "queued"]
    assert JobLog.objects.filter(event="requeued").count() == 2
    assert list(AuditEntry.objects.order_by("pk").values_list("changed", flat=True)) == [2, 0, 0, 0]


def test_paused_twice() -> None:
    client = staff("pause_queue")
    queue = QueueFactory()
    url = address(client, "queue", "pause", queue)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    assert send(client, url, data) == ["1 queue paused."]
    Queue.objects.update(paused_at=None)  # somebody resumed it
    assert send(client, url, data) == [
        "Nothing was changed. 1 skipped: 1 changed since the page was shown."
        " You had sent this before: 1 queue paused."
    ]
    assert Queue.objects.get().paused_at is None


# Tokens


def invalid(client: Client, url: str, data: dict[str, str] | None = None) -> None:
    """Sent away to the list, with a row in the audit log, and nothing changed."""
    before = AuditEntry.objects.count()
    jobs = list(Job.objects.order_by("pk").values())
    response = client.get(url, follow=True) if data is None else client.post(url, data, follow=True)
    assert response.redirect_chain[0][0] == reverse(JOBS)
    assert [str(message) for message in response.context["messages"]] == [
        "This confirmation link is not valid any more. Choose the jobs again."
    ]
    assert list(Job.objects.order_by("pk").values()) == jobs
    assert AuditEntry.objects.count() == before + 1
    entry = AuditEntry.objects.latest("pk")
    assert (entry.result, entry.changed) == ("refused", 0)
    assert entry.message.startswith("the confirmation: ")


def test_tokens_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = staff("requeue_job", "cancel_job"), staff("requeue_job", name="ben")
    job = JobFactory(failed=True)
    url = tick(client, "requeue", job)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    plain = url.partition("?")[0]
    altered = data | {"t": data["t"][:-1] + ("A" if data["t"][-1] != "A" else "B")}
    invalid(client, plain, altered)
    invalid(client, plain, data | {"t": "nonsense"})
    invalid(client, f"{plain}?t={token_of(url)[:-2]}xx")
    invalid(other, plain, data)
    invalid(other, url)
    invalid(client, plain.replace("requeue", "cancel"), data)
    at = signing.time.time
    monkeypatch.setattr(signing.time, "time", lambda: at() + 16 * 60)
    invalid(client, plain, data)
    invalid(client, url)


def test_an_address_does_not_confirm() -> None:
    """Sent in the place of the form's token it shows the page: nothing had been seen yet."""
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    url = tick(client, "requeue", job)
    response = client.post(url.partition("?")[0], {"t": token_of(url), "reason": "x"})
    assert "Requeue 1 job?" in response.content.decode()
    assert statuses(job) == ["failed"]


# Options and warnings


@pytest.mark.parametrize(("choice", "left"), [("one", 1), ("all", 5)])
def test_more_attempts(choice: str, left: int) -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    confirm(client, tick(client, "requeue", job), attempts=choice)
    job.refresh_from_db()
    assert job.max_attempts - job.attempt == left


def test_run_now_and_the_pointer_of_a_single_job() -> None:
    client = staff("requeue_job")
    job = JobFactory(scheduled=True)
    assert confirm(client, address(client, "job", "run_now", job)) == ["1 job queued to run now."]
    assert statuses(job) == ["queued"]
    pointer = LogEntry.objects.get()
    assert (pointer.object_id, pointer.user.get_username()) == (str(job.pk), "ann")
    assert "because" in pointer.change_message


def test_cancel_a_running_job() -> None:
    client = staff("cancel_job")
    job = JobFactory(processing=True)
    assert confirm(client, tick(client, "cancel", job)) == ["1 job cancelled."]
    job.refresh_from_db()
    assert job.is_stopping


def test_warnings() -> None:
    client = staff("requeue_job")
    jobs = JobFactory.create_batch(3, failed=True, queue_name="mail")
    gone = JobFactory(failed=True, task_path=f"tests.{EVIL}")
    for job, errors in zip(jobs, (["a", "a", "a"], ["b", "a", "a"], ["a", "a"]), strict=True):
        for error in errors:
            JobLogFactory(job=job, event="errored", message=error)
    QueueFactory(name="mail", paused_at=ago(5))
    body = client.get(tick(client, "requeue", *jobs, gone)).content.decode()
    assert "1 of the newest 4 failed with the same error three times in a row." in body
    assert "Queue mail is paused: 3 jobs will wait there." in body
    assert "is not known to this process: 1 job waits" in body
    assert "<script>alert" not in body


# Queues, workers, sweeps


def test_pause_and_resume() -> None:
    client = staff("pause_queue")
    queue = QueueFactory(name="mail / ä_2")
    JobFactory.create_batch(2, processing=True, queue_name=queue.pk)
    url = address(client, "queue", "pause", queue)
    body = client.get(url).content.decode()
    assert "Pause 1 queue?" in body
    assert "2 jobs that are running go on." in body
    assert confirm(client, url, "the API is down") == ["1 queue paused."]
    queue.refresh_from_db()
    assert queue.is_paused(now())
    assert (queue.paused_by, queue.pause_reason) == ("ann", "the API is down")
    assert confirm(client, address(client, "queue", "resume", queue)) == ["1 queue resumed."]
    queue.refresh_from_db()
    assert not queue.is_paused(now())
    entries = AuditEntry.objects.order_by("pk")
    assert [(each.verb, each.target, each.changed) for each in entries] == [
        ("pause", queue.pk, 1),
        ("resume", queue.pk, 1),
    ]
    assert LogEntry.objects.count() == 2


def test_pause_until(settings: Any) -> None:
    client = staff("pause_queue")
    queue = QueueFactory()
    url = address(client, "queue", "pause", queue)
    with timezone.override("Europe/Berlin"):
        data = form(client.get(url).content.decode()) | {"reason": "x"}
        for wrong in ("2020-01-01T10:00", "nonsense"):
            body = client.post(url, data | {"until": wrong}).content.decode()
            assert re.search(r'<input[^>]*name="until"[^>]*aria-invalid="true"', body)
        assert not AuditEntry.objects.exists()
    moment = timezone.localtime() if settings.USE_TZ else now()
    later = (moment + timedelta(hours=2)).replace(second=0, microsecond=0)
    confirm(client, url, until=later.strftime("%Y-%m-%dT%H:%M"))
    queue.refresh_from_db()
    assert queue.paused_until == later


def test_quiet_and_stop() -> None:
    client = staff("control_worker")
    worker, gone = WorkerFactory(), WorkerFactory(state=Worker.State.GONE)
    assert confirm(client, address(client, "worker", "quiet", worker, gone)) == [
        "1 worker asked to be quiet. 1 skipped: 1 gone."
    ]
    worker.refresh_from_db()
    assert (worker.asked, worker.asked_by, worker.asked_reason) == ("quiet", "ann", "because")
    assert confirm(client, address(client, "worker", "stop", worker)) == ["1 worker asked to stop."]
    assert AuditEntry.objects.count() == 2


def test_sweep() -> None:
    client = staff("run_sweep")
    url = address(client, "sweep", "sweep")
    assert "Run a sweep now?" in client.get(url).content.decode()
    (message,) = confirm(client, url)
    assert message.startswith("The sweep repaired ")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.target_kind, entry.result) == ("sweep", "sweep", "done")


# What people send


def test_hostile_texts() -> None:
    client = staff("requeue_job", "pause_queue")
    job = JobFactory(failed=True, task_path=EVIL, error=EVIL, queue_name=EVIL[:60])
    QueueFactory(name=EVIL[:60], paused_at=now())
    url = tick(client, "requeue", job)
    assert "<script>alert" not in client.get(url).content.decode()
    data = form(client.get(url).content.decode()) | {"reason": EVIL}
    response = client.post(url, data, follow=True)
    assert "<script>alert" not in response.content.decode()
    job2 = JobFactory(failed=True)
    assert "<script>alert" not in client.get(tick(client, "requeue", job2)).content.decode()
    assert (
        "<script>alert"
        not in client.get(address(client, "queue", "resume", Queue.objects.get())).content.decode()
    )


def test_no_argument_is_shown_or_found_without_the_right() -> None:
    client = staff("requeue_job", "bulk_job")
    job = JobFactory(failed=True, args=["canary"], kwargs={"a": "canary"}, return_value="canary")
    url = address(client, "job", "requeue", job)
    assert "canary" not in client.get(url).content.decode()
    body = client.get(address(client, "job", "requeue", query="q=args.a:x")).content.decode()
    assert "Requeue 0 jobs?" in body
    assert 'role="alert"' in body
    assert 'name="reason"' not in body


def test_odd_ids() -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    for odd in ("nonsense", "\0", "7", ""):
        data = {"action": "requeue_jobs", "_selected_action": [str(job.pk), odd]}
        assert client.post(reverse(JOBS), data).status_code == 400
    url = address(client, "job", "requeue", job, Job(id="nonsense"), Job())
    assert confirm(client, url) == ["1 job queued."]
    body = client.get(address(client, "job", "requeue", Job())).content.decode()
    assert "None of them is there any more." in body


def test_no_question_more_for_many_jobs() -> None:
    client = staff("cancel_job", "bulk_job")
    asked = []
    for number in (2, 400):
        many(number)
        url = address(client, "job", "cancel", query="state=queued")
        with CaptureQueriesContext(connection) as captured:
            client.get(url)
        asked.append(len(captured))
        wide = [each["sql"] for each in captured if '"jobqueue_job"."args"' in each["sql"]]
        assert not wide, wide
    assert asked[0] == asked[1] <= 16


def test_requests_in_a_transaction_of_their_own_keep_batches_and_refusals_apart() -> None:
    """With ATOMIC_REQUESTS a batch would hold its locks until the last one, and all would be lost together."""
    view = resolve(reverse("admin:jobqueue_job_act", args=["cancel"])).func
    assert "default" in view._non_atomic_requests  # type: ignore[attr-defined]


def test_a_hundred_ids_fit_in_an_address() -> None:
    client = staff("cancel_job")
    jobs = [Job(id=ids.uuid7()) for _ in range(100)]
    assert len(address(client, "job", "cancel", *jobs)) < 4_000  # what servers take


@pytest.mark.urls("tests.admin.ops")
def test_a_second_site_is_not_left() -> None:
    client = staff("requeue_job", "export_audit")
    job = JobFactory(failed=True)
    listed = reverse(JOBS, current_app="ops")
    assert listed.startswith("/x/ops/")
    data = {"action": "requeue_jobs", "_selected_action": [str(job.pk)]}
    url = client.post(f"{listed}?{FAILED}", data)["Location"]
    body = client.get(url).content.decode()
    audit = reverse("admin:jobqueue_auditentry_changelist", current_app="ops")
    response = client.post(url.partition("?")[0], form(body) | {"reason": "x"})
    assert response["Location"] == f"{listed}?{FAILED}"
    told = client.get(audit).content.decode()
    for page in (body, told):
        assert "/x/ops/jobqueue/" in page
        assert '="/admin/' not in page
    forged = client.get(f"{url[:-3]}xyz")
    assert forged["Location"] == listed
