"""The job list: what it shows to whom, what it costs, and where its links lead."""

from __future__ import annotations

import html
import json
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import ids
from jobqueue.admin import changelist, columns, confirming, counting, filters, listing, windows
from jobqueue.admin import words as words_module
from jobqueue.admin.jobs import JobAdmin
from jobqueue.models import Job, Queue, Tally
from tests.factories import JobFactory, QueueFactory, ago, now

pytestmark = pytest.mark.django_db

JOBS = "admin:jobqueue_job_changelist"
NEWER = "admin:jobqueue_job_newer"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7|add:7 }}"


def staff(*rights: str) -> Client:
    """A browser of somebody with these rights and no others."""
    user = User.objects.create_user(f"u{uuid.uuid4().hex[:8]}", password="x", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="jobqueue", codename__in=rights)
    )
    client = Client()
    client.force_login(user)
    return client


def many(number: int, **values: Any) -> list[Job]:
    """So many jobs that are alike, in the order in which they were enqueued."""
    job = JobFactory.build(**values)
    same = {field.attname: getattr(job, field.attname) for field in Job._meta.fields}
    return Job.objects.bulk_create(Job(**same | {"id": ids.uuid7()}) for _ in range(number))


def get(client: Client, **query: str) -> Any:
    response = client.get(reverse(JOBS), {name.rstrip("_"): query[name] for name in query})
    assert response.status_code == 200
    return response


def text(response: Any) -> str:
    body: str = response.content.decode()
    return body


def shown(body: str) -> list[uuid.UUID]:
    found = re.findall(r'<a href="[^"]*/job/([0-9a-f-]{36})/change/', body)
    return list(map(uuid.UUID, found))


def link(body: str, hook: str) -> str:
    """The address of the link that a hook or a rel names; nothing if there is none."""
    found = re.search(rf'<a [^>]*(?:data-jq|rel)="{hook}"[^>]*>', body)
    address = re.search(r'href="([^"]*)"', found[0]) if found else None
    return html.unescape(address[1]) if address else ""


# What it shows


def test_rows(admin_client: Client) -> None:
    queued = JobFactory(task_path="shop.tasks.charge", attempt=1, max_attempts=7, run_after=ago(40))
    failed = JobFactory(failed=True, queue_name="mail", kwargs={"order": 7, "api_token": "s3cret"})
    running = JobFactory(processing=True, attempted_at=ago(180))
    JobFactory(stopping=True)
    JobFactory(scheduled=True)
    JobFactory(processing=True, lease_expires_at=ago(60))
    body = text(get(admin_client))
    for part in (
        *(str(queued.pk), "shop.tasks.<b>charge</b>", "1/7", "waiting <time", ">40 s</time>"),
        *("mail", "ValueError: no", "running <time", ">3 min</time>", "Cancelled, still stopping"),
        *("finished <time", "took ", "due <time", "lease ran out <time", "order=7"),
    ):
        assert part in body or part in body.replace("40 s", "41 s"), part
    assert "s3cret" not in body
    assert shown(body)[-3:] == [running.pk, failed.pk, queued.pk]
    assert body.count('data-jq="job-row"') == 6
    assert "<h1>Jobs</h1>" in body
    assert 'href="#result_list">Skip to the job table' in body


def test_hostile_text_is_escaped(admin_client: Client) -> None:
    JobFactory(
        failed=True,
        **dict.fromkeys(("task_path", "idempotency_key", "worker", "error"), EVIL),
        queue_name=EVIL[:90],
        args=[EVIL],
        kwargs={EVIL: EVIL},
    )
    QueueFactory(name=EVIL[:90])
    for query in (
        {},
        {"q": EVIL},
        {"queue": EVIL},
        {"task": EVIL},
        {"from": EVIL},
        {"state": EVIL},
        {"q": f'error:"{EVIL}'},
        {"within": EVIL},
        {"attempt": EVIL},
    ):
        body = text(get(admin_client, **query))
        for bad in ("<script>alert", "<img src=x", "style=", "onclick=", 'onerror="'):
            assert bad not in body, (query, bad)
        for script in re.findall(r"<script[^>]*>", body):
            assert "src=" in script


def test_large_and_odd_arguments(admin_client: Client) -> None:
    JobFactory(args=["x" * 3_000_000])
    JobFactory(kwargs={"n": 9_007_199_254_740_993})
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    JobFactory(args=deep)
    body = text(get(admin_client))
    assert "of arguments" in body
    assert "9007199254740993" in body
    assert len(body) < 100_000


