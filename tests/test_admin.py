"""The admin's pages: what they show, who may do what there, and what they cost."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import ids
from jobqueue.admin import AT_ONCE, COUNTED, CappedPaginator
from jobqueue.models import Job, JobLog, Queue, Status, Worker
from tests.factories import JobFactory, JobLogFactory, QueueFactory, WorkerFactory, ago, now

pytestmark = pytest.mark.django_db

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7|add:7 }}"
JOBS = "admin:jobqueue_job_changelist"
QUEUES = "admin:jobqueue_queue_changelist"


def staff(*permissions: str) -> Client:
    """A browser of somebody with these rights and no others."""
    user = User.objects.create_user("ann", password="x", is_staff=True)
    for name in permissions:
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="jobqueue", codename=name)
        )
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, name: str, *args: object, **query: object) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def detail(client: Client, job: Job) -> str:
    return page(client, "admin:jobqueue_job_change", job.pk)


def act(client: Client, url: str, action: str, *keys: object, across: bool = False) -> list[str]:
    """Choose rows and an action; returns the messages of the page that follows."""
    data = {"action": action, "_selected_action": list(keys), "select_across": int(across)}
    response = client.post(url, data, follow=True)
    assert response.status_code == 200
    return [str(message) for message in response.context["messages"]]


def test_the_models_are_registered() -> None:
    assert {Job, Queue, Worker} <= set(admin.site._registry)


# The list


def test_list(admin_client: Client) -> None:
    queued = JobFactory(task_path="shop.tasks.charge", attempt=1, max_attempts=7)
    JobFactory(stopping=True)
    JobFactory(scheduled=True, queue_name="mail")
    body = page(admin_client, JOBS)
    for text in (queued.pk, "shop.tasks.charge", "1/7", "cancelled, still stopping", "mail"):
        assert str(text) in body


def shown(body: str) -> set[uuid.UUID]:
    found = re.findall(r"/job/([0-9a-f-]{36})/change/", body)
    return set(map(uuid.UUID, found))


def test_filters(admin_client: Client) -> None:
    mail, failed, both = (
        JobFactory(queue_name="mail"),
        JobFactory(failed=True),
        JobFactory(failed=True, queue_name="mail"),
    )
    QueueFactory(name="mail")
    assert "?queue=mail" in page(admin_client, JOBS)
    assert shown(page(admin_client, JOBS, status__exact="failed")) == {failed.pk, both.pk}
    assert shown(page(admin_client, JOBS, queue="mail")) == {mail.pk, both.pk}
    assert shown(page(admin_client, JOBS, queue="mail", status__exact="failed")) == {both.pk}
    assert shown(page(admin_client, JOBS, queue="\0")) == set()


def test_search(admin_client: Client) -> None:
    one = JobFactory(task_path="shop.tasks.charge")
    JobFactory(task_path="shop.tasks.discharge")
    for term in (str(one.pk), one.pk.hex, f"  {one.pk} ", "shop.tasks.charge"):
        assert shown(page(admin_client, JOBS, q=term)) == {one.pk}
    for term in ("charge", str(uuid.uuid4()), EVIL, "\0", "%"):
        assert shown(page(admin_client, JOBS, q=term)) in (
            set(),
            set(Job.objects.values_list("pk", flat=True)),
        )
    assert shown(page(admin_client, JOBS, q="charge")) == set()


def test_list_asks_little(admin_client: Client) -> None:
    """As many questions for fifty jobs as for one; no DISTINCT, no count of all, no arguments."""
    page(admin_client, JOBS)
    questions = []
    for number in (1, 60):
        JobFactory.create_batch(number, args=["x" * 1_000])
        with CaptureQueriesContext(connection) as captured:
            page(admin_client, JOBS)
        about_jobs = [each["sql"] for each in captured if '"jobqueue_job"' in each["sql"]]
        questions.append(len(captured))
        for sql in about_jobs:
            assert "DISTINCT" not in sql
            assert "LIMIT" in sql or number == 1
            assert '"jobqueue_job"."args"' not in sql or "COUNT" in sql
            assert "LIKE" not in sql
    assert questions[0] == questions[1]


def test_paginator_stops_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create_batch(5)
    assert CappedPaginator(Job.objects.order_by("-pk"), 50).count == 5
    monkeypatch.setattr("jobqueue.admin.COUNTED", 3)
    assert CappedPaginator(Job.objects.order_by("-pk"), 50).count == 3
    assert COUNTED > AT_ONCE


# One job


def test_detail(admin_client: Client) -> None:
    job = JobFactory(
        failed=True,
        args=[1, "ä"],
        kwargs={"order": 7},
        idempotency_key="order-7",
        worker="host:12:abcd",
    )
    JobLogFactory(
        job=job,
        event=JobLog.Event.ERRORED,
        attempt=1,
        message="ValueError: no",
        worker="host:12:abcd",
        data={"traceback": "Traceback (most recent call last): ...", "delay": 2},
    )
    body = detail(admin_client, job)
    for text in (
        *("&quot;order&quot;: 7", "&quot;ä&quot;", "order-7", "host:12:abcd"),
        *("Traceback (most recent call last)", "ValueError: no", "again in 2 s", "for good"),
    ):
        assert text in body
    assert 'name="_save"' not in body
    assert "deletelink" not in body


@pytest.mark.parametrize(
    "trait",
    ["scheduled", "queued", "processing", "completed", "failed", "cancelled", "stopping"],
)
def test_detail_in_every_state(admin_client: Client, trait: str) -> None:
    job = JobFactory(**{trait: True})
    assert "tests.tasks_sample.nothing" in detail(admin_client, job)


def test_detail_of_odd_rows(admin_client: Client) -> None:
    job = JobFactory(
        completed=True,
        task_path="gone.long.ago",
        args=["x" * 200_000],
        kwargs={"": None},
        return_value=[-0.0, 1e16, "\u202e"],
        progress={"done": 1, "total": None, "message": EVIL},
        timeout=None,
    )
    body = detail(admin_client, job)
    assert "gone.long.ago" in body
    assert "shortened" in body
    assert len(body) < 100_000


@pytest.mark.parametrize("key", ["nonsense", "01890000-0000-7000-8000-000000000000", "_00", "1"])
def test_detail_of_nothing(admin_client: Client, key: str) -> None:
    response = admin_client.get(reverse("admin:jobqueue_job_change", args=[key]), follow=True)
    assert response.status_code == 200
    assert "exist" in " ".join(str(message) for message in response.context["messages"])


def test_hostile_text_is_escaped(admin_client: Client) -> None:
    job = JobFactory(
        failed=True,
        **dict.fromkeys(("task_path", "idempotency_key", "worker", "error"), EVIL),
        queue_name=EVIL[:90],
        args=[EVIL],
        kwargs={EVIL: EVIL},
        progress={"message": EVIL},
    )
    JobLogFactory(
        job=job, message=EVIL, worker=EVIL, actor_name=EVIL, data={"traceback": EVIL, "from": EVIL}
    )
    JobFactory(completed=True, return_value=EVIL)
    queue = QueueFactory(name=EVIL[:90], paused_at=now(), paused_by=EVIL, pause_reason=EVIL)
    worker = WorkerFactory(host=EVIL, queues=[EVIL], version=EVIL[:50])
    pages = [
        page(admin_client, JOBS),
        page(admin_client, JOBS, q=EVIL),
        page(admin_client, JOBS, queue=EVIL[:90]),
        *(detail(admin_client, job) for job in Job.objects.all()),
        page(admin_client, QUEUES),
        page(admin_client, "admin:jobqueue_worker_changelist"),
        page(admin_client, "admin:jobqueue_worker_change", worker.pk),
        page(admin_client, "admin:jobqueue_queue_change", admin.utils.quote(queue.pk)),
    ]
    for body in pages:
        assert "<script>alert" not in body
        assert "<img src=x" not in body
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in detail(admin_client, job)
    messages = act(admin_client, reverse(JOBS), "requeue_jobs", job.pk)
    assert messages == ["1 job requeued."]


# Actions


def test_cancel_and_requeue(admin_client: Client, admin_user: User) -> None:
    waiting, running = JobFactory(), JobFactory(processing=True)
    done, stopping = JobFactory(completed=True), JobFactory(stopping=True)
    everything = [job.pk for job in (waiting, running, done, stopping)]
    assert act(admin_client, reverse(JOBS), "cancel_jobs", *everything) == [
        "1 job not cancelled: it is cancelled; only these can be cancelled: "
        "processing, queued, scheduled.",
        "1 job not cancelled: it is completed; only these can be cancelled: "
        "processing, queued, scheduled.",
        "2 jobs cancelled.",
    ]
    line = JobLog.objects.get(job=waiting, event=JobLog.Event.CANCELLED)
    assert (line.actor_id, line.actor_name) == (str(admin_user.pk), admin_user.get_username())
    assert Job.objects.get(pk=running.pk).is_stopping
    messages = act(admin_client, reverse(JOBS), "requeue_jobs", waiting.pk, done.pk, running.pk)
    assert messages == [
        "1 job not requeued: its cancelled run has not let go yet; try again when it has.",
        "2 jobs requeued.",
    ]
    assert JobLog.objects.filter(job=done, event=JobLog.Event.REQUEUED).count() == 1
    assert set(Job.objects.filter(status=Status.QUEUED)) == {waiting, done}


def test_action_on_all_that_match(admin_client: Client) -> None:
    JobFactory.create_batch(60, failed=True)
    other = JobFactory(failed=True, queue_name="mail")
    url = f"{reverse(JOBS)}?status__exact=failed&queue=default"
    QueueFactory(name="default")
    messages = act(admin_client, url, "requeue_jobs", Job.objects.first().pk, across=True)
    assert messages == ["60 jobs requeued."]
    assert list(Job.objects.filter(status=Status.FAILED)) == [other]


def test_action_on_too_many(admin_client: Client) -> None:
    job = JobFactory(failed=True)
    values = {field.attname: getattr(job, field.attname) for field in Job._meta.fields}
    rows = (Job(**values | {"id": ids.uuid7()}) for _ in range(AT_ONCE))
    Job.objects.bulk_create(rows, batch_size=500)
    messages = act(admin_client, reverse(JOBS), "requeue_jobs", job.pk, across=True)
    assert len(messages) == 1
    assert messages[0].startswith("Nothing was requeued: more than 1,000 jobs are selected.")
    assert not Job.objects.filter(status=Status.QUEUED).exists()


def test_pause_and_resume(admin_client: Client, admin_user: User) -> None:
    queue, other = QueueFactory(name="mail / ä"), QueueFactory()
    assert act(admin_client, reverse(QUEUES), "pause_queues", queue.pk) == ["1 queue paused."]
    queue.refresh_from_db()
    assert queue.is_paused(now())
    assert queue.paused_by == admin_user.get_username()
    other.refresh_from_db()
    assert not other.is_paused(now())
    messages = act(admin_client, reverse(QUEUES), "resume_queues", queue.pk, other.pk)
    assert messages == ["2 queues resumed."]
    queue.refresh_from_db()
    assert not queue.is_paused(now())
    assert queue.paused_by == ""


def test_queues_and_workers_pages(admin_client: Client) -> None:
    QueueFactory(name="over", paused_at=ago(60), paused_until=ago(1))
    body = page(admin_client, QUEUES)
    assert "over" in body
    assert "icon-no" in body
    worker = WorkerFactory(queues=["mail", "maths"])
    assert "mail, maths" in page(admin_client, "admin:jobqueue_worker_changelist")
    assert "mail, maths" in page(admin_client, "admin:jobqueue_worker_change", worker.pk)
    page(admin_client, "admin:jobqueue_queue_change", "over")


# Rights


def refused(client: Client, url: str) -> bool:
    return client.get(url).status_code == 403


def test_nobody_adds_changes_or_deletes(admin_client: Client) -> None:
    rows = {"job": JobFactory(), "queue": QueueFactory(), "worker": WorkerFactory()}
    for name, row in rows.items():
        key = row.pk
        assert refused(admin_client, reverse(f"admin:jobqueue_{name}_add"))
        assert refused(admin_client, reverse(f"admin:jobqueue_{name}_delete", args=[key]))
        url = reverse(f"admin:jobqueue_{name}_change", args=[key])
        assert admin_client.post(url, {"status": "failed", "name": "x"}).status_code == 403
        actions = page(admin_client, f"admin:jobqueue_{name}_changelist")
        assert "delete_selected" not in actions


def test_without_the_right_to_view() -> None:
    client, job = staff("cancel_job", "requeue_job"), JobFactory()
    assert refused(client, reverse("admin:jobqueue_job_change", args=[job.pk]))
    assert client.post(reverse(JOBS), {"action": "cancel_jobs"}).status_code == 403


@pytest.mark.parametrize("right", ["cancel_job", "requeue_job", ""])
def test_each_action_has_its_own_right(right: str) -> None:
    client = staff("view_job", *([right] if right else []))
    waiting, failed = JobFactory(), JobFactory(failed=True)
    body = page(client, JOBS)
    assert ("cancel_jobs" in body) is (right == "cancel_job")
    assert ("requeue_jobs" in body) is (right == "requeue_job")
    act(client, reverse(JOBS), "cancel_jobs", waiting.pk)
    act(client, reverse(JOBS), "requeue_jobs", failed.pk)
    waiting.refresh_from_db()
    failed.refresh_from_db()
    assert (waiting.status == "cancelled") is (right == "cancel_job")
    assert (failed.status == "queued") is (right == "requeue_job")
    for action in ("cancel_jobs", "requeue_jobs"):  # nor by way of the page of one job
        url = reverse("admin:jobqueue_job_change", args=[waiting.pk])
        client.post(url, {"action": action, "_selected_action": [waiting.pk]})
    if not right:
        assert not JobLog.objects.exists()


def test_pausing_has_its_own_right() -> None:
    client = staff("view_queue")
    queue = QueueFactory()
    act(client, reverse(QUEUES), "pause_queues", queue.pk)
    queue.refresh_from_db()
    assert queue.paused_at is None
    client.logout()
    User.objects.all().delete()
    client = staff("view_queue", "pause_queue")
    assert act(client, reverse(QUEUES), "pause_queues", queue.pk) == ["1 queue paused."]


def test_strangers_are_sent_away(client: Client) -> None:
    response: Any = client.get(reverse(JOBS))
    assert response.status_code == 302
    assert "login" in response["Location"]
