"""The first page: the numbers, what needs attention, what it costs, and when the database is slow or not there."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.db import connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import tallies
from jobqueue.admin import JobAdmin, health, panels
from jobqueue.models import AuditEntry, Job, Tally, Worker
from tests.admin.people import staff
from tests.factories import JobFactory, QueueFactory, WorkerFactory, ago, now

pytestmark = pytest.mark.django_db

PAGE = "admin:jobqueue_overview_changelist"
LIVE = "admin:jobqueue_overview_live"
EVIL = "<script>alert(1)</script>\"'><svg onload=alert(2)>"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from the test before."""
    cache.clear()
    yield
    cache.clear()


def body(client: Client, name: str = PAGE, **query: str) -> str:
    response = client.get(reverse(name), query)
    assert response.status_code == 200
    return response.content.decode()


def tiles(html: str) -> dict[str, str]:
    return dict(re.findall(r'data-jq="tile-(\w+)">.*?<b>([^<]*)</b>', html))


def tally(seconds_ago: float = 0, **values: Any) -> None:
    """What happened in the present minute, or one before, and in the longer spans that it lies in."""
    counted = {"queue_name": "default", "task_path": "shop.charge", "completed": 1} | values
    rows = [
        Tally(span=span, starts_at=tallies._start(ago(seconds_ago), span), **counted)
        for span in tallies.KEPT
    ]
    Tally.objects.bulk_create(rows, ignore_conflicts=True)


def test_tiles_count_what_the_list_shows() -> None:
    client = staff()
    JobFactory.create_batch(3)
    JobFactory.create_batch(2, scheduled=True)
    JobFactory(scheduled=True, error="ValueError: no")
    JobFactory.create_batch(2, processing=True)
    JobFactory(processing=True, lease_expires_at=ago(5))
    JobFactory.create_batch(4, failed=True)
    JobFactory(completed=True)
    JobFactory(stopping=True)
    html = body(client)
    assert tiles(html) == {
        "queued": "3", "processing": "2", "retrying": "1", "failed": "4", "lost": "1",
        "scheduled": "2",
    }  # fmt: skip
    for key, number in tiles(html).items():
        url = re.search(rf'href="([^"]*)"[^>]*data-jq="tile-{key}"', html)
        assert url
        listed = client.get(url[1]).content.decode()
        assert len(set(re.findall(r"/job/([0-9a-f-]{36})/change/", listed))) == int(number)


def test_counts_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CAP", 3)
    monkeypatch.setattr("jobqueue.admin.words.CAP", 3)
    JobFactory.create_batch(5)
    assert tiles(body(staff()))["queued"] == "3+"


def test_nothing_at_all() -> None:
    html = body(staff())
    assert "Nothing needs attention." in html
    assert "No finished jobs in this period." in html
    assert "No task has failed in this period." in html
    assert set(tiles(html).values()) == {"0"}


def test_what_needs_attention() -> None:
    QueueFactory(name="mail", paused_at=ago(60), paused_by="Ada", pause_reason="upstream is down")
    QueueFactory(name="over", paused_at=ago(60), paused_until=ago(1))
    WorkerFactory(queues=["mail"], version="1")
    WorkerFactory(queues=["mail"], version="2")
    WorkerFactory(heartbeat_at=ago(300))
    JobFactory(queue_name="lonely", run_after=ago(1_200))
    JobFactory(queue_name="mail", run_after=ago(9_999))
    JobFactory(processing=True, lease_expires_at=ago(5))
    html = body(staff())
    for text in (
        "Queue mail is paused by Ada since",
        "upstream is down",
        "No live worker takes queue lonely.",
        "1 worker is silent.",
        "The oldest queued job has waited 20 min.",
        "1 job is lost.",
        "No sweep has run.",
        "Workers of different versions are running: 1, 2.",
    ):
        assert text in html, text
    assert "Queue over is paused" not in html
    assert "Nothing needs attention." not in html


def test_no_worker_is_alive() -> None:
    JobFactory()
    assert "No worker is alive. Start one with python manage.py runworker." in body(staff())
    cache.clear()
    WorkerFactory()
    assert "No worker is alive" not in body(staff())


def test_notices_lead_only_where_one_may_go() -> None:
    WorkerFactory(heartbeat_at=ago(300))
    url = reverse("admin:jobqueue_worker_changelist")
    assert body(staff()).count(f'<a href="{url}">Show</a>') == 1
    limited = staff("view_job", name="bob", view=False)
    html = body(limited)
    assert "1 worker is silent." in html
    assert url not in html


def test_chart_and_failing_tasks() -> None:
    tally(completed=5, failed=2, retried=1, last_error="Oops: password=hunter2")
    tally(60, completed=7, waits={"6": 7}, runs={"9": 7})
    html = body(staff())
    chart = re.search(r'<svg[^>]*role="img" aria-label="([^"]*)"', html)
    assert chart
    assert "12 completed, 1 to be retried, 2 failed in all, at most 8" in chart[1]
    assert html.count('<rect class="jq-reach"') == 60
    last = html.split('<rect class="jq-reach"')[-1]
    assert re.findall(r"jq-bar jq-state-(\w+)", last) == ["failed", "retrying", "completed"]
    assert "shop.charge" in html
    assert "state=failed&amp;task=shop.charge" in html
    assert "hunter2" not in html
    assert "+2 in the last hour" in html
    assert 'data-jq="chart-table"' in html
    assert 'style="' not in html


@pytest.mark.parametrize(("key", "spans"), [("1h", 60), ("24h", 96), ("7d", 84), ("x", 60)])
def test_ranges(key: str, spans: int) -> None:
    tally()
    html = body(staff(), range=key)
    assert html.count('<rect class="jq-reach"') == spans
    assert f'data-jq-live="{reverse(LIVE)}?range={key if key != "x" else "1h"}"' in html


