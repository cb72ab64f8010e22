"""Queues and workers with real workers behind them, sweeps that repair what they left, and the audit log's file."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from jobqueue.models import AuditEntry, Job, JobLog, Queue, Status, Sweep, Worker
from tests.browser.site import Person
from tests.browser.steps import ROOT, confirm, empty, message
from tests.factories import JobFactory, now
from tests.processes import tasks
from tests.processes.conftest import OPTIONS, Site, wait_until

pytestmark = pytest.mark.usefixtures("nothing")


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


@pytest.fixture(scope="module", autouse=True)
def short_times() -> Iterator[None]:
    """The site goes by the times of its workers."""
    before = os.environ.get("JOBQUEUE_TEST_OPTIONS")
    os.environ["JOBQUEUE_TEST_OPTIONS"] = json.dumps(OPTIONS)
    yield
    if before is None:
        del os.environ["JOBQUEUE_TEST_OPTIONS"]
    else:
        os.environ["JOBQUEUE_TEST_OPTIONS"] = before


@pytest.fixture
def crew(
    nothing: None, tmp_path: Path, child_environment: Callable[..., dict[str, str]]
) -> Iterator[Site]:
    """Workers, on the database of the site."""
    site = Site(tmp_path, child_environment)
    try:
        yield site
    finally:
        for supervised in site.running:
            supervised.kill_all()


def act(page: Page, name: str, reason: str) -> None:
    """Press a button that leads to a confirmation, and confirm."""
    page.get_by_role("link", name=name).click()
    page.wait_for_url("**/act/**")
    confirm(page, reason)


def test_a_paused_queue(person: Callable[..., Person], crew: Site) -> None:
    """What runs ends, nothing new begins; everybody sees why; resumed, it goes on."""
    crew.start_ready("--processes", "1", "--concurrency", "4")
    running = tasks.until.enqueue("go")
    crew.wait_for("begin", running.id)
    someone = person()
    page = someone.go(f"{ROOT}queue/")
    act(page, "Pause… default", "the provider is down")
    row = page.locator("[data-jq=queue-row]", has_text="default")
    assert "Paused by owner" in row.inner_text()
    assert "the provider is down" in row.inner_text()
    page = someone.go(f"{ROOT}overview/")
    # By the next refresh at the latest: what was reckoned up to now is kept for three seconds.
    page.locator("[data-jq=warnings]", has_text="Queue default is paused by owner").wait_for()
    waiting = tasks.quick.enqueue()
    crew.release("go")
    crew.wait_status(running.id, "completed")
    for _each in range(3):  # the worker looks for jobs all the while
        crew.wait_status(tasks.quick.using(queue_name="other").enqueue().id, "completed")
    assert Job.objects.get(pk=waiting.id).status == Status.QUEUED
    assert crew.events("begin", waiting.id) == []
    page = someone.go(f"{ROOT}queue/")
    act(page, "Resume… default", "it is up again")
    crew.wait_status(waiting.id, "completed")
    assert not Queue.objects.get(name="default").is_paused(now())
    told = AuditEntry.objects.order_by("pk").values_list("verb", "target", "reason", "changed")
    assert list(told) == [
        ("pause", "default", "the provider is down", 1),
        ("resume", "default", "it is up again", 1),
    ]
    page = someone.go(f"{ROOT}auditentry/")
    assert page.locator("[data-jq=audit-row]").count() == 2


def _standing(page: Page) -> str:
    return str(page.locator("[data-jq=worker-row] [data-jq=standing]").inner_text()).split()[-1]


def test_a_worker_that_is_killed(person: Callable[..., Person], crew: Site) -> None:
    """Late, then silent, with its job beside it; a sweep brings the job back and tells of it."""
    supervised = crew.start_ready("--processes", "1", "--concurrency", "2")
    job = tasks.until.enqueue("never")
    crew.wait_for("begin", job.id)
    someone = person()
    page = someone.go(f"{ROOT}worker/")
    assert _standing(page) == "alive"
    row = page.locator("[data-jq=worker-row]")
    assert row.get_by_role("link", name="tests.processes.tasks.until").count() == 1
    assert "1 of 2" in row.inner_text()
    supervised.kill_all()
    seen = []

    def looked() -> bool:
        page.reload()
        if not seen or seen[-1] != _standing(page):
            seen.append(_standing(page))
        return bool(seen[-1] == "silent")

    wait_until(looked, "the worker to be silent")
    assert seen in (["alive", "late", "silent"], ["late", "silent"])
    assert row.get_by_role("link", name="tests.processes.tasks.until").count() == 1
    assert "1 lease" in row.locator("[data-jq=consequence]").inner_text()
    wait_until(lambda: Job.objects.get(pk=job.id).lease_expires_at <= now(), "the end of the lease")
    page = someone.go(f"{ROOT}job/{job.id}/change/")
    assert page.locator("[data-jq=job-header] .jq-state").inner_text().endswith("Lost")
    assert "The lease of worker" in page.locator("[data-jq=job-error]").inner_text()
    page = someone.go(f"{ROOT}sweep/")
    act(page, "Run a sweep now…", "its machine is gone")
    assert "The sweep repaired" in message(page)
    found = Job.objects.get(pk=job.id)
    assert found.status in (Status.SCHEDULED, Status.QUEUED)
    sweep = Sweep.objects.filter(eventful=True).latest("pk")
    page.get_by_role("link", name=f"#{sweep.pk}").first.click()
    page.wait_for_url(f"**/sweep/{sweep.pk}/change/**")
    repair = page.locator("[data-jq=repair-row]", has_text=str(job.id))
    assert "expired leases taken back" in repair.inner_text()
    assert "processing →" in repair.inner_text()
    repair.get_by_role("link").click()
    page.wait_for_url(f"**/job/{job.id}/change/**")
    timeline = page.locator("[data-jq=timeline]")
    assert timeline.get_by_role("rowheader", name="lost").count() == 1
    assert AuditEntry.objects.get().reason == "its machine is gone"


def test_a_worker_that_is_quieted(person: Callable[..., Person], crew: Site) -> None:
    """Asked, then confirmed; what runs ends, and nothing more is taken."""
    crew.start_ready("--processes", "1", "--concurrency", "2")
    running = tasks.until.enqueue("go")
    crew.wait_for("begin", running.id)
    # While it is stopped it does not hear.
    worker = Worker.objects.get(state=Worker.State.RUNNING)
    os.kill(worker.pid, 19)
    someone = person()
    page = someone.go(f"{ROOT}worker/")
    act(page, "Quiet… ", "before the release")
    assert message(page) == "1 worker asked to be quiet."
    row = page.locator("[data-jq=worker-row]")
    assert row.locator("[data-jq=order]").inner_text() == "quiet asked"
    assert "by owner" in row.inner_text()
    assert "before the release" in row.inner_text()
    os.kill(worker.pid, 18)
    wait_until(
        lambda: Worker.objects.get(pk=worker.pk).state == Worker.State.QUIET, "it to be quiet"
    )
    page.reload()
    assert row.locator("[data-jq=order]").count() == 0
    assert "Quiet: finishes what runs" in row.inner_text()
    waiting = tasks.quick.enqueue()
    crew.release("go")
    crew.wait_status(running.id, "completed")
    page.wait_for_timeout(1_000)  # ten of its ticks
    assert Job.objects.get(pk=waiting.id).status == Status.QUEUED
    page = someone.go(f"{ROOT}overview/")
    page.locator("[data-jq=warnings]", has_text="No live worker").wait_for()


def test_a_dry_run_changes_nothing(person: Callable[..., Person]) -> None:
    """It names what a sweep would repair; that takes a right, and so does the sweep."""
    lost = JobFactory(processing=True, lease_expires_at=now(), task_path="shop.mail.send")
    before = list(Job.objects.values())
    someone = person()
    page = someone.go(f"{ROOT}sweep/")
    page.get_by_role("button", name="Dry run").click()
    page.wait_for_url("**/dry/")
    row = page.locator("[data-jq=dry-row]", has_text="expired leases taken back")
    assert str(lost.pk) in row.inner_text()
    assert row.locator("td").inner_text() == "1"
    assert list(Job.objects.values()) == before
    assert not JobLog.objects.exists()
    assert not Sweep.objects.exists()
    assert not AuditEntry.objects.exists()
    page = person("viewer").go(f"{ROOT}sweep/")
    assert page.get_by_role("button", name="Dry run").count() == 0
    assert page.get_by_role("link", name="Run a sweep now…").count() == 0


def _entry(**given: Any) -> None:
    AuditEntry.objects.create(
        **{"at": now(), "actor_id": "7", "actor_name": "Ada", "target_kind": "job", "chosen": 1}
        | {"verb": "requeue", "target": "state=failed", "changed": 1, "reason": "again"}
        | given
    )


def test_the_audit_log_as_a_file(person: Callable[..., Person]) -> None:
    """By who and what; no cell of the file is a formula."""
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    for text in formulas:
        _entry(reason=text, actor_name=text.strip() or "Ada")
    _entry(verb="cancel", actor_name="Grace", reason='a "quoted", one\nand a line')
    page = person().go(f"{ROOT}auditentry/")
    filters = page.locator("[data-jq=audit-filters]")
    filters.get_by_label("Who").select_option(label="Grace")
    filters.get_by_role("button", name="Filter").click()
    page.wait_for_load_state()
    assert page.locator("[data-jq=audit-row]").count() == 1
    page.get_by_role("link", name="Clear the filter").click()
    page.wait_for_load_state()
    with page.expect_download() as waited:
        page.locator("[data-jq=export] button").click()
    text = Path(waited.value.path()).read_bytes().decode()
    table = list(csv.DictReader(io.StringIO(text, newline="")))
    reasons = {row["reason"] for row in table}
    assert {f"'{formula}" for formula in formulas} <= reasons
    assert 'a "quoted", one\nand a line' in reasons
    for row in table:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
    # Having been read is told of.
    assert AuditEntry.objects.latest("pk").verb == "export"
