"""Who may do what: asked of the server by hand-made requests, whatever buttons there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urljoin

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from jobqueue.admin import confirming
from jobqueue.admin.jobs import JobAdmin
from jobqueue.models import AuditEntry, Job, JobLog, Queue, Worker
from tests.admin.people import JOBS, VIEW, address, form, staff, tick, token_of
from tests.factories import JobFactory, QueueFactory, WorkerFactory, now

pytestmark = pytest.mark.django_db

#: verb: the model whose page confirms it, the right it takes, and a row it may be done to.
VERBS: dict[str, tuple[str, str, Callable[[], Any] | None]] = {
    "requeue": ("job", "requeue_job", lambda: JobFactory(failed=True)),
    "run_now": ("job", "requeue_job", lambda: JobFactory(scheduled=True)),
    "cancel": ("job", "cancel_job", lambda: JobFactory(processing=True)),
    "purge": ("job", "purge_job", lambda: JobFactory(completed=True)),
    "pause": ("queue", "pause_queue", lambda: QueueFactory()),
    "resume": ("queue", "pause_queue", lambda: QueueFactory(paused_at=now())),
    "quiet": ("worker", "control_worker", lambda: WorkerFactory()),
    "stop": ("worker", "control_worker", lambda: WorkerFactory()),
    "sweep": ("sweep", "run_sweep", None),
}

PEOPLE: dict[str, tuple[str, ...]] = {
    "viewer": VIEW,
    "support": (*VIEW, "view_job_args", "requeue_job"),
    "operator": (
        *VIEW,
        *("view_job_args", "requeue_job", "cancel_job", "bulk_job", "pause_queue"),
        "control_worker",
    ),
    "owner": (
        *VIEW,
        *("view_job_args", "requeue_job", "cancel_job", "bulk_job", "purge_job", "pause_queue"),
        *("control_worker", "run_sweep", "export_audit"),
    ),
    "blind": ("requeue_job", "cancel_job", "purge_job", "bulk_job", "pause_queue", "run_sweep"),
    "staff": (),
}


def rows() -> dict[str, list[dict[str, Any]]]:
    """All that a change could change, but for the log of who was refused."""
    models: tuple[type[Model], ...] = (Job, JobLog, Queue, Worker, LogEntry)
    return {
        model.__name__: list(model._default_manager.order_by("pk").values()) for model in models
    }


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_its_right(verb: str, who: str) -> None:
    model, right, make = VERBS[verb]
    chosen = [make()] if make else []
    client = staff(*PEOPLE[who], name=who, view=False)
    url = address(client, model, verb, *chosen)
    allowed = right in PEOPLE[who] and f"view_{model}" in PEOPLE[who]
    before = rows()
    shown = client.get(url)
    assert shown.status_code == (200 if allowed else 403)
    assert rows() == before
    if allowed:
        sent = form(shown.content.decode()) | {"reason": "x"}
        if "number" in sent:
            sent["number"] = "1"
        assert client.post(url.partition("?")[0], sent).status_code == 302
        assert verb == "sweep" or rows() != before
        assert AuditEntry.objects.get().result == "done"
        return
    missing = f"jobqueue.{right}" if f"view_{model}" in PEOPLE[who] else f"jobqueue.view_{model}"
    assert missing in shown.content.decode()
    owner = staff(*PEOPLE["owner"], name="owner2", view=False)
    theirs = form(owner.get(address(owner, model, verb, *chosen)).content.decode())
    for data in ({}, {"t": token_of(url), "reason": "x"}, theirs | {"reason": "x"}):
        assert client.post(url.partition("?")[0], data).status_code == 403
    assert rows() == before
    refusals = AuditEntry.objects.values_list("verb", "target_kind", "result", "actor_name")
    assert set(refusals) == {(verb, model, "refused", who)}


def test_taking_a_right_away_ends_what_was_begun() -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    url = tick(client, "requeue", job)
    data = form(client.get(url).content.decode()) | {"reason": "x"}
    User.objects.get().user_permissions.clear()
    assert client.post(url.partition("?")[0], data).status_code == 403
    job.refresh_from_db()
    assert job.status == "failed"


def test_all_that_match_takes_a_right_of_its_own() -> None:
    client = staff("requeue_job")
    job = JobFactory(failed=True)
    url = address(client, "job", "requeue", query="state=failed")
    response = client.get(url)
    assert response.status_code == 403
    assert "jobqueue.bulk_job" in response.content.decode()
    assert AuditEntry.objects.get().result == "refused"
    assert client.post(url.partition("?")[0], {"t": token_of(url)}).status_code == 403
    several = JobFactory.create_batch(confirming.AT_ONCE, failed=True)
    assert client.get(address(client, "job", "requeue", *several)).status_code == 200
    assert client.get(address(client, "job", "requeue", job, *several)).status_code == 403


def test_may_is_asked_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's own rule about single jobs holds for all that match, too."""
    original = JobAdmin.may

    def may(self: JobAdmin, request: Any, verb: str, obj: Any = None) -> bool:
        return original(self, request, verb, obj) and getattr(obj, "queue_name", "a") == "a"

    mine, theirs = JobFactory(failed=True, queue_name="a"), JobFactory(failed=True, queue_name="b")
    monkeypatch.setattr(JobAdmin, "may", may)
    client = staff("requeue_job", "bulk_job")
    for url in (
        address(client, "job", "requeue", query="state=failed"),
        address(client, "job", "requeue", mine, theirs),
    ):
        body = client.get(url).content.decode()
        assert "Requeue 1 job?" in body
        assert "1 is not yours to change and is left alone." in body
        assert str(theirs.pk) not in body
    client.post(url.partition("?")[0], form(body) | {"reason": "x"})
    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert (mine.status, theirs.status) == ("queued", "failed")


