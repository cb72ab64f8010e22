"""The list of jobs as somebody walks through it: pages, filters, searches, numbers that lead somewhere, a telephone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from jobqueue import ids
from jobqueue.models import Job, Status
from tests.browser.site import Person
from tests.browser.steps import LIST, ROOT, empty, ids_shown, many_failed, number_in
from tests.factories import JobFactory, QueueFactory, ago

pytestmark = pytest.mark.usefixtures("nothing")


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


def some_of_each(failed: int = 3) -> None:
    """Jobs of all states, a different number of each."""
    many_failed(failed)
    for number, state in enumerate(("scheduled", "queued", "completed", "cancelled"), 1):
        for _each in range(number):
            JobFactory(**{state: True})
    for _each in range(2):
        JobFactory(scheduled=True, started=True, attempt=2, error="ServerBusy: 451")
        JobFactory(processing=True)
    JobFactory(processing=True, lease_expires_at=ago(60))


@pytest.mark.parametrize(
    "query",
    [
        "state=failed",
        "state=scheduled",
        "within=24h",
        "state=failed&within=24h",
        "q=attempt%3A%3E0",
    ],
)
def test_forth_to_the_end_and_back(person: Callable[..., Person], query: str) -> None:
    """Every job once, in the same order, though all have the same times."""
    jobs = many_failed(121)
    if query == "state=scheduled":
        Job.objects.update(status=Status.SCHEDULED, attempt=0, error="", finished_at=None)
        Job.objects.update(run_after=ago(-3600), started_at=None, attempted_at=None)
    page = person().go(f"{LIST}?{query}")
    assert number_in(page.locator("[data-jq=matches]").inner_text()) == len(jobs)
    forth = [ids_shown(page)]
    while page.locator("a[rel=next]").count():
        page.locator("a[rel=next]").click()
        page.wait_for_load_state()
        forth.append(ids_shown(page))
    back = [ids_shown(page)]
    while page.locator("a[rel=prev]").count():
        page.locator("a[rel=prev]").click()
        page.wait_for_load_state()
        back.append(ids_shown(page))
    assert [len(each) for each in forth] == [50, 50, 21]
    assert back == forth[::-1]
    walked = [pk for each in forth for pk in each]
    assert sorted(walked) == sorted(str(job.pk) for job in jobs)


def test_a_search_keeps_the_state_and_forgets_the_place(person: Callable[..., Person]) -> None:
    many_failed(60)
    many_failed(3, task_path="shop.orders.charge")
    page = person().go(f"{LIST}?state=failed")
    page.locator("a[rel=next]").click()
    page.wait_for_load_state()
    assert len(ids_shown(page)) == 13
    page.locator("#searchbar").fill("task:shop.orders.charge")
    page.locator("#searchbar").press("Enter")
    page.wait_for_url("**q=task*")
    query = parse_qs(urlsplit(page.url).query)
    assert query == {"state": ["failed"], "q": ["task:shop.orders.charge"]}
    assert len(ids_shown(page)) == 3
    assert page.locator("[data-jq=chip-failed]").get_attribute("aria-current") == "true"


def test_back_from_a_job_to_the_same_page(person: Callable[..., Person]) -> None:
    many_failed(60)
    page = person().go(f"{LIST}?state=failed")
    page.locator("a[rel=next]").click()
    page.wait_for_load_state()
    address, shown = page.url, ids_shown(page)
    page.locator("#result_list tbody th a").nth(3).click()
    page.wait_for_url("**/change/**")
    page.go_back()
    page.wait_for_url(address)
    assert ids_shown(page) == shown


def test_chips_lead_to_as_many_jobs(person: Callable[..., Person]) -> None:
    some_of_each()
    someone = person()
    page = someone.go(LIST)
    for key in ("scheduled", "queued", "processing", "retrying", "completed", "failed"):
        _leads_to_as_many(page, f"[data-jq=chip-{key}]", ".jq-chip-number")
        assert page.locator(f"[data-jq=chip-{key}]").get_attribute("aria-current") == "true"
        page.locator(f"[data-jq=chip-{key}]").click()  # and back to all
        page.wait_for_load_state()
        assert "state=" not in page.url


def test_tiles_lead_to_as_many_jobs(person: Callable[..., Person]) -> None:
    some_of_each()
    someone = person()
    for key in ("queued", "processing", "retrying", "failed", "lost", "scheduled"):
        page = someone.go(f"{ROOT}overview/")
        _leads_to_as_many(page, f"[data-jq=tile-{key}]", "b")


def test_numbers_of_queues_lead_to_as_many_jobs(person: Callable[..., Person]) -> None:
    QueueFactory(name="default")
    some_of_each()
    someone = person()
    links = "[data-jq=queue-row] td a[href*='state=']"
    number = someone.go(f"{ROOT}queue/").locator(links).count()
    assert number == 5
    for each in range(number):
        page = someone.go(f"{ROOT}queue/")
        _leads_to_as_many(page, f"{links} >> nth={each}")


def _leads_to_as_many(page: Page, link: str, number: str = "") -> None:
    shown = page.locator(link).locator(number) if number else page.locator(link)
    expected = number_in(shown.inner_text())
    assert expected > 0
    page.locator(link).click()
    page.wait_for_load_state()
    assert number_in(page.locator("[data-jq=matches]").inner_text()) == expected
    assert len(ids_shown(page)) == expected


def test_what_an_empty_list_says(person: Callable[..., Person]) -> None:
    someone = person()
    page = someone.go(LIST)
    assert "No jobs yet." in page.locator("[data-jq=empty]").inner_text()
    assert page.get_by_role("link", name="Clear the filter").count() == 0
    JobFactory()
    page = someone.go(f"{LIST}?q=task:no.such.task")
    assert "No job matches this filter." in page.locator("[data-jq=empty]").inner_text()
    page.get_by_role("link", name="Clear the filter").first.click()
    page.wait_for_load_state()
    assert len(ids_shown(page)) == 1
    page = someone.go(f"{LIST}?state=failed")
    assert "No failed jobs." in page.locator("[data-jq=empty]").inner_text()


def test_rows_are_cards_on_a_telephone(person: Callable[..., Person]) -> None:
    many_failed(2, task_path="shop.department.of.long.names.mail.send_the_newsletter_to_all")
    page = person(viewport={"width": 390, "height": 800}).go(f"{LIST}?state=failed")
    row = page.locator("[data-jq=job-row]").first
    for part in ("th code", ".jq-state", ".jq-line b", ".jq-last-error"):
        box = row.locator(part).bounding_box()
        assert box is not None, part
        assert box["x"] >= 0, part
        assert row.locator(part).is_visible(), part
    # What is wider is cut, and not reached by scrolling sideways.
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(
        "(() => { const box = document.querySelector('.results');"
        " return box.scrollWidth <= box.clientWidth; })()"
    )
    badge, task = row.locator(".jq-state").bounding_box(), row.locator(".jq-line").first
    assert badge["x"] + badge["width"] <= 390
    assert task.bounding_box()["y"] > badge["y"]  # below, not beside it
    for part in ("input.action-select", "th a"):
        box = row.locator(part).bounding_box()
        assert min(box["width"], box["height"]) >= 24, f"{part}: {box}"


def test_a_period_typed_in(person: Callable[..., Person]) -> None:
    then = ago(5 * 86_400)
    old = JobFactory(id=ids.first_at(then.timestamp()), enqueued_at=then)
    JobFactory()
    page = person().go(LIST)
    form = page.locator("[data-jq=period]")
    before, after = old.enqueued_at - timedelta(hours=1), old.enqueued_at + timedelta(hours=1)
    form.locator("[name=from]").fill(before.strftime("%Y-%m-%dT%H:%M"))
    form.locator("[name=to]").fill(after.strftime("%Y-%m-%dT%H:%M"))
    form.locator("button").click()
    page.wait_for_url("**from=*")
    assert ids_shown(page) == [str(old.pk)]
