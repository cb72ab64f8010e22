"""The page of one job: what stays hidden, and from whom."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from jobqueue import lifecycle
from jobqueue.admin import JobAdmin, payloads, tracebacks
from jobqueue.admin.hiding import HIDDEN
from jobqueue.models import JobLog
from tests.admin.one_job import TRACEBACK, address, detail, errored, failed_job, get, staff, whole
from tests.factories import JobFactory, JobLogFactory

pytestmark = pytest.mark.django_db


def test_secrets_are_hidden_from_everybody(admin_client: Client) -> None:
    deep = {"a": [{"b": {"password": "canary", "apiKey": ["canary"], "shown": 1}}]}
    job = JobFactory(
        completed=True, args=[deep], kwargs=deep, return_value=deep, error="token=canary"
    )
    line = errored(job, 1, 5, traceback='File "x"\nlogin(password="canary")')
    JobLogFactory(job=job, message="secret: canary", worker="w")
    body = detail(admin_client, job)
    assert "canary" not in body
    assert HIDDEN in body
    for name in payloads.COLUMNS:
        text = whole(admin_client, address(job, "download", name))
        assert "canary" not in text
        assert '"shown": 1' in text
    assert "canary" not in whole(admin_client, address(job, "line", line.pk, "traceback"))


def test_values_take_a_right() -> None:
    """F4: without it neither values nor source lines are anywhere, and nothing can be downloaded."""
    deep = {"a": [{"order": "canary"}]}
    job = JobFactory(
        completed=True, args=[deep], kwargs={"canary": 1}, return_value="canary", attempt=2
    )
    line = errored(job, 1, 5, traceback=TRACEBACK, return_value="canary")
    lifecycle.requeue(job.pk)
    kept = JobLog.objects.get(job=job, event="requeued")
    client = staff("view_job")
    for url in (address(job), address(job, "live")):
        body = get(client, url).content.decode()
        assert "canary" not in body
        assert "download" not in body.lower()
        assert "File &quot;/srv/shop/tasks.py&quot;, line 41, in charge" in body
        assert "stripe.CardError" in body
        assert "card.charge" not in body
    assert "You need the right" in detail(client, job)
    urls = [address(job, "download", name) for name in payloads.COLUMNS]
    urls += [address(job, "line", line.pk, "traceback")]
    urls += [address(job, "line", kept.pk, "return_value")]
    for url in urls:
        assert client.get(url).status_code == 403
    allowed = staff("view_job", "view_job_args")
    assert "canary" in detail(allowed, job)
    for url in urls:
        assert "canary" in whole(allowed, url) or url.endswith("download/result/")  # it is gone


def test_frames_only() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    secret(1)\n    ^^^^\n'
        'ValueError: canary\nFile "x", line 2, in canary\n\nThe above exception was:\n\n'
        'Traceback (most recent call last):\n  File "/b.py", line 2, in <module>\n    canary\n'
        "  [Previous line repeated 9 more times]\nshop.Odd\n"
    )
    assert tracebacks.frames(text).split("\n") == [
        "Traceback (most recent call last):",
        '  File "/a.py", line 1, in f',
        "ValueError",
        "",
        "Traceback (most recent call last):",
        '  File "/b.py", line 2, in <module>',
        "shop.Odd",
    ]
    group = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "/a.py", line 1, in f\n'
        "  |     canary\n  | ExceptionGroup: canary (1 sub-exception)\n  +-+---------------- 1 ----\n"
        '    | Traceback (most recent call last):\n    |   File "/b.py", line 3, in g\n'
        "    |     canary\n    | ValueError: canary\n    +------------------------------------\n"
    )
    assert "canary" not in tracebacks.frames(group)
    assert '/b.py", line 3' in tracebacks.frames(group)
    assert tracebacks.frames("canary") == "Hidden."


def test_every_address_takes_the_right_to_view() -> None:
    job = failed_job()
    line = JobLog.objects.get(job=job)
    urls = [
        address(job),
        address(job, "live"),
        address(job, "history"),
        address(job, "download", "args"),
        address(job, "line", line.pk, "traceback"),
    ]
    client = staff("view_job_args", "cancel_job")
    for url in urls:
        assert client.get(url).status_code == 403
        assert "login" in Client().get(url)["Location"]
    assert staff("view_job").post(address(job), {"status": "queued"}).status_code == 403


def test_jobs_of_others_do_not_exist(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = JobFactory(queue_name="mine"), failed_job(queue_name="theirs")
    line = JobLog.objects.get(job=theirs)
    everything = JobAdmin.get_queryset

    def limited(self: JobAdmin, request: HttpRequest) -> Any:
        return everything(self, request).filter(queue_name="mine")

    monkeypatch.setattr(JobAdmin, "get_queryset", limited)
    assert admin_client.get(address(theirs), follow=True).status_code == 200
    for url in (
        address(theirs, "live"),
        address(theirs, "download", "args"),
        address(theirs, "line", line.pk, "traceback"),
    ):
        assert admin_client.get(url).status_code == 404
    assert str(theirs.pk) not in detail(admin_client, mine)
    assert admin_client.get(address(mine, "line", line.pk, "traceback")).status_code == 404


@pytest.mark.parametrize(
    "key", ["nonsense", "01890000-0000-7000-8000-000000000000", "_00", "1", "x/live", "\0"]
)
def test_what_does_not_exist(admin_client: Client, key: str) -> None:
    response = admin_client.get(reverse("admin:jobqueue_job_change", args=[key]), follow=True)
    assert response.status_code == 200
    assert "exist" in " ".join(str(message) for message in response.context["messages"])


def test_downloads_that_do_not_exist(admin_client: Client) -> None:
    job = failed_job()
    line = JobLog.objects.get(job=job)
    for url in (
        address(job, "download", "worker"),
        address(job, "line", line.pk, "delay"),
        address(job, "line", line.pk, "return_value"),
        address(job, "line", 10**15, "traceback"),
        reverse("admin:jobqueue_job_live", args=[uuid.uuid4()]),
    ):
        assert admin_client.get(url).status_code == 404
