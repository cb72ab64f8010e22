"""The page of one job, its parts, and jobs that are worth a look."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from jobqueue.models import Job, JobLog
from tests.factories import JobFactory, JobLogFactory, ago

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)></pre><svg onload=alert(3)>\"'&{{ 7|add:7 }}"
STATES = ["scheduled", "queued", "processing", "completed", "failed", "cancelled", "stopping"]
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 41, in charge
    card.charge("canary", password="hunter2")
  File "/srv/venv/lib/python3.13/site-packages/stripe/api.py", line 7, in post
    raise CardError(message)
stripe.CardError: no money for canary
"""


def staff(*rights: str) -> Client:
    """A browser of somebody with these rights and no others."""
    user = User.objects.create_user(f"ann{User.objects.count()}", password="x", is_staff=True)
    for name in rights:
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="jobqueue", codename=name)
        )
    client = Client()
    client.force_login(user)
    return client


def address(job: Job, name: str = "change", *args: object) -> str:
    return reverse(f"admin:jobqueue_job_{name}", args=[job.pk, *args])


def get(client: Client, url: str) -> Any:
    response = client.get(url)
    assert response.status_code == 200, (url, response.status_code, response.get("Location"))
    return response


def detail(client: Client, job: Job, **query: object) -> str:
    response = client.get(address(job), query)
    assert response.status_code == 200, (response.status_code, response.get("Location"))
    return str(response.content.decode())


def whole(client: Client, url: str) -> str:
    response = get(client, url)
    assert response["Content-Disposition"].startswith("attachment; ")
    assert response["X-Content-Type-Options"] == "nosniff"
    return b"".join(response.streaming_content).decode()


def part(body: str, name: str) -> str:
    """What stands in the section of that name."""
    found = re.search(rf'<section [^>]*data-jq="{name}".*?</section>', body, re.DOTALL)
    assert found, name
    return found[0]


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def errored(job: Job, attempt: int, seconds: float, **data: Any) -> JobLog:
    return JobLogFactory(
        job=job,
        event=JobLog.Event.ERRORED,
        level="warning",
        attempt=attempt,
        worker="web1:7:abcd",
        message="CardError: no money",
        created_at=ago(seconds),
        data=data,
    )


def failed_job(**more: Any) -> Job:
    job = JobFactory(failed=True, error="stripe.CardError: no money", **more)
    errored(job, 1, 5, traceback=TRACEBACK)
    return job
