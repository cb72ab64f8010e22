"""The page of a job: why it failed at a glance, what can be copied, and a job that ends while it is looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from jobqueue.models import Job, JobLog, Status
from tests.browser.data import TRACEBACK
from tests.browser.site import Person
from tests.browser.steps import LIST, confirm, empty, message
from tests.factories import JobFactory, JobLogFactory, ago, now

pytestmark = pytest.mark.usefixtures("nothing")

LONG = TRACEBACK + "".join(f'  File "/srv/{n}.py", line {n}, in f\n' for n in range(400)) + "End: 1"


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


def failed(traceback: str = TRACEBACK, attempts: int = 3) -> Job:
    """A job that has failed so many times."""
    job = JobFactory(
        failed=True,
        attempt=attempts,
        max_attempts=attempts,
        task_path="shop.mail.send",
        kwargs={"to": "ada@example.com", "exact": 9007199254740993},
        error="shop.mail.ServerBusy: 451 try again later",
    )
    for attempt in range(1, attempts + 1):
        JobLogFactory(
            job=job,
            event=JobLog.Event.ERRORED,
            created_at=ago(40 - attempt),
            attempt=attempt,
            level="error",
            worker="host:1:00000000",
            message="shop.mail.ServerBusy: 451 try again later",
            data={"exception": "shop.mail.ServerBusy", "traceback": traceback, "delay": 2.0},
        )
    return job


def page_of(someone: Person, job: Job) -> Page:
    return someone.go(f"{LIST}{job.pk}/change/")


def test_why_it_failed_is_seen_at_once(person: Callable[..., Person]) -> None:
    """Without scrolling, on an ordinary screen: what went wrong, and the newest traceback."""
    page = page_of(person(viewport={"width": 1400, "height": 1000}), failed())
    error = page.locator("[data-jq=job-error]")
    assert "451 try again later" in error.inner_text()
    traceback = page.locator("#jq-traceback-3")
    assert "raise ServerBusy" in traceback.inner_text()
    for part in (error, traceback):
        box = part.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, box
    assert not page.locator("#jq-traceback-2").is_visible()  # older ones are closed


@pytest.mark.parametrize("clipboard", [True, False])
def test_copied_in_full(person: Callable[..., Person], clipboard: bool) -> None:
    """All of a traceback that scrolls, and all of the arguments; on a site without TLS, too."""
    job = failed(LONG, attempts=1)
    someone = person(permissions=["clipboard-read", "clipboard-write"])
    if not clipboard:
        someone.context.add_init_script(
            "window.kept = navigator.clipboard;"
            "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        )
    page = page_of(someone, job)
    read = "(navigator.clipboard || window.kept).readText()"
    page.get_by_role("button", name="Copy traceback").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate(read).strip() == LONG.strip()
    assert page.evaluate("document.activeElement.textContent") == "Copied"  # the focus stays
    page.locator("[data-jq-copy='#jq-copy-kwargs']").click()
    page.locator("[data-jq-copy='#jq-copy-kwargs']", has_text="Copied").wait_for()
    assert '"exact": 9007199254740993' in page.evaluate(read)


def test_nothing_to_copy_with_where_there_are_no_scripts(person: Callable[..., Person]) -> None:
    page = page_of(person(java_script_enabled=False), failed())
    assert page.locator("[data-jq-copy]").count()
    assert not page.locator("[data-jq-copy]").first.is_visible()
    assert page.get_by_role("link", name="Download").first.is_visible()


def test_a_job_that_ends_while_it_is_looked_at(person: Callable[..., Person]) -> None:
    """The badge, the buttons and the attempts follow it; a cancellation that comes too late says so."""
    job = JobFactory(processing=True, task_path="shop.mail.send")
    someone = person()
    someone.page.clock.install()
    page = page_of(someone, job)
    header = page.locator("[data-jq=job-header]")
    assert header.locator(".jq-state").inner_text().endswith("Processing")
    assert header.locator("[data-jq=cancel]").count() == 1
    cancel = header.locator("[data-jq=cancel]").get_attribute("href")
    status = page.locator("[data-jq=live-status]")
    assert status.inner_text() == "Live."
    _end(job)
    page.clock.run_for(5_100)
    header.locator(".jq-state", has_text="Failed").wait_for()
    assert header.locator("[data-jq=cancel]").count() == 0
    assert header.locator("[data-jq=requeue]").count() == 1
    assert "451 try again later" in header.locator("[data-jq=job-error]").inner_text()
    page.locator("#jq-traceback-1", has_text="raise ServerBusy").wait_for()
    assert page.locator("[data-jq=attempts] .jq-state").first.inner_text().endswith("Failed")
    page.locator("[data-jq=live-status]", has_text="Final;").wait_for()
    # Somebody who had pressed the button just before:
    page = someone.go(str(cancel))
    assert "There is nothing to do" in page.locator("[data-jq=nothing]").inner_text()
    assert "it has ended already" in page.locator("[data-jq=preview]").inner_text()
    assert page.locator("[data-jq=confirm-form]").count() == 0


def test_a_cancellation_that_comes_too_late(person: Callable[..., Person]) -> None:
    """The job ends while its cancellation is being confirmed."""
    job = JobFactory(processing=True)
    page = page_of(person(), job)
    page.locator("[data-jq=cancel]").click()
    page.wait_for_url("**/act/cancel/**")
    _end(job)
    confirm(page, "too slow")
    assert message(page) == "Nothing was changed. 1 skipped: 1 failed."
    job.refresh_from_db()
    assert job.status == Status.FAILED


def _end(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(
        status=Status.FAILED,
        finished_at=now(),
        lease_owner=None,
        lease_expires_at=None,
        error="shop.mail.ServerBusy: 451 try again later",
    )
    JobLogFactory(
        job=job,
        event=JobLog.Event.ERRORED,
        attempt=1,
        level="error",
        worker="host:1:00000000",
        message="shop.mail.ServerBusy: 451 try again later",
        data={"exception": "shop.mail.ServerBusy", "traceback": TRACEBACK},
    )


#: What each state offers to somebody with all rights.
OFFERED: dict[str, set[str]] = {
    "scheduled": {"run_now", "cancel"},
    "queued": {"cancel"},
    "processing": {"cancel"},
    "completed": {"requeue", "purge"},
    "failed": {"requeue", "purge"},
    "cancelled": {"requeue", "purge"},
    "stopping": set(),
}


def test_each_state_has_its_buttons(person: Callable[..., Person]) -> None:
    someone = person()
    for state, offered in OFFERED.items():
        page = page_of(someone, JobFactory(**{state: True}))
        buttons = page.locator("[data-jq=job-header] a[href*='/act/']")
        assert {each.get_attribute("data-jq") for each in buttons.all()} == offered, state