def test_jobs_of_another_tenant_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JobAdmin.get_queryset
    mine, theirs = JobFactory(failed=True, queue_name="a"), JobFactory(failed=True, queue_name="b")
    client = staff("requeue_job", "bulk_job")
    by_hand = address(client, "job", "requeue", mine, theirs)
    every = address(client, "job", "requeue", query="state=failed")
    monkeypatch.setattr(
        JobAdmin,
        "get_queryset",
        lambda self, request: original(self, request).filter(queue_name="a"),
    )
    for url in (by_hand, every):
        body = client.get(url).content.decode()
        assert "Requeue 1 job?" in body
        assert str(theirs.pk) not in body
    client.post(url.partition("?")[0], form(body) | {"reason": "x"})
    theirs.refresh_from_db()
    assert theirs.status == "failed"
    assert Job.objects.get(pk=mine.pk).status == "queued"


# Without a session, without a token, by GET


def addresses() -> list[str]:
    """Every address of the dashboard, with rows that are there where one is named."""
    job, queue, worker = JobFactory(failed=True), QueueFactory(), WorkerFactory()
    entry = AuditEntry.objects.create(at=now(), verb="cancel", target_kind="job")
    found = [reverse("admin:app_list", args=["jobqueue"])]
    for model in apps.get_app_config("jobqueue").get_models():
        name = model._meta.model_name
        keys = {"job": job.pk, "queue": queue.pk, "worker": worker.pk, "auditentry": entry.pk}
        for page, args in (
            *(("changelist", []), ("add", []), ("export", []), ("newer", []), ("live", [])),
            *((each, [keys.get(str(name), 1)]) for each in ("change", "delete", "history")),
            *(("act", [verb]) for verb in (*VERBS, "nonsense")),
        ):
            try:
                found.append(reverse(f"admin:jobqueue_{name}_{page}", args=args))
            except Exception as error:
                if type(error).__name__ != "NoReverseMatch":
                    raise
    return found


@pytest.mark.parametrize("who", ["nobody", "customer", "inactive"])
def test_strangers_are_sent_to_the_login(who: str) -> None:
    client = Client()
    if who != "nobody":
        user = User.objects.create_user(who, is_staff=who == "inactive", is_superuser=True)
        client.force_login(user)
        User.objects.filter(pk=user.pk).update(is_active=who != "inactive")
    urls = addresses()
    before = rows() | {"audit": list(AuditEntry.objects.values())}
    for url in urls:
        for response in (client.get(url), client.post(url, {"reason": "x"})):
            assert response.status_code == 302, url
            assert "/login/" in response["Location"]
    assert rows() | {"audit": list(AuditEntry.objects.values())} == before


def test_no_get_changes_anything() -> None:
    """Of any address of ours, any link on its page, and any address that a form there has."""
    todo, seen = addresses(), set[tuple[str, ...]]()
    client = staff(*PEOPLE["owner"], name="owner", view=False)
    for verb, (model, _right, make) in VERBS.items():
        todo.append(address(client, model, verb, *([make()] if make else [])))
    before = rows() | {"audit": list(AuditEntry.objects.values())}
    while todo:
        url = todo.pop(0).partition("#")[0]
        path, _, query = url.partition("?")
        kind = (path, *sorted(parse_qs(query)))  # one filter of a kind is like another
        if kind in seen or "/jobqueue/" not in url:
            continue
        seen.add(kind)
        response: Any = client.get(url)
        assert response.status_code in (200, 302, 403, 404, 405), url
        assert client.head(path).status_code in (200, 302, 403, 404, 405), url
        if response.status_code == 200 and not response.streaming:
            body = response.content.decode()
            found = re.findall(r'(?:href|action|data-jq-live|data-jq-newer)="([^"]*)"', body)
            todo += [urljoin(url, unescape(link)) for link in found]
    assert len(seen) > 30
    assert rows() | {"audit": list(AuditEntry.objects.values())} == before


@pytest.mark.parametrize("verb", VERBS)
def test_other_methods_are_refused(verb: str) -> None:
    model, _right, make = VERBS[verb]
    client = staff(*PEOPLE["owner"], name="owner", view=False)
    url = address(client, model, verb, *([make()] if make else []))
    before = rows()
    for method in (client.put, client.delete, client.patch, client.options):
        assert method(url).status_code == 405
    assert rows() == before


# What is offered


@pytest.mark.parametrize("who", PEOPLE)
def test_actions_are_those_that_one_may(who: str) -> None:
    client = staff(*PEOPLE[who], name=who, view=False)
    JobFactory(failed=True)
    response = client.get(reverse(JOBS))
    if "view_job" not in PEOPLE[who]:
        assert response.status_code == 403
        return
    body = response.content.decode()
    assert ('name="action"' in body) is ("requeue_job" in PEOPLE[who])
    for verb in ("requeue", "cancel", "purge"):
        assert (f'value="{verb}_jobs"' in body) is (f"{verb}_job" in PEOPLE[who])


def test_actions_by_hand_without_the_right() -> None:
    client = staff()
    job = JobFactory(failed=True)
    before = rows()
    for verb in ("requeue", "cancel", "purge"):
        data = {"action": f"{verb}_jobs", "_selected_action": [str(job.pk)], "index": "0"}
        response = client.post(reverse(JOBS), data)
        assert response.status_code == 403
        assert f"jobqueue.{verb}_job" in response.content.decode()
        client.post(reverse("admin:jobqueue_job_change", args=[job.pk]), data)
    assert rows() == before
    assert AuditEntry.objects.filter(result="refused").count() == 3
    assert AuditEntry.objects.exclude(result="refused").count() == 0