def test_arguments_take_a_right() -> None:
    JobFactory(args=["canary1"], kwargs={"canary2": 1}, completed=True, return_value="canary3")
    JobFactory(args=["canary" * 2_000])
    viewer, support = staff("view_job"), staff("view_job", "view_job_args")
    with CaptureQueriesContext(connection) as asked:
        assert "canary" not in text(get(viewer))
    for query in asked:
        assert '"args"' not in query["sql"], query["sql"]
    body = text(get(support))
    assert ("canary1" in body, "canary2" in body, "canary3" in body) == (True, True, False)
    for query in ("args.0:canary1", "kwargs.canary2:1"):
        assert shown(text(get(viewer, q=query))) == []
        assert 'data-jq="problem"' in text(get(viewer, q=query))
        assert len(shown(text(get(support, q=query)))) == 1
    # Nor by a look-up of Django's own.
    response = viewer.get(reverse(JOBS), {"args__0": "canary1"})
    assert response.status_code == 302
    assert response["Location"].endswith("?e=1")


def test_empty(admin_client: Client) -> None:
    assert "No jobs yet." in text(get(admin_client))
    JobFactory()
    body = text(get(admin_client, queue="x"))
    assert "No job matches this filter." in body
    assert '<a href="?">Clear the filter</a>' in body
    assert "No failed jobs." in text(get(admin_client, state="failed"))
    assert "No job" not in text(get(admin_client))


# Where its links lead


def test_pages_forth_and_back(admin_client: Client) -> None:
    jobs = many(120, failed=True)
    many(3)
    newest_first = [job.pk for job in reversed(jobs)]
    body = text(get(admin_client, state="failed"))
    assert "120 jobs match" in body
    seen, pages = shown(body), 1
    assert link(body, "prev") == ""
    while address := link(body, "next"):
        body = text(admin_client.get(reverse(JOBS) + address))
        seen, pages = seen + shown(body), pages + 1
    assert (seen, pages) == (newest_first, 3)
    back = shown(body)
    while address := link(body, "prev"):
        body = text(admin_client.get(reverse(JOBS) + address))
        back = shown(body) + back
    assert back == newest_first
    # Opened from a page, a job leads back to that page.
    second = text(
        admin_client.get(reverse(JOBS) + link(text(get(admin_client, state="failed")), "next"))
    )
    assert re.search(r"_changelist_filters=[^\"]*after%3D", second)


@pytest.mark.parametrize(
    "query",
    [
        *(
            {"o": "3"},
            {"p": "99999"},
            {"before": "abc"},
            {"after": "~"},
            {"evil": "1"},
            {"all": ""},
        ),
        *({"e": "1"}, {"o": "x.-"}, {"p": "x"}, {"q": "\0"}, {"state": ""}, {"_facets": "1"}),
        *({"status__exact": "failed"}, {"id__gt": "1"}, {"q": "a" * 3_000}, {"_popup": "1"}),
        *({"queue": "\0"}, {"from": "x"}, {"task": "x" * 5_000}, {"e": "1", "evil": "1"}),
    ],
)
def test_odd_addresses(admin_client: Client, query: dict[str, str]) -> None:
    JobFactory()
    response = admin_client.get(reverse(JOBS), query)
    if response.status_code == 302:
        assert response["Location"].endswith("?e=1")
        response = admin_client.get(response["Location"])
        assert "was not understood" in text(response)
    assert response.status_code == 200
    admin_client.post(reverse(JOBS), query)


def test_a_search_keeps_the_filter_and_drops_the_cursor(admin_client: Client) -> None:
    job = JobFactory(failed=True)
    QueueFactory(name="mail")
    body = text(
        get(admin_client, state="failed", after=job.pk.hex, all="1", q="queue:x", attempt="last")
    )
    form = re.search(r'<form id="changelist-search".*?</form>', body, re.DOTALL)
    assert form is not None
    kept = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[0]))
    assert kept == {"q": "queue:x", "state": "failed", "attempt": "last"}
    for address in re.findall(r'href="(\?[^"]*)"', body):
        assert "before=" not in address
        assert "after=" not in address


def test_numbers_lead_to_as_many_rows(admin_client: Client) -> None:
    many(3, failed=True, worker="w")
    many(2, completed=True, worker="w")
    JobFactory(processing=True, lease_expires_at=ago(5))
    for query in ({}, {"q": "worker:w"}, {"state": "failed"}, {"queue": "default"}):
        body = text(get(admin_client, **query))
        chips = re.findall(
            r'href="([^"]*)" data-jq="chip-(\w+)"( aria-current="true")?.*?jq-chip-number">([\d,]+)<',
            body,
        )
        assert len(chips) == 8
        for address, key, current, number in chips:
            assert bool(current) is (query.get("state") == key)
            if current:
                assert "state" not in address
                continue
            there = text(admin_client.get(reverse(JOBS) + html.unescape(address)))
            assert len(shown(there)) == int(number), (query, key)


