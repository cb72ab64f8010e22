"""Whatever the page: it fits, loads nothing from elsewhere, breaks no policy, runs no value, and axe is content.

Each page is visited once, under a strict content security policy, by somebody who may do anything; one test after the
other then looks at what was seen there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import django
import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from tests.browser.conftest import make_user
from tests.browser.data import SECRET, Seeded
from tests.browser.pages import AXE, CONTRAST, LOOK, WCAG, everywhere, settle, width_at
from tests.browser.site import Person

#: Lists of the same kinds of rows as others: axe, which takes its time, need not read them again.
READ_ELSEWHERE = {"overview of a day", "queued jobs", "scheduled jobs", "a search"}

WIDTHS = (1400, 768, 390, 320)


@dataclass(frozen=True, slots=True)
class Seen:
    """What there was to see on a page."""

    html: str
    look: dict[str, Any]
    dark: dict[str, Any]
    widths: dict[str, int]
    axe: list[str]


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    """What the browser said of them all."""
    return []


@pytest.fixture(scope="module")
def seen(
    browser: Any, site: Callable[..., str], seeded: Seeded, complaints: list[str]
) -> dict[str, Seen]:
    """What was seen on each page, and on the way there."""
    someone = Person(browser, site("csp"), make_user("owner"), reduced_motion="reduce")
    found = {name: see(name, page) for name, page in everywhere(someone, seeded)}
    complaints += someone.complaints
    someone.context.close()
    return found


def see(name: str, page: Any) -> Seen:
    """The page by day and by night, wide and narrow, and with letters twice as large."""
    html, look = page.content(), page.evaluate(LOOK)
    found = []
    if name not in READ_ELSEWHERE:
        page.evaluate(AXE_FILE_PATH.read_text())
        found += page.evaluate(AXE, WCAG)
    page.emulate_media(color_scheme="dark")
    settle(page)
    dark = page.evaluate(LOOK)
    if name not in READ_ELSEWHERE:
        found += [f"dark: {each}" for each in page.evaluate(AXE, CONTRAST)]
    widths = {f"{width} px": width_at(page, width) for width in WIDTHS}
    page.evaluate("""() => {
        document.documentElement.style.fontSize = "200%";
        const own = document.querySelectorAll("#header, .breadcrumbs"); // the admin's are too wide
        own.forEach((each) => { each.style.display = "none"; });
    }""")
    widths["320 px, letters twice as large"] = width_at(page, 320)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 1000})
    return Seen(html, look, dark, widths, found)


def test_pages_fit(seen: dict[str, Seen]) -> None:
    assert [
        f"{name} at {width}: {over} px too wide"
        for name, page in seen.items()
        for width, over in page.widths.items()
        if over > 0
    ] == []


@pytest.mark.parametrize("what", ["headings", "tabs", "breadcrumbs"])
def test_there_is_one(seen: dict[str, Seen], what: str) -> None:
    assert {name: page.look[what] for name, page in seen.items() if page.look[what] != 1} == {}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("links", id="link that looks like text"),
        pytest.param("inline", id="inline script or style"),
        pytest.param("strays", id="element that comes from a value"),
        pytest.param("ran", id="script that comes from a value"),
        pytest.param("moving", id="animation where motion is reduced"),
        pytest.param("pale", id="badge without contrast"),
    ],
)
def test_there_is_no(seen: dict[str, Seen], what: str) -> None:
    assert {
        name: look[what]
        for name, page in seen.items()
        for look in (page.look, page.dark)
        if look[what]
    } == {}


def test_axe_is_content(seen: dict[str, Seen]) -> None:
    assert {name: page.axe for name, page in seen.items() if page.axe} == {}


def test_nothing_breaks_the_policy_or_comes_from_elsewhere(
    seen: dict[str, Seen], complaints: list[str]
) -> None:
    if django.VERSION < (6, 1):
        # The admin's own inline parts are not ours to answer for.
        complaints = [each for each in complaints if "jobqueue" in each]
    assert complaints == []


def test_secrets_stay_hidden(seen: dict[str, Seen]) -> None:
    assert [name for name, page in seen.items() if SECRET in page.html] == []
