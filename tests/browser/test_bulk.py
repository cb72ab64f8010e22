"""Changing jobs from the list, from the first tick to the message: what was confirmed, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.db import connection
from playwright.sync_api import Page

from jobqueue import lifecycle
from jobqueue.models import AuditEntry, Job, JobLog, Queue, Status
from tests.browser.site import Person
from tests.browser.steps import (
    LIST,
    ROOT,
    confirm,
    empty,
    many_failed,
    message,
    run_action,
    send,
    tick,
)
from tests.factories import JobFactory, QueueFactory, now

pytestmark = pytest.mark.usefixtures("nothing")

REASON = "the provider is back"


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


def status(*jobs: Job) -> list[str]:
    """How these jobs stand in the database."""
    found = dict(Job.objects.values_list("pk", "status"))
    return [found[job.pk] for job in jobs]


def select_all(page: Page, number: int) -> None:
    """Tick the box above the rows, then take all that match."""
    page.locator("#action-toggle").check()
    page.get_by_text(f"Select all {number:,} jobs that match").click()
    assert page.get_by_text(f"All {number:,} jobs that match selected").is_visible()


def the_entry() -> AuditEntry:
    """The one row of the audit log."""
    return AuditEntry.objects.get()


def _requeue_two(someone: Person) -> None:
    jobs = many_failed(5)
    page = someone.go(f"{LIST}?state=failed")
    tick(page, jobs[1:3])
    run_action(page, "requeue")
    assert page.locator("h1").inner_text() == "Requeue 2 jobs?"
    assert "You chose 2 jobs." in page.locator("[data-jq=choice]").inner_text()
    assert status(*jobs) == ["failed"] * 5  # asked, and no more
    confirm(page, REASON)
    assert message(page) == "2 jobs queued."
    assert page.url.endswith("/job/?state=failed")
    assert status(*jobs) == ["failed", "queued", "queued", "failed", "failed"]
    lines = JobLog.objects.filter(event=JobLog.Event.REQUEUED)
    assert set(lines.values_list("job_id", "actor_name", "message")) == {
        (job.pk, "owner", REASON) for job in jobs[1:3]
    }
    entry = the_entry()
    assert (entry.actor_name, entry.verb, entry.reason) == ("owner", "requeue", REASON)
    assert (entry.chosen, entry.changed, entry.skipped) == (2, 2, {})


def test_two_ticked_jobs(person: Callable[..., Person]) -> None:
    _requeue_two(person())


def test_two_ticked_jobs_without_scripts(person: Callable[..., Person]) -> None:
    _requeue_two(person(java_script_enabled=False))


def _is_small(page: Page) -> None:
    """The form has the same few fields whatever the number, and so has the page."""
    assert page.locator("form[data-jq=confirm-form] :is(input, select, textarea)").count() < 10
    assert len(page.content()) < 40_000


@pytest.mark.parametrize("scripts", [True, False])
def test_all_that_match(person: Callable[..., Person], scripts: bool) -> None:
    jobs = many_failed(281)
    others = many_failed(3, queue_name="slow")
    JobFactory(completed=True)
    page = person(java_script_enabled=scripts).go(f"{LIST}?state=failed&queue=default")
    if scripts:
        select_all(page, 281)
    else:  # there is a box in the place of the link
        page.get_by_label("Select all 281 jobs that match").check()
    run_action(page, "requeue")
    assert page.locator("h1").inner_text() == "Requeue 281 jobs?"
    choice = page.locator("[data-jq=choice]").inner_text()
    assert "Failed" in choice
    assert "default" in choice
    _is_small(page)
    confirm(page, REASON)
    assert message(page) == "281 jobs queued."
    assert set(status(*jobs)) == {"queued"}
    assert set(status(*others)) == {"failed"}
    assert JobLog.objects.filter(event=JobLog.Event.REQUEUED).count() == 281
    assert (the_entry().chosen, the_entry().changed) == (281, 281)


def test_what_changes_meanwhile_is_left_alone(person: Callable[..., Person]) -> None:
    """A job that failed later was not seen, whether it is new or old; one that was taken is told of."""
    seen = many_failed(64)
    old = JobFactory(processing=True)
    page = person().go(f"{LIST}?state=failed")
    select_all(page, 64)
    run_action(page, "requeue")
    assert page.locator("h1").inner_text() == "Requeue 64 jobs?"
    (new,) = many_failed(1)
    Job.objects.filter(pk=old.pk).update(
        status=Status.FAILED,
        finished_at=now(),
        lease_owner=None,
        lease_expires_at=None,
        error="ValueError: later",
    )
    lifecycle.requeue_many(Job.objects.filter(pk=seen[0].pk), actor=None, reason="somebody else")
    confirm(page, REASON)
    assert message(page) == "63 jobs queued. 1 skipped: 1 changed since the page was shown."
    assert status(new, old) == ["failed", "failed"]
    assert set(status(*seen)) == {"queued"}
    mine = JobLog.objects.filter(event=JobLog.Event.REQUEUED, message=REASON)
    assert not mine.filter(job_id__in=[seen[0].pk, new.pk, old.pk]).exists()
    assert (the_entry().changed, the_entry().skipped) == (63, {"changed": 1})


def test_mixed_states_before_and_after(person: Callable[..., Person]) -> None:
    many_failed(3)
    for state, number in (("queued", 2), ("processing", 1), ("completed", 1)):
        for _each in range(number):
            JobFactory(**{state: True})
    page = person().go(LIST)
    page.locator("#action-toggle").check()
    run_action(page, "requeue")
    assert page.locator("h1").inner_text() == "Requeue 4 jobs?"
    rows = page.locator("[data-jq=preview] tbody tr").all()
    told = {
        row.locator("th .jq-state").inner_text().split()[-1]: (
            int(row.locator("td").nth(0).inner_text()),
            row.locator("td").nth(1).inner_text().startswith("Skipped"),
        )
        for row in rows
    }
    assert told == {
        "Failed": (3, False),
        "Completed": (1, False),
        "Queued": (2, True),
        "Processing": (1, True),
    }
    confirm(page)
    assert message(page) == "4 jobs queued. 3 skipped: 2 queued, 1 processing."


@pytest.mark.parametrize("scripts", [True, False])
def test_no_reason_no_change(person: Callable[..., Person], scripts: bool) -> None:
    """The error stands at the field, which has the focus, and what was chosen is still chosen."""
    jobs = many_failed(2)
    page = person(java_script_enabled=scripts).go(f"{LIST}?state=failed")
    tick(page, jobs)
    run_action(page, "requeue")
    for reason, error in (
        ("", "Say why: others will read it."),
        ("   ", "Say why: others will read it."),
        ("x" * 301, "At most 300 characters; these are 301."),
    ):
        page.locator("#id_reason").evaluate("(field) => field.removeAttribute('maxlength')")
        page.locator("#id_reason").fill(reason)
        send(page)
        assert page.locator("#id_reason_error").inner_text() == error
        field = page.locator("#id_reason")
        assert field.get_attribute("aria-invalid") == "true"
        assert "id_reason_error" in (field.get_attribute("aria-describedby") or "")
        page.wait_for_function("document.activeElement.id === 'id_reason'")
        assert set(status(*jobs)) == {"failed"}
        assert not JobLog.objects.exists()
    confirm(page, "x" * 300)
    assert message(page) == "2 jobs queued."


def test_purging_takes_the_number(person: Callable[..., Person]) -> None:
    jobs = many_failed(3)
    page = person().go(f"{LIST}?state=failed")
    tick(page, jobs[:2])
    run_action(page, "purge")
    confirm(page, REASON, number="3")
    assert page.locator("#id_number_error").inner_text() == "That is not the number. Type 2."
    page.wait_for_function("document.activeElement.id === 'id_number'")
    assert Job.objects.count() == 3
    confirm(page, REASON, number="2")
    assert message(page) == "2 jobs purged."
    assert Job.objects.get().pk == jobs[2].pk


@pytest.mark.parametrize("between", [0, 200])
def test_clicked_twice(person: Callable[..., Person], between: int) -> None:
    """The second does nothing, and whichever is answered, the person reads how many were changed."""
    many_failed(1_000)
    page = person().go(f"{LIST}?state=failed")
    select_all(page, 1_000)
    run_action(page, "requeue")
    page.locator("#id_reason").fill(REASON)
    page.locator("[data-jq=confirm-form] button[type=submit]").dblclick(delay=between)
    # The second click may abort the first one's navigation: what counts is where both lead.
    page.locator("[data-jq=told]").wait_for()
    assert page.url.endswith("/job/?state=failed")
    assert "1,000 jobs queued." in message(page)
    assert not Job.objects.exclude(status=Status.QUEUED).exists()
    assert JobLog.objects.filter(event=JobLog.Event.REQUEUED).count() == 1_000
    assert sum(AuditEntry.objects.values_list("changed", flat=True)) == 1_000


def test_sent_again_after_going_back(person: Callable[..., Person]) -> None:
    jobs = many_failed(2)
    page = person().go(f"{LIST}?state=failed")
    tick(page, jobs)
    run_action(page, "requeue")
    asked = page.url
    confirm(page, REASON)
    assert message(page) == "2 jobs queued."
    page.reload()
    assert page.locator("[data-jq=told]").count() == 0
    Job.objects.filter(pk=jobs[0].pk).update(status=Status.FAILED, finished_at=now())  # once more
    page.goto(asked)
    assert page.locator("h1").inner_text() == "Requeue 1 job?"
    page.go_back()
    assert JobLog.objects.filter(event=JobLog.Event.REQUEUED).count() == 2


def test_the_same_form_sent_again(person: Callable[..., Person]) -> None:
    """As by a reload of its answer, or from a second window."""
    jobs = many_failed(2)
    someone = person()
    page = someone.go(f"{LIST}?state=failed")
    tick(page, jobs)
    run_action(page, "requeue")
    token = page.locator("[name=t]").get_attribute("value") or ""
    csrf = page.locator("[name=csrfmiddlewaretoken]").first.get_attribute("value") or ""
    confirm(page, REASON)
    assert message(page) == "2 jobs queued."
    answer = someone.context.request.post(
        f"{someone.address}{LIST}act/requeue/",
        form={"t": token, "csrfmiddlewaretoken": csrf, "reason": REASON},
        headers={"Referer": page.url},
    )
    assert (
        "Nothing was changed. 2 skipped: 2 queued. You had sent this before: 2 jobs queued."
        in answer.text()
    )
    assert JobLog.objects.filter(event=JobLog.Event.REQUEUED).count() == 2


@pytest.mark.parametrize("scripts", [True, False])
def test_one_job_from_its_page(person: Callable[..., Person], scripts: bool) -> None:
    """Requeue it, then cancel it."""
    (job,) = many_failed(1)
    page = person(java_script_enabled=scripts).go(f"{LIST}{job.pk}/change/")
    page.locator("[data-jq=requeue]").click()
    page.wait_for_url("**/act/requeue/**")
    assert page.locator("h1").inner_text() == "Requeue 1 job?"
    confirm(page, REASON)
    assert f"/job/{job.pk}/change/" in page.url
    assert message(page) == "1 job queued."
    assert page.locator("[data-jq=job-header] .jq-state").inner_text().endswith("Queued")
    page.locator("[data-jq=cancel]").click()
    page.wait_for_url("**/act/cancel/**")
    confirm(page, "not needed")
    assert message(page) == "1 job cancelled."
    assert status(job) == ["cancelled"]
    timeline = page.locator("[data-jq=timeline]").inner_text()
    assert REASON in timeline
    assert "not needed" in timeline
    assert "owner" in timeline


@pytest.mark.parametrize("scripts", [True, False])
def test_pause_and_resume_a_queue(person: Callable[..., Person], scripts: bool) -> None:
    QueueFactory(name="default")
    someone = person(java_script_enabled=scripts)
    page = someone.go(f"{ROOT}queue/")
    page.get_by_role("link", name="Pause… default").click()
    page.wait_for_url("**/act/pause/**")
    confirm(page, REASON)
    assert message(page) == "1 queue paused."
    row = page.locator("[data-jq=queue-row]").inner_text()
    assert "Paused by owner" in row
    assert REASON in row
    assert Queue.objects.get().is_paused(now())
    page.get_by_role("link", name="Resume… default").click()
    page.wait_for_url("**/act/resume/**")
    confirm(page, "all well")
    assert message(page) == "1 queue resumed."
    assert not Queue.objects.get().is_paused(now())
    told = list(AuditEntry.objects.order_by("pk").values_list("verb", "actor_name", "reason"))
    assert told == [("pause", "owner", REASON), ("resume", "owner", "all well")]


def test_ten_thousand_that_match(person: Callable[..., Person]) -> None:
    """In one request, before servers give up."""
    many_failed(10_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
    someone = person()
    someone.context.set_default_timeout(60_000)
    page = someone.go(f"{LIST}?state=failed")
    select_all(page, 10_000)
    run_action(page, "requeue")
    assert page.locator("h1").inner_text() == "Requeue 10,000 jobs?"
    _is_small(page)
    begun = time.monotonic()
    confirm(page, REASON, number="10,000")
    assert time.monotonic() - begun < 30
    assert message(page) == "10,000 jobs queued."
    assert not Job.objects.exclude(status=Status.QUEUED).exists()
    assert (the_entry().chosen, the_entry().changed) == (10_000, 10_000)
    assert JobLog.objects.count() == 10_000
