"""The audit log: what it tells, what it keeps, who may read and export it, and that nobody edits it."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import auditing, lifecycle
from jobqueue.admin import trail
from jobqueue.admin.jobs import JobAdmin
from jobqueue.models import AuditEntry, Job, JobLog
from tests.admin.people import address, confirm, staff, tick
from tests.factories import JobFactory, QueueFactory, WorkerFactory, now

pytestmark = pytest.mark.django_db

AUDIT = "admin:jobqueue_auditentry_changelist"
EXPORT = "admin:jobqueue_auditentry_export"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def page(client: Client, **query: object) -> str:
    response = client.get(reverse(AUDIT), query)
    assert response.status_code == 200
    return response.content.decode()


def told(body: str) -> list[str]:
    """The column "what", row by row."""
    return re.findall(r'<th scope="row">(.*?)</th>', body)


def entry(verb: str = "cancel", target: str = "", **values: Any) -> AuditEntry:
    defaults = {"at": now(), "target_kind": "job", "actor_name": "ann", "chosen": 1, "changed": 1}
    return AuditEntry.objects.create(verb=verb, target=target, **defaults | values)


# Writing


def test_an_entry_from_begin_to_finish() -> None:
    row = auditing.begin("cancel", "job", "x" * 500, actor="cron", reason="a\0b", chosen=3)
    assert (row.result, len(row.target), row.actor_name) == ("running", 400, "cron")
    assert "\0" not in row.reason
    auditing.note(row, lifecycle.Counts(changed=2, skipped={"queued": 1}))
    auditing.finish(row, "done")
    row.refresh_from_db()
    assert (row.result, row.changed, row.skipped) == ("done", 2, {"queued": 1})
    assert row.message == "done"
    assert abs(row.at - now()) < timedelta(seconds=5)
    assert auditing.refused("cancel", "job", actor=None, message="no").result == "refused"


@pytest.mark.django_db(transaction=True)
def test_an_entry_goes_with_its_transaction() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        auditing.begin("cancel", "job", actor="ann")
        raise ZeroDivisionError
    assert not AuditEntry.objects.exists()


# Reading


def test_what_the_page_tells() -> None:
    client = staff("requeue_job", "pause_queue")
    jobs = [*JobFactory.create_batch(2, failed=True), JobFactory()]
    confirm(client, tick(client, "requeue", *jobs), "the API is back")
    queue = QueueFactory(name="mail")
    confirm(client, address(client, "queue", "pause", queue), "too many")
    body = page(client)
    assert told(body) == ["Paused 1 queue", "Requeued 2 of 3 jobs"]
    for text in ("the API is back", "ann", "1 skipped: 1 queued.", "?queue=mail", "2 changed."):
        assert text in body
    assert reverse("admin:jobqueue_job_change", args=[jobs[0].pk]) in body


def test_filters() -> None:
    client = staff()
    job = JobFactory()
    entry("requeue", str(job.pk), reason="Because of this")
    entry("cancel", "a, b", actor_name="ben")
    entry("pause", "mail", target_kind="queue", at=now() - timedelta(days=2))
    entry("purge", "12 jobs", message=f"{job.pk}, other", actor_name="cleo")
    for query, expected in (
        ({}, ["Purged", "Paused", "Cancelled", "Requeued"]),
        ({"who": "ben"}, ["Cancelled"]),
        ({"who": "ann", "verb": "pause"}, ["Paused"]),
        ({"verb": "cancel"}, ["Cancelled"]),
        ({"kind": "queue"}, ["Paused"]),
        ({"period": "1h"}, ["Purged", "Cancelled", "Requeued"]),
        ({"target": str(job.pk)}, ["Purged", "Requeued"]),
        ({"target": "mail"}, ["Paused"]),
        ({"q": str(job.pk)}, ["Purged", "Requeued"]),
        ({"q": job.pk.hex}, ["Purged", "Requeued"]),
        ({"q": "because of"}, ["Requeued"]),
        ({"q": "of this"}, []),
        ({"verb": "nonsense", "period": "x", "kind": "\0"}, 4),
        ({"who": EVIL}, []),
        ({"q": "\0%"}, []),
    ):
        found = [each.split()[0] for each in told(page(client, **query))]
        assert (len(found) if isinstance(expected, int) else found) == expected, query
    body = page(client, who="ben")
    assert '<option value="ben" selected>' in body
    assert "Clear the filter" in body


def test_pages() -> None:
    client = staff()
    AuditEntry.objects.bulk_create(
        AuditEntry(at=now(), verb="cancel", target_kind="job", target=f"t{number}", changed=1)
        for number in range(120)
    )
    seen: list[str] = []
    url: str | None = "?"
    bodies = []
    while url:
        body = client.get(reverse(AUDIT) + url.replace("&amp;", "&")).content.decode()
        bodies.append(body)
        seen += re.findall(r">(t\d+)<|\b(t\d+)</td>", body) and re.findall(r"\bt\d+\b(?=<)", body)
        older = re.search(r'rel="next" href="([^"]*)"', body)
        url = older[1] if older else None
    assert seen == [f"t{number}" for number in reversed(range(120))]
    assert len(bodies) == 3
    newer = re.search(r'rel="prev" href="([^"]*)"', bodies[-1])
    assert newer
    assert (
        re.findall(r"\bt\d+\b(?=<)", client.get(reverse(AUDIT) + newer[1]).content.decode())
        == (seen[50:100])
    )
    for odd in ("?before=abc", "?before=99999999999999999999", "?after=-1", "?before=1", "?p=9"):
        assert client.get(reverse(AUDIT) + odd).status_code == 200


def test_asks_little() -> None:
    client = staff()
    asked = []
    for number in (1, 49):
        for _ in range(number):
            entry("cancel", str(JobFactory().pk), actor_id="7")
            entry("quiet", str(WorkerFactory().pk), target_kind="worker")
        with CaptureQueriesContext(connection) as captured:
            page(client)
        asked.append(len(captured))
        assert not any("OFFSET" in each["sql"] or "DISTINCT" in each["sql"] for each in captured)
    assert asked[0] == asked[1] <= 16


def test_empty() -> None:
    client = staff()
    assert "Nobody has changed anything yet." in page(client)
    assert "Nothing in the audit log matches this filter." in page(client, who="x")


def test_hostile_texts() -> None:
    client = staff()
    entry("cancel", EVIL, reason=EVIL, actor_name=EVIL, message=EVIL, skipped={EVIL: 1})
    entry(EVIL[:20], EVIL, target_kind="queue")
    for query in ({}, {"who": EVIL}, {"q": EVIL}, {"target": EVIL}, {"verb": EVIL}):
        assert "<script>alert" not in page(client, **query)
        assert "<img src=x" not in page(client, **query)


# Keeping


def test_the_name_outlives_the_account() -> None:
    client = staff("cancel_job")
    job = JobFactory()
    confirm(client, tick(client, "cancel", job), "a mistake")
    admin_client = staff("view_user", name="ben")
    User.objects.filter(username="ben").update(is_superuser=True)
    ann = User.objects.get(username="ann")
    link = reverse("admin:auth_user_change", args=[ann.pk])
    assert link in page(admin_client)
    ann.delete()
    body = page(admin_client)
    assert link not in body
    assert "ann" in body
    Job.objects.all().delete()
    row = AuditEntry.objects.get()
    assert (row.actor_name, row.reason, row.changed) == ("ann", "a mistake", 1)
    assert str(job.pk) in page(admin_client)
    assert reverse("admin:jobqueue_job_change", args=[job.pk]) not in page(admin_client)


def test_before_and_after_stay_in_the_log() -> None:
    client = staff("cancel_job", "requeue_job")
    job = JobFactory()
    confirm(client, tick(client, "cancel", job), "a mistake")
    confirm(client, tick(client, "requeue", job), "no mistake")
    lines = JobLog.objects.filter(job=job).order_by("pk")
    assert [(line.event, line.data["from"], line.actor_name) for line in lines] == [
        ("cancelled", "queued", "ann"),
        ("requeued", "cancelled", "ann"),
    ]


def test_nobody_edits_it(admin_client: Client) -> None:
    row = entry()
    before = list(AuditEntry.objects.values())
    for name in ("change", "delete", "history"):
        url = reverse(f"admin:jobqueue_auditentry_{name}", args=[row.pk])
        assert admin_client.get(url).status_code in (302, 403)
        admin_client.post(url, {"post": "yes", "reason": "x", "_save": "1"})
    assert admin_client.get(reverse("admin:jobqueue_auditentry_add")).status_code == 403
    assert admin_client.post(reverse("admin:jobqueue_auditentry_add"), {}).status_code == 403
    data = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    admin_client.post(reverse(AUDIT), data)
    assert list(AuditEntry.objects.filter(pk=row.pk).values()) == before


# Exporting


def exported(client: Client, **query: str) -> list[dict[str, str]]:
    url = reverse(EXPORT, query=query) if query else reverse(EXPORT)
    response: Any = client.post(url)
    assert response.status_code == 200
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"
    text = b"".join(response.streaming_content).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "CHUNK", 2)
    client = staff("export_audit")
    for text in ("=1+1", "+1", "-1", "@x", "\tx", "\rx", 'plain, with\n"all"', EVIL):
        entry("cancel", text, reason=text, actor_name=text, message=text)
    rows = exported(client)
    assert [row["verb"] for row in rows] == ["export", *["cancel"] * 8]
    for row in rows[1:]:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert [row["reason"] for row in rows[-6:]] == [
        *("'\rx", "'\tx", "'@x", "'-1", "'+1", "'=1+1"),
    ]
    assert rows[1]["reason"] == EVIL
    told_of = AuditEntry.objects.filter(verb="export").get()
    assert (told_of.actor_name, told_of.result) == ("ann", "done")
    assert [row["reason"] for row in exported(client, who="+1")] == ["'+1"]


def test_export_is_a_right_and_no_get() -> None:
    reader, client = staff(name="ben"), staff("export_audit")
    assert "Export as CSV" in page(client)
    assert "Export as CSV" not in page(reader)
    assert client.get(reverse(EXPORT)).status_code == 405
    assert not AuditEntry.objects.exists()
    response = reader.post(reverse(EXPORT))
    assert response.status_code == 403
    assert "jobqueue.export_audit" in response.content.decode()
    assert AuditEntry.objects.get().result == "refused"


# Whose


def test_a_tenant_sees_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JobAdmin.get_queryset
    mine, theirs = JobFactory(queue_name="a"), JobFactory(queue_name="b")
    entry("cancel", str(mine.pk), actor_name="ben")
    entry("cancel", str(theirs.pk), actor_name="ben", reason="a secret of theirs")
    entry("cancel", "all jobs that match: queue is b", actor_name="ben")
    entry("cancel", f"{mine.pk}, {theirs.pk}", actor_name="ben")
    client = staff("export_audit")
    assert str(theirs.pk) in page(client)
    monkeypatch.setattr(
        JobAdmin,
        "get_queryset",
        lambda self, request: original(self, request).filter(queue_name="a"),
    )
    for body in (page(client), str(exported(client))):
        assert str(mine.pk) in body
        assert str(theirs.pk) not in body
        assert "a secret of theirs" not in body
        assert "queue is b" not in body
