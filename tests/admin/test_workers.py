"""The pages of the workers: who is heard of, what each runs, and what it was asked."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue.admin import workers
from jobqueue.models import Worker
from tests.admin.people import staff
from tests.factories import JobFactory, WorkerFactory, ago

pytestmark = pytest.mark.django_db

PAGE = "admin:jobqueue_worker_changelist"
LIVE = "admin:jobqueue_worker_live"
ONE = "admin:jobqueue_worker_change"
EVIL = "<script>alert(1)</script>\"'><svg onload=alert(2)>"


def body(client: Client, name: str = PAGE, *args: Any, **query: str) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def rows(html: str) -> list[str]:
    """The rows as text without tags."""
    return [plain(row) for row in re.findall(r'<tr data-jq="worker-row".*?</tr>', html, re.DOTALL)]


def running(worker: Worker, number: int = 1, **more: Any) -> list[Any]:
    return JobFactory.create_batch(
        number, processing=True, lease_owner=worker.pk, worker=str(worker), **more
    )


def test_standing_goes_by_the_heartbeat_alone() -> None:
    """The flag in the row says what the worker said last, which is nothing once it is dead."""
    WorkerFactory(host="alive", heartbeat_at=ago(19))
    WorkerFactory(host="late", heartbeat_at=ago(25))
    WorkerFactory(host="silent", heartbeat_at=ago(40))
    WorkerFactory(host="gone", heartbeat_at=ago(4_000), state=Worker.State.GONE)
    html = body(staff())
    assert [re.findall(r"(silent|late|alive)", row)[:2] for row in rows(html)] == [
        ["silent", "silent"],
        ["late", "late"],
        ["alive", "alive"],
    ]
    assert "1 alive · 1 late · 1 silent · Show 1 gone worker" in plain(html)
    assert "gone" in rows(body(staff(), gone="1"))[-1]


def test_silent_worker_says_what_follows() -> None:
    worker = WorkerFactory(heartbeat_at=ago(40))
    running(worker, 2, lease_expires_at=ago(-25.9))
    assert "Its 2 leases run out in 2" in rows(body(staff()))[0]
    running(worker, 1, lease_expires_at=ago(-1_000))
    assert "Its 3 leases run out in 16 min" in rows(body(staff()))[0]
    worker.state = Worker.State.GONE
    worker.save()
    assert "the sweep then requeues the jobs" in rows(body(staff(), gone="1"))[0]


def test_slots_and_running_jobs() -> None:
    worker = WorkerFactory(slots=8, memory=300 * 2**20, queues=["mail", "maths"])
    jobs = running(worker, 7, task_path="shop.charge")
    html = body(staff())
    (row,) = rows(html)
    assert "7 of 8" in row
    assert "and 2 more" in row
    assert "mail, maths" in row
    assert "300.0" in row
    assert html.count("shop.charge") == 5
    assert f"/job/{jobs[0].pk}/change/" in html
    assert '<meter min="0" max="8" value="7"' in html


def test_version_that_differs_is_marked() -> None:
    WorkerFactory.create_batch(2, version="2")
    WorkerFactory(version="1", host="old")
    marked = [row for row in rows(body(staff())) if "differs" in row]
    assert len(marked) == 1
    assert marked[0].startswith("old")


def test_what_was_asked_stands_until_it_is_heard() -> None:
    asked = {"asked": "quiet", "asked_at": ago(3), "asked_by": "Ada", "asked_reason": "leaks"}
    worker = WorkerFactory(**asked)
    client = staff("control_worker")
    (row,) = rows(body(client))
    assert "quiet asked by Ada 3 s ago : leaks" in row
    assert "Quiet…" not in row
    assert "Stop…" in row
    worker.state = Worker.State.QUIET
    worker.save()
    (row,) = rows(body(client))
    assert "asked" not in row
    assert "Quiet: finishes what runs" in row
    worker.asked = "stop"
    worker.save()
    (row,) = rows(body(client))
    assert "stop asked by Ada" in row
    assert "…" not in row


def test_who_may_ask() -> None:
    worker = WorkerFactory()
    for html in (body(staff()), body(staff(), ONE, worker.pk)):
        assert 'data-jq="act"' not in html
    client = staff("control_worker", name="bob")
    for html in (body(client), body(client, ONE, worker.pk)):
        verbs = re.findall(r'href="/admin/jobqueue/worker/act/(\w+)/[^"]*" data-jq="act"', html)
        assert verbs == ["quiet", "stop"]


def test_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SHOWN", 3)
    for number in range(8):
        WorkerFactory(host=f"h{number // 3}", pid=9 - number % 3)
    client = staff()
    seen: list[str] = []
    query: dict[str, str] = {}
    for _ in range(3):
        html = body(client, **query)
        seen += [row.split()[1] for row in rows(html)]
        after = re.search(r'rel="next" href="\?after=([^"]*)"', html)
        query = {"after": after[1]} if after else {}
    assert seen == [":7", ":8", ":9", ":7", ":8", ":9", ":8", ":9"]
    for nonsense in ("x", str(uuid.uuid4()), "\0"):
        assert len(rows(body(client, after=nonsense))) == 3


def test_none_at_all() -> None:
    html = body(staff())
    assert "No worker has reported." in html
    assert "Jobs are waiting." not in html
    JobFactory()
    assert "Jobs are waiting." in body(staff())


def test_page_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerFactory(host="web1", queues=["mail"])
    old = JobFactory(completed=True, worker=str(worker))
    (job,) = running(worker, task_path="shop.charge")
    done = JobFactory(completed=True, worker=str(worker), task_path="shop.refund")
    JobFactory(completed=True, task_path="others.task")
    monkeypatch.setattr(workers, "LOOKED_AT", 3)
    html = body(staff(), ONE, worker.pk)
    for text in (
        "web1",
        "mail",
        "shop.charge",
        "shop.refund",
        f"/job/{job.pk}/",
        f"/job/{done.pk}/",
    ):
        assert text in html
    assert "others.task" not in html
    assert f"/job/{old.pk}/" not in html  # behind what is looked at
    assert "Among the newest 3 jobs." in html


@pytest.mark.parametrize("key", ["nonsense", "01890000-0000-7000-8000-000000000000", "1", EVIL])
def test_page_of_nothing(key: str) -> None:
    response = staff().get(f"/admin/jobqueue/worker/{key.replace('/', '_2F')}/change/", follow=True)
    assert response.status_code == 200
    html = response.content.decode()
    assert "doesn’t exist" in html
    assert "<script>alert" not in html


def test_hostile_and_odd_rows() -> None:
    worker = WorkerFactory(host=EVIL, queues=[EVIL, None, 3], version=EVIL[:50], asked="quiet",
                           asked_by=EVIL, asked_reason=EVIL, slots=0)  # fmt: skip
    running(worker, task_path=EVIL, queue_name=EVIL[:90])
    odd = WorkerFactory(queues={"a": 1}, asked="", state="nonsense")
    html = body(staff("control_worker"))
    for row in (worker, odd):
        html += body(staff("control_worker"), ONE, row.pk)
    assert "<script>alert" not in html
    assert "<svg onload" not in html


def test_live_part() -> None:
    WorkerFactory()
    response = staff().get(reverse(LIVE))
    assert "no-store" in response["Cache-Control"]
    assert len(rows(response.content.decode())) == 1
    assert "<html" not in response.content.decode()


@pytest.mark.parametrize("name", [PAGE, LIVE])
def test_rights(name: str, client: Client) -> None:
    assert client.get(reverse(name)).status_code == 302
    refused = staff("view_job", name="bob", view=False)
    assert refused.get(reverse(name)).status_code == 403
    assert refused.get(reverse(ONE, args=[WorkerFactory().pk])).status_code == 403


def test_as_many_questions_for_many() -> None:
    client = staff("control_worker")
    counts = []
    for number in (1, 20):
        for worker in WorkerFactory.create_batch(number):
            running(worker, 2)
        with CaptureQueriesContext(connection) as captured:
            body(client)
        counts.append(len(captured))
    assert counts[0] == counts[1]
