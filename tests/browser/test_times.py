"""Times: in the site's zone, by the server's clock, whatever machine they are looked at on."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page

from jobqueue.models import Job
from tests.browser.data import Seeded, seed
from tests.browser.pages import addresses
from tests.browser.site import Person
from tests.browser.steps import LIST, ROOT, empty
from tests.factories import JobFactory, ago, now

BERLIN = ZoneInfo("Europe/Berlin")

#: The clock of a machine that is wrong by so many hours: all that a page knows of the time.
WRONG = """(() => {
    const by = %d * 3600000;
    const There = Date;
    window.Date = class extends There {
        constructor(...given) { if (given.length) super(...given); else super(There.now() + by); }
        static now() { return There.now() + by; }
    };
    const origin = performance.timeOrigin;
    Object.defineProperty(performance, "timeOrigin", {get: () => origin + by});
})()"""


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


def at(moment: datetime) -> str:
    """How the site writes a time."""
    local = moment.astimezone(BERLIN)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"


def elsewhere(person: Callable[..., Person], hours: int) -> Person:
    """Somebody in Los Angeles, whose clock is wrong by so many hours."""
    someone = person(variants=("berlin",), timezone_id="America/Los_Angeles")
    someone.context.add_init_script(WRONG % hours)
    return someone


@pytest.mark.parametrize("hours", [2, -2])
def test_a_wrong_clock_elsewhere(nothing: None, person: Callable[..., Person], hours: int) -> None:
    winter = datetime(2026, 1, 15, 12, 0, tzinfo=BERLIN)
    summer = datetime(2026, 7, 15, 12, 0, tzinfo=BERLIN)
    job = JobFactory(
        failed=True,
        enqueued_at=winter,
        run_after=summer,
        started_at=ago(700),
        attempted_at=ago(700),
        finished_at=ago(11 * 60 + 20),
    )
    due = JobFactory(scheduled=True, run_after=now() + timedelta(hours=3, minutes=1))
    someone = elsewhere(person, hours)
    page = someone.go(f"{LIST}{job.pk}/change/")
    skew = page.evaluate("Date.now()") / 1000 - now().timestamp()
    assert abs(skew - hours * 3600) < 60  # the machine's clock is really wrong
    facts = page.locator("[data-jq=facts]").inner_text()
    assert at(winter) in facts
    assert at(winter).endswith("CET")
    assert at(summer) in facts
    assert at(summer).endswith("CEST")
    assert at(job.finished_at) in facts
    assert "Times in Europe/Berlin (" in page.locator(".jq-foot").inner_text()
    for path, age in (
        (f"{LIST}?state=failed", "11 min ago"),
        (f"{LIST}?state=scheduled", "in 3 h"),
    ):
        page = someone.go(path)
        _tell_anew(page)
        assert age in page.locator("[data-jq=job-row]").inner_text()
    assert due.pk
    page = someone.go(f"{LIST}{job.pk}/change/")
    before = page.locator("[data-jq=facts]").inner_text()
    _tell_anew(page)
    facts = page.locator("[data-jq=facts]").inner_text()
    assert "(in " not in facts
    assert facts == before or "11 min ago" in facts


def _tell_anew(page: Page) -> None:
    """Have the script tell all ages anew, as it does every quarter of a minute, and whenever the page is seen."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_ages_go_on(nothing: None, person: Callable[..., Person]) -> None:
    """Without a reload, in the words of the server."""
    JobFactory(failed=True, finished_at=ago(100))
    someone = person()
    someone.page.clock.install()
    page = someone.go(LIST)
    cell = page.locator("[data-jq=job-row] .field-time")
    assert "1 min 4" in cell.inner_text()
    page.clock.run_for(60_000)
    assert "2 min ago" in cell.inner_text()
    page.clock.run_for(3_600_000)
    assert "1 h 2 min ago" in cell.inner_text()
    page.clock.run_for(3_600_000)
    assert "2 h ago" in cell.inner_text()


@pytest.fixture
def seeded(rows: None) -> Seeded:
    empty()
    return seed(failed=3, large=1)


#: A time with its offset.
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d")


def test_every_time_has_its_offset_and_its_zone(
    seeded: Seeded, person: Callable[..., Person]
) -> None:
    """And what is shown as an age has the time in full as its title, or beside it."""
    someone = person(variants=("berlin",))
    number = 0
    for name, address in addresses(seeded).items():
        page = someone.go(address)
        for each in page.locator("main time, .jq time").all()[:60]:
            number += 1
            assert ISO.fullmatch(each.get_attribute("datetime") or ""), name
            shown = each.text_content() or ""
            full = each.get_attribute("title") or shown
            if (
                each.get_attribute("title") is None
                and each.get_attribute("data-jq-age") is not None
            ):
                full = each.evaluate("(node) => node.previousElementSibling.textContent")
            assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d CES?T", full), f"{name}: {full}"
    assert number > 100


def test_waited_and_ran_are_two_durations(nothing: None, person: Callable[..., Person]) -> None:
    job: Job = JobFactory(
        processing=True,
        run_after=ago(93 * 60),
        enqueued_at=ago(93 * 60),
        started_at=ago(47 * 60),
        attempted_at=ago(47 * 60),
    )
    someone = person()
    page = someone.go(f"{LIST}{job.pk}/change/")
    facts = {
        row.locator("dt").inner_text(): row.locator("dd").inner_text()
        for row in page.locator("[data-jq=facts] dl > div").all()
    }
    assert facts["Waited"] == "46 min"
    assert facts["Runs"].startswith("47 min")
    waiting = JobFactory(queued=True, run_after=ago(46 * 60 + 5))
    page = someone.go(LIST)
    rows = {
        str(row.locator("th code").inner_text()): row.locator(".field-time").inner_text()
        for row in page.locator("[data-jq=job-row]").all()
    }
    assert rows[str(job.pk)].startswith("running 47 min")
    assert rows[str(waiting.pk)].startswith("waiting 46 min")
    assert page.url.startswith(someone.address + ROOT)
