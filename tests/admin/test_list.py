"""The job list: what it shows to whom, what it costs, and where its links lead."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import JobFactory

pytestmark = pytest.mark.django_db

JOBS = "admin:jobqueue_job_changelist"


def test_smoke(admin_client: Client) -> None:
    for trait in (
        "scheduled",
        "queued",
        "processing",
        "completed",
        "failed",
        "cancelled",
        "stopping",
    ):
        JobFactory(**{trait: True}, args=[1, "x"], kwargs={"a": {"token": "t"}})
    body = admin_client.get(reverse(JOBS)).content.decode()
    open("/tmp/list.html", "w").write(body)
    for key in (
        "scheduled",
        "retrying",
        "queued",
        "processing",
        "completed",
        "failed",
        "cancelled",
        "lost",
    ):
        r = admin_client.get(reverse(JOBS), {"state": key})
        assert r.status_code == 200
        print(key, len(r.context["cl"].result_list), r.context["cl"].numbers)
