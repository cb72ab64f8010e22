"""The page of the queues: their numbers, who serves them, and pausing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import tallies
from jobqueue.admin import JobAdmin
from jobqueue.models import Job, Queue, Tally, Worker
from tests.admin.people import staff
from tests.factories import JobFactory, QueueFactory, WorkerFactory, ago

pytestmark = pytest.mark.django_db

PAGE = "admin:jobqueue_queue_changelist"
LIVE = "admin:jobqueue_queue_live"
EVIL = "<script>alert(1)</script>\"'><svg onload=alert(2)>"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from the test before."""
    cache.clear()
    yield
    cache.clear()


def body(client: Client, view: str = PAGE, /, **query: str) -> str:
    response = client.get(reverse(view), query)
    assert response.status_code == 200
    return response.content.decode()


def rows(html: str) -> dict[str, str]:
    """The rows as text without tags, by the queue's name, in their order."""
    found = {}
    for row in re.findall(r'<tr data-jq="queue-row".*?</tr>', html, re.DOTALL):
        words = " ".join(re.sub(r"<[^>]*>", " ", row).split())
        found[words.split()[0]] = words
    return found


def test_numbers() -> None:
    QueueFactory(name="mail")
    WorkerFactory(queues=["mail"], slots=8)
    WorkerFactory(queues=[], slots=4)
    WorkerFactory(queues=["other"])
    WorkerFactory(queues=["mail"], heartbeat_at=ago(500))
    WorkerFactory(queues=["mail"], state=Worker.State.QUIET)
    JobFactory.create_batch(3, queue_name="mail", run_after=ago(7_300))
    JobFactory.create_batch(2, queue_name="mail", processing=True)
    JobFactory(queue_name="mail", processing=True, lease_expires_at=ago(1))
    JobFactory(queue_name="mail", scheduled=True)
    JobFactory.create_batch(2, queue_name="mail", scheduled=True, error="no")
    JobFactory(queue_name="mail", completed=True)
    for span in (60, 900):
        Tally.objects.create(
            span=span, starts_at=tallies._start(ago(0), span), queue_name="mail", task_path="a",
            completed=118, failed=2,
        )  # fmt: skip
    assert rows(body(staff("pause_queue")))["mail"] == (
        "mail 3 2 h ago 2 of 12 1 lost 1 2 retrying 2 avg 2/min 2 Running Pause… mail"
    )


def test_order_and_what_is_wrong() -> None:
    for name in ("young", "idle", "old", "paused"):
        QueueFactory(name=name)
    Queue.objects.filter(name="paused").update(
        paused_at=ago(2_520),
        paused_by="Ada",
        pause_reason="upstream is down",
        paused_until=ago(-7_300),
    )
    JobFactory(queue_name="old", run_after=ago(9_999))
    JobFactory(queue_name="young", run_after=ago(5))
    JobFactory(queue_name="unseen", run_after=ago(50))
    found = rows(body(staff("pause_queue")))
    assert list(found) == ["paused", "old", "unseen", "young", "idle"]
    assert "Paused by Ada 42 min ago , resumes in 2 h : upstream is down Resume…" in found["paused"]
    assert "No live worker takes this queue" in found["old"]
    assert "No live worker takes this queue" not in found["idle"]
    assert "Pause…" not in found["unseen"]  # there is no row that could be paused


def test_who_may_pause() -> None:
    QueueFactory(name="mail")
    html = body(staff())
    assert 'data-jq="act"' not in html
    html = body(staff("pause_queue", name="bob"))
    url = re.search(r'href="([^"]*)" data-jq="act"', html)
    assert url
    assert url[1].startswith("/admin/jobqueue/queue/act/pause/")


def test_links_lead_to_the_jobs_counted() -> None:
    name = "a b/ü&c"
    QueueFactory(name=name)
    JobFactory(queue_name=name)
    JobFactory(queue_name="other")
    client = staff()
    url = re.search(r'href="([^"]*\?state=queued[^"]*c)"', body(client))
    assert url
    listed = client.get(url[1].replace("&amp;", "&")).content.decode()
    assert len(set(re.findall(r"/job/([0-9a-f-]{36})/change/", listed))) == 1


def test_page_of_one_is_its_jobs() -> None:
    name = "a_b/ü"
    QueueFactory(name=name)
    client = staff()
    response = client.get(reverse("admin:jobqueue_queue_change", args=[quote(name)]))
    assert response.status_code == 302
    assert response["Location"] == "/admin/jobqueue/job/?queue=a_b%2F%C3%BC"
    client = staff("view_job", name="bob", view=False)
    response = client.get(reverse("admin:jobqueue_queue_change", args=[quote(name)]))
    assert response.status_code == 403


def test_many_are_narrowed_by_name() -> None:
    client = staff()
    for number in range(20):
        QueueFactory(name=f"q{number:02}")
    assert 'name="name"' not in body(client)
    QueueFactory(name="mail-eu")
    html = body(client)
    assert 'name="name"' in html
    assert len(rows(html)) == 21
    assert list(rows(body(client, name="MAIL"))) == ["mail-eu"]
    assert "No queue has this in its name." in body(client, name="nothing")


def test_none_at_all() -> None:
    assert "No queue has been used yet." in body(staff())


def test_hostile_text() -> None:
    QueueFactory(name=EVIL[:90], paused_at=ago(5), paused_by=EVIL, pause_reason=EVIL)
    JobFactory(queue_name=EVIL[:90])
    html = body(staff("pause_queue"), name="<svg")
    html += body(staff("pause_queue"), name="<script")
    assert "<script>alert" not in html
    assert "<svg onload" not in html


def test_live_part() -> None:
    QueueFactory(name="mail")
    response = staff().get(reverse(LIVE))
    assert "no-store" in response["Cache-Control"]
    assert "X-JQ-Now" in response
    html = response.content.decode()
    assert list(rows(html)) == ["mail"]
    assert "<html" not in html


@pytest.mark.parametrize("name", [PAGE, LIVE])
def test_rights(name: str, client: Client) -> None:
    assert client.get(reverse(name)).status_code == 302
    assert staff("view_job", name="bob", view=False).get(reverse(name)).status_code == 403


def test_one_question_for_all_queues() -> None:
    client = staff()
    counts = []
    for number in (2, 30):
        for place in range(number):
            QueueFactory(name=f"{number}-{place}")
            JobFactory(queue_name=f"{number}-{place}")
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            body(client)
        counts.append(len(captured))
    assert counts[0] == counts[1]
    with CaptureQueriesContext(connection) as captured:
        body(client)
    assert not [query for query in captured if '"jobqueue_job"' in query["sql"]]


class Tenant(JobAdmin):
    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(queue_name=request.user.get_username())


def test_limited_people_get_their_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(admin.site._registry, Job, Tenant(Job, admin.site))
    for name in ("ann", "bob"):
        QueueFactory(name=name)
        JobFactory.create_batch(2, queue_name=name)
    Tally.objects.create(
        span=900, starts_at=tallies._start(ago(0), 900), queue_name="bob", task_path="a", failed=77
    )
    found = rows(body(staff(name="ann")))
    assert found["ann"].startswith("ann 2 ")
    assert found["bob"].startswith("bob 0 ")
    assert "77" not in found["bob"]
