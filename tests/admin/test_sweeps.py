"""The pages of what the clock repaired, and what it would repair now."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from jobqueue.admin import JobAdmin
from jobqueue.models import AuditEntry, Job, JobLog, Sweep
from tests.admin.people import staff
from tests.factories import JobFactory, ago

pytestmark = pytest.mark.django_db

PAGE = "admin:jobqueue_sweep_changelist"
LIVE = "admin:jobqueue_sweep_live"
DRY = "admin:jobqueue_sweep_dry"
ONE = "admin:jobqueue_sweep_change"
EVIL = "<script>alert(1)</script>\"'><svg onload=alert(2)>"


def sweep(seconds_ago: float = 5, **values: Any) -> Sweep:
    times = {"started_at": ago(seconds_ago + 1), "finished_at": ago(seconds_ago)}
    return Sweep.objects.create(**times | {"worker": "web1:1:abcd"} | values)


def eventful(seconds_ago: float = 5, **values: Any) -> Sweep:
    counts = {"found": {"lost": 3, "due": 9}, "repaired": {"lost": 2, "due": 9}}
    return sweep(seconds_ago, eventful=True, **counts | values)


def body(client: Client, name: str = PAGE, *args: Any, **query: Any) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_head_and_table() -> None:
    sweep(300, passes=40)
    sweep(200, passes=1)
    row = eventful(60, took=0.08, left=[["lost", "1", "held"]])
    sweep(4, passes=2)
    html = body(staff())
    assert "Last sweep #" in plain(html)
    assert "41 passes found nothing" in plain(html)
    assert "2 passes found nothing" in plain(html)
    shown = re.search(r'<tr data-jq="sweep-row".*?</tr>', html, re.DOTALL)
    assert shown
    text = plain(shown[0])
    assert text.startswith(f"#{row.pk} ")
    assert "80 ms" in text
    assert "expired leases taken back: 2 / 3 due jobs queued: 9 / 9 1" in text
    assert "overdue" not in html


def test_nobody_sweeps() -> None:
    html = body(staff())
    assert html.count("No sweep has run. The reconciler may not be running.") == 2
    assert "python manage.py reconcile" in html
    sweep(600)
    html = body(staff())
    assert "No sweep has ended for 10 min" in html
    assert 'data-jq="overdue"' in html


def test_pages() -> None:
    for number in range(60):
        eventful(600 - number)
    client = staff()
    first = re.findall(r">#(\d+)</a></th>", body(client))
    older = re.search(r'href="\?before=(\d+)"', body(client))
    assert older
    second = re.findall(r">#(\d+)</a></th>", body(client, before=older[1]))
    assert (len(first), len(second), len({*first, *second})) == (50, 10, 60)
    for nonsense in ("x", "-1", "9" * 30, "²"):
        assert "sweep-table" in body(client, before=nonsense)


def test_chart_leaves_out_what_is_repaired_all_the_time() -> None:
    eventful(60)
    sweep(30, found={"due": 500}, repaired={"due": 500})
    assert "2 in all, at most 2 in an hour" in body(staff())


def test_page_of_one() -> None:
    job, purged = JobFactory(task_path="shop.charge"), "01890000-0000-7000-8000-000000000000"
    row = eventful(
        repairs=[
            ["lost", str(job.pk), "processing", "scheduled"],
            ["lost", purged, "processing", "failed"],
            ["silent", str(job.pk), "silent", "gone"],
        ],
        left=[["lost", str(job.pk), "held by another"]],
        actor_name="Ada",
    )
    html = body(staff(), ONE, row.pk)
    for text in ("processing → scheduled", "processing → failed", "held by another", "Ada", purged):
        assert text in html
    assert html.count(f"/job/{job.pk}/change/") == 2


@pytest.mark.parametrize("key", ["0", "999", "x", "9" * 40, "²"])
def test_page_of_nothing(key: str) -> None:
    response = staff().get(reverse(ONE, args=[key]), follow=True)
    assert response.status_code == 200
    assert "doesn’t exist" in response.content.decode()


def test_odd_and_hostile_rows() -> None:
    odd = [
        eventful(found="x", repaired=[1], repairs="x", left={}),
        eventful(repairs=[1, ["a"], [EVIL, EVIL, EVIL, EVIL], None], left=[[EVIL, EVIL, EVIL]]),
        eventful(found={EVIL: 3}, repaired={EVIL: 1, "lost": "x"}, worker=EVIL, actor_name=EVIL),
    ]
    html = body(staff())
    for row in odd:
        html += body(staff(), ONE, row.pk)
    assert "<script>alert" not in html
    assert "<svg onload" not in html


def test_dry_run_changes_nothing() -> None:
    lost = JobFactory(processing=True, lease_expires_at=ago(5))
    JobFactory(scheduled=True, run_after=ago(5))
    before = list(Job.objects.order_by("pk").values())
    client = staff("run_sweep")
    assert f'action="{reverse(DRY)}"' in body(client)
    response = client.post(reverse(DRY))
    assert response.status_code == 200
    html = response.content.decode()
    text = plain(html)
    assert "Nothing was changed." in text
    assert (
        f"expired leases taken back (running, lease expired) {lost.task_path} {lost.pk} 1" in text
    )
    assert re.search(r"due jobs queued \(scheduled, time has come\) \S+ \S+ 1", text)
    assert f"/job/{lost.pk}/change/" in html
    assert list(Job.objects.order_by("pk").values()) == before
    assert not Sweep.objects.exists()
    assert not JobLog.objects.filter(job=lost).exists()


def test_dry_run_is_a_post_with_a_right() -> None:
    client = staff("run_sweep")
    assert client.get(reverse(DRY)).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert strict.post(reverse(DRY)).status_code == 403
    client = staff(name="bob")
    assert client.post(reverse(DRY)).status_code == 403
    assert reverse(DRY) not in body(client)
    assert AuditEntry.objects.filter(actor_name="bob", verb="sweep", result="refused").exists()


def test_run_now_leads_to_the_confirmation() -> None:
    assert "/admin/jobqueue/sweep/act/sweep/" in body(staff("run_sweep"))
    assert 'data-jq="act"' not in body(staff(name="bob"))


def test_live_part() -> None:
    sweep()
    response = staff().get(reverse(LIVE))
    assert "no-store" in response["Cache-Control"]
    assert 'data-jq="last-sweep"' in response.content.decode()


@pytest.mark.parametrize("name", [PAGE, LIVE])
def test_rights(name: str, client: Client) -> None:
    assert client.get(reverse(name)).status_code == 302
    refused = staff("view_job", name="bob", view=False)
    assert refused.get(reverse(name)).status_code == 403
    assert refused.get(reverse(ONE, args=[sweep().pk])).status_code == 403


class Tenant(JobAdmin):
    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(queue_name=request.user.get_username())


def test_jobs_of_others_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(admin.site._registry, Job, Tenant(Job, admin.site))
    mine, theirs = JobFactory(queue_name="ann"), JobFactory(queue_name="bob")
    row = eventful(
        repairs=[["lost", str(job.pk), "processing", "scheduled"] for job in (mine, theirs)],
        left=[["lost", str(theirs.pk), "held"]],
    )
    html = body(staff(name="ann"), ONE, row.pk)
    assert str(mine.pk) in html
    assert str(theirs.pk) not in html