def test_what_is_capped_says_so(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "CAP", 60)
    monkeypatch.setattr(changelist, "CAP", 60)
    monkeypatch.setattr(words_module, "CAP", 60)
    many(61)
    body = text(get(admin_client))
    assert "More than 60 jobs match" in body
    assert "Select all matching jobs (more than 60)" in body
    assert "All matching jobs selected (more than 60)" in body
    said = re.sub(r"<[^>]*>", " ", body[body.index("<h1>") :])
    said = re.sub(r"[0-9a-f]+-[0-9a-f-]+", "", said)  # ids
    assert "61" not in said
    for before, after in re.findall(r"(.{5})\b60\b(.?)", said):
        assert before == "than " or after == "+", (before, after)


def test_a_search_says_how_far_it_went(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.clear()
    monkeypatch.setattr(windows, "NEAR", 3)
    monkeypatch.setattr(windows, "FAR", 4)
    old = JobFactory(worker="w")
    many(4)
    body = text(get(admin_client, q="worker:w"))
    assert "In the newest 3 jobs." in body
    assert shown(body) == []
    address = re.search(r'<a href="([^"]*)">Search all', body)
    assert address is not None
    body = text(admin_client.get(reverse(JOBS) + html.unescape(address[1])))
    assert shown(body) == [old.pk]
    assert "In the newest" not in body
    assert "In the newest 4 jobs." in text(get(admin_client, q="args.order:1"))
    assert "In the first 3 jobs." in text(get(admin_client, q="worker:w", state="queued"))
    cache.clear()


@pytest.mark.postgres
def test_a_slow_database_leaves_a_page(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory()

    def slowly(self: listing.Listing) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 100")
            cursor.execute("SELECT pg_sleep(10)")

    monkeypatch.setattr(listing.Listing, "counts", slowly)
    body = text(get(admin_client))
    assert "The database did not answer in 2 s." in body
    assert shown(body) == [job.pk]
    monkeypatch.setattr(listing.Listing, "page", lambda *args, **kwargs: slowly(args[0]))
    body = text(get(admin_client))
    assert "The database did not answer in 2 s." in body
    assert shown(body) == []
    assert admin_client.post(reverse(JOBS), {"action": "requeue_jobs"}).status_code == 200


# The side bar


def test_side_bar(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    QueueFactory(name="mail")
    for name in ("a", "b", "c"):
        Tally.objects.create(span=900, starts_at=now(), queue_name="mail", task_path=f"shop.{name}")
    body = text(get(admin_client, task="gone.task", state="failed"))
    for part in ("queue=mail", "task=shop.a", "within=15min", "attempt=retried", "gone.task"):
        assert part in body
    assert 'type="datetime-local" name="from"' in body
    form = re.search(r'<form method="get" class="jq-period".*?</form>', body, re.DOTALL)
    assert form is not None
    assert 'name="state" value="failed"' in form[0]
    assert "There are more" not in body
    monkeypatch.setattr(filters, "TASKS_OFFERED", 2)
    assert "There are more" in text(get(admin_client))
    body = text(get(admin_client, from_="2026-01-01", within=""))
    assert 'value="2026-01-01"' in body
    cache.clear()


# What it costs


def test_asks_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions for fifty jobs as for one, and none that reads everything."""
    client = staff("view_job", "view_job_args", "cancel_job")
    QueueFactory(name="default")
    questions = []
    for number in (1, 60):
        many(number, args=["x" * 1_000], failed=True)
        for query in ({}, {"state": "failed"}, {"state": "queued", "q": "tests.tasks args.a:1"}):
            cache.clear()
            with CaptureQueriesContext(connection) as asked:
                get(client, **query)
            questions.append(len(asked))
            assert len(asked) <= 16, [each["sql"] for each in asked]
            for sql in (each["sql"] for each in asked):
                for word in ("DISTINCT", "OFFSET", "UPPER("):
                    assert word not in sql
                if '"jobqueue_job"' in sql:
                    assert "LIMIT" in sql
    # But for one that counts: what fits on a page is counted by having been read.
    assert all(more <= few + 1 for few, more in zip(questions[:3], questions[3:], strict=True))


# The bar of newer jobs


def test_newer(admin_client: Client) -> None:
    old = JobFactory(failed=True)
    body = text(get(admin_client, state="failed"))
    found = re.search(r'data-jq-newer="([^"]*)"', body)
    assert found is not None
    address = html.unescape(found[1])
    assert json.loads(admin_client.get(address).content) == {"n": 0, "capped": False}
    many(2, failed=True)
    JobFactory()
    response = admin_client.get(address)
    assert json.loads(response.content) == {"n": 2, "capped": False}
    assert "no-store" in response["Cache-Control"]
    assert "data-jq-newer" not in text(get(admin_client, state="queued"))
    assert "data-jq-newer" not in text(get(admin_client, after=old.pk.hex))
    assert "data-jq-newer" in text(get(admin_client, queue="none"))


def test_newer_takes_the_rights_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory(kwargs={"a": 1})
    assert staff("view_queue").get(reverse(NEWER)).status_code == 403
    assert Client().get(reverse(NEWER)).status_code == 302
    for rights, number in (((), 0), (("view_job_args",), 1)):
        answer = staff("view_job", *rights).get(reverse(NEWER), {"q": "args.a:1"})
        assert json.loads(answer.content)["n"] == number


# Rights


def test_rights() -> None:
    JobFactory()
    assert staff("view_queue").get(reverse(JOBS)).status_code == 403
    assert Client().get(reverse(JOBS)).status_code == 302
    for right, action in (
        ("requeue_job", "requeue_jobs"),
        ("cancel_job", "cancel_jobs"),
        ("purge_job", "purge_jobs"),
    ):
        body = text(get(staff("view_job", right)))
        offered = re.findall(r'<option value="(\w+)"', body)
        assert offered == [action]
    body = text(get(staff("view_job")))
    assert 'name="action"' not in body
    assert 'name="_selected_action"' not in body


def test_nobody_adds_changes_or_deletes(admin_client: Client) -> None:
    job = JobFactory()
    for name, *key in (("add",), ("delete", job.pk)):
        address = reverse(f"admin:jobqueue_job_{name}", args=key)
        assert admin_client.get(address).status_code == 403
        assert admin_client.post(address, {"post": "yes"}).status_code == 403
    assert "delete_selected" not in text(get(admin_client))
    assert Job.objects.filter(pk=job.pk).exists()


def test_limits_on_rows_hold_everywhere(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = JobFactory(queue_name="mine"), JobFactory(queue_name="theirs", failed=True)
    whole = JobAdmin.get_queryset
    monkeypatch.setattr(
        JobAdmin,
        "get_queryset",
        lambda self, request: whole(self, request).filter(queue_name="mine"),
    )
    response = get(admin_client)
    assert shown(text(response)) == [mine.pk]
    assert response.context["cl"].numbers["failed"] == 0
    assert shown(text(get(admin_client, q=str(theirs.pk)))) == []
    answer = admin_client.get(reverse(NEWER), {"state": "failed"})
    assert json.loads(answer.content)["n"] == 0


# Choosing


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What confirmations are asked for."""
    asked: list[dict[str, Any]] = []

    def address(page: Any, request: Any, verb: str, **chosen: Any) -> str:
        asked.append({"verb": verb} | chosen)
        return "/there/"

    monkeypatch.setattr(confirming, "address", address)
    return asked


def choose(client: Client, query: str, *jobs: Job, across: int = 0) -> Any:
    data = {
        "action": "requeue_jobs",
        "_selected_action": [str(job.pk) for job in jobs],
        "select_across": str(across),
        "index": "0",
    }
    return client.post(reverse(JOBS) + query, data)


def test_choosing(asked_for: list[dict[str, Any]]) -> None:
    jobs = many(60, failed=True)
    client = staff("view_job", "requeue_job", "bulk_job")
    assert choose(client, "?state=failed", *jobs[:2])["Location"] == "/there/"
    assert asked_for.pop() == {"verb": "requeue", "ids": [str(job.pk) for job in jobs[:2]]}
    body = text(get(client, state="failed"))
    assert "Select all 60 jobs that match" in body
    query = f"?state=failed&q=task%3Atests*&after={jobs[-1].pk.hex}"
    choose(client, query, jobs[0], across=1)
    assert asked_for.pop() == {"verb": "requeue", "query": "state=failed&q=task%3Atests%2A"}


def test_all_that_match_take_a_right(
    asked_for: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = many(60, failed=True)
    client = staff("view_job", "requeue_job")
    assert "Select all 60" not in text(get(client))
    response = choose(client, "?state=failed", jobs[0], across=1)
    assert response["Location"].endswith("?state=failed")
    assert "Nothing was changed" in text(client.get(response["Location"]))
    monkeypatch.setattr("jobqueue.admin.jobs.TICKED", 3)
    choose(client, "", *jobs[:4])
    assert asked_for == []
    choose(client, "", *jobs[:3])
    assert len(asked_for) == 1


def test_times_are_exact_to_the_words() -> None:
    job = JobFactory(completed=True, attempted_at=ago(20), finished_at=ago(10))
    words = columns.when(job, job.finished_at + timedelta(minutes=11))
    assert "finished <time" in words
    assert ">11 min ago</time>, took 10 s" in words


def test_queues_are_offered_from_their_table(admin_client: Client) -> None:
    Queue.objects.bulk_create(Queue(name=f"q{number:03}") for number in range(120))
    body = text(get(admin_client, queue="q119"))
    assert [f"queue=q{number:03}" in body for number in (99, 100, 119)] == [True, False, True]