def test_changes_are_for_those_who_may_read_the_log() -> None:
    AuditEntry.objects.create(
        at=now(), actor_name="Ada", verb="pause", target_kind="queue", target="mail",
        reason="upstream is down", chosen=1, changed=1,
    )  # fmt: skip
    assert "upstream is down" in body(staff())
    assert "upstream is down" not in body(staff("view_job", name="bob", view=False))


def test_hostile_text() -> None:
    QueueFactory(name=EVIL[:90], paused_at=ago(5), paused_by=EVIL, pause_reason=EVIL)
    WorkerFactory(version="1")
    WorkerFactory(version=EVIL[:50])
    tally(failed=1, task_path=EVIL, last_error=EVIL)
    html = body(staff())
    assert "<script>alert" not in html
    assert "<svg onload" not in html


def test_live_part() -> None:
    client = staff()
    response = client.get(reverse(LIVE))
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    assert "X-JQ-Now" in response
    assert "<html" not in response.content.decode()
    assert 'data-jq="tiles"' in response.content.decode()


@pytest.mark.parametrize("name", [PAGE, LIVE])
def test_rights(name: str, client: Client) -> None:
    assert client.get(reverse(name)).status_code == 302
    refused = staff("view_queue", name="bob", view=False).get(reverse(name))
    assert refused.status_code == 403


def test_there_are_no_other_pages() -> None:
    client = staff()
    url = reverse(PAGE)
    for rest in ("add/", "1/change/", "1/delete/"):
        assert client.get(f"{url}{rest}").status_code == 404


# What it costs


def test_many_tabs_are_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    client, calls = staff(), []
    compute = health.facts
    monkeypatch.setattr(health, "facts", lambda *args: (calls.append(1), compute(*args))[1])
    for _ in range(5):
        body(client)
    body(staff(name="bob"))
    assert len(calls) == 1
    body(client, range="7d")
    assert len(calls) == 2


def test_who_comes_meanwhile_waits_or_takes_what_was() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slowly() -> int:
        inside.set()
        assert go_on.wait(10)
        return 1

    def never() -> int:
        raise AssertionError("computed twice")

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(panels.shared("x", "", slowly)))]
    threads[0].start()
    assert inside.wait(10)
    threads.append(threading.Thread(target=lambda: found.append(panels.shared("x", "", never))))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert found == [1, 1]


def test_broken_cache_breaks_nothing(settings: Any) -> None:
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
            "LOCATION": "/dev/null/x",
        }
    }
    JobFactory()
    assert tiles(body(staff()))["queued"] == "1"


def test_failed_computation_frees_the_lock() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        panels.shared("x", "", fail)
    assert panels.shared("x", "", lambda: 2) == 2


def test_asks_little() -> None:
    client = staff()
    counts = []
    for number in (1, 40):
        JobFactory.create_batch(number, failed=True)
        JobFactory.create_batch(number, queue_name=f"q{number}")
        tally(60 * number, failed=1)
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            body(client)
        counts.append(len(captured))
        for query in captured:
            if 'FROM "jobqueue_job"' in query["sql"]:
                assert "LIMIT" in query["sql"]
    assert counts[0] >= counts[1] - 1  # one look for each queue that nobody serves
    with CaptureQueriesContext(connection) as captured:
        body(client)
    assert not [query for query in captured if '"jobqueue_job"' in query["sql"]]


# Limits of the site's own


class Tenant(JobAdmin):
    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(queue_name=request.user.get_username())


def test_limited_people_get_their_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(admin.site._registry, Job, Tenant(Job, admin.site))
    JobFactory.create_batch(2, queue_name="ann")
    JobFactory(queue_name="bob")
    tally(task_path="others.task", failed=1)
    ann, bob = body(staff(name="ann")), body(staff(name="bob"))
    assert tiles(ann)["queued"] == "2"
    assert tiles(bob)["queued"] == "1"
    assert "others.task" not in ann


# When the database is slow, or not there


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_locked_table_costs_a_panel_and_not_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.admin.base.in_time.__wrapped__.__defaults__", (0.2,))
    tally(failed=1)
    client = staff()
    locked, done = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE jobqueue_job IN ACCESS EXCLUSIVE MODE")
            locked.set()
            done.wait(10)
        connections.close_all()

    thread = threading.Thread(target=lock)
    thread.start()
    assert locked.wait(10)
    try:
        html = body(client)
    finally:
        done.set()
        thread.join(10)
    assert "The database did not answer in 2 s." in html
    assert "shop.charge" in html
    assert not tiles(html)


@pytest.mark.parametrize("model", ["overview", "queue", "worker", "sweep"])
def test_missing_tables(model: str) -> None:
    client = staff()
    with connection.cursor() as cursor:
        for table in ("jobqueue_worker", "jobqueue_sweep", "jobqueue_tally"):
            cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
        cursor.execute("ALTER TABLE jobqueue_queue RENAME TO jobqueue_queue_away")
    html = body(client, f"admin:jobqueue_{model}_changelist")
    assert "python manage.py migrate jobqueue" in html


def test_quiet_worker_serves_nothing() -> None:
    """A worker that takes no new jobs serves no queue."""
    WorkerFactory(state=Worker.State.QUIET)
    JobFactory(queue_name="mail")
    assert "No live worker takes queue mail." in body(staff())


def test_app_index_has_the_tabs() -> None:
    html = staff().get(reverse("admin:app_list", args=["jobqueue"])).content.decode()
    assert 'data-jq="tab-overview"' in html
    assert "aria-current" not in html.split('data-jq="tabs"')[1].split("</nav>")[0]
