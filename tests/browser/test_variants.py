"""The same pages for other eyes: without rights, in other colours, under another theme, on another site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from tests.browser.data import CANARY, EXACT, Seeded
from tests.browser.pages import AXE, CONTRAST, LOOK, addresses, everywhere, settle, width_at
from tests.browser.site import Person
from tests.conftest import PROJECT


def test_values_are_for_those_who_may_see_them(
    person: Callable[..., Person], seeded: Seeded
) -> None:
    someone = person("viewer")
    for name, address in addresses(seeded).items():
        assert CANARY not in someone.go(address).content(), name


def test_numbers_are_exact(person: Callable[..., Person], seeded: Seeded) -> None:
    someone = person(permissions=["clipboard-read", "clipboard-write"])
    page = someone.go(addresses(seeded)["failed job"])
    kwargs = page.locator("[data-jq=kwargs]")
    assert str(EXACT) in kwargs.inner_text()
    kwargs.locator("[data-jq-copy]").click()
    page.wait_for_function("document.activeElement.textContent === 'Copied'")
    assert str(EXACT) in page.evaluate("navigator.clipboard.readText()")
    download = kwargs.locator("[data-jq^=download]").get_attribute("href")
    assert str(EXACT) in page.request.get(someone.address + download).text()


def colours(page: Any) -> list[str]:
    """Behind a warning, and of a bar."""
    return list(
        page.evaluate("""() => [
            getComputedStyle(document.querySelector(".jq-warning")).backgroundColor,
            getComputedStyle(document.querySelector(".jq-bar")).fill]""")
    )


def test_the_theme_is_switched_without_a_reload(
    person: Callable[..., Person], seeded: Seeded
) -> None:
    page = person(color_scheme="light").go(addresses(seeded)["overview"])
    before = colours(page)
    for _ in range(3):  # auto, light, dark
        if page.evaluate("document.documentElement.dataset.theme") != "dark":
            page.locator(".theme-toggle:visible").click()
    settle(page)
    after = colours(page)
    assert set(before).isdisjoint(after)


def test_forced_colours_leave_badges_and_bars(
    person: Callable[..., Person], seeded: Seeded
) -> None:
    """Without them the picture would be another."""
    someone = person(forced_colors="active")
    for name, where, what in (
        ("overview", "[data-jq=chart]", ".jq-bar"),
        ("jobs", ".jq-chips", ".jq-state"),
        ("failed job", ".jq-squares", ".jq-square"),
    ):
        page = someone.go(addresses(seeded)[name])
        place = page.locator(where).first
        before = place.screenshot()
        page.eval_on_selector_all(
            what, "all => all.forEach((each) => { each.style.visibility = 'hidden'; })"
        )
        assert place.screenshot() != before, name


def test_unfold(person: Callable[..., Person], seeded: Seeded) -> None:
    pytest.importorskip("unfold", reason="django-unfold is not installed")
    someone = person(variants=("unfold",))
    found = []
    for name, page in everywhere(someone, seeded):
        page.evaluate(AXE_FILE_PATH.read_text())
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.className = theme; }", theme)
            settle(page)
            look = page.evaluate(LOOK)
            if name in ("overview", "failed jobs", "failed job", "workers", "to requeue"):
                found += [f"{name}, {theme}: {each}" for each in page.evaluate(AXE, CONTRAST)]
            found += [
                f"{name}, {theme}: {what}" for what in ("ran", "strays", "pale") if look[what]
            ]
        found += [f"{name} at {w}" for w in (390, 1400) if width_at(page, w) > 0]
        if name == "overview":
            dark = colours(page)
            page.evaluate("document.documentElement.className = 'light'")
            settle(page)
            assert set(dark).isdisjoint(colours(page))
    assert found == []


def test_a_second_site_below_a_prefix(person: Callable[..., Person], seeded: Seeded) -> None:
    """No link leaves the site, whatever its language, and what is written from the right fits, too."""
    window = {"width": 390, "height": 1000}
    someone = person(variants=("prefix", "arabic"), viewport=window, locale="ar")
    found = []
    for name, address in addresses(seeded, "/x/ops/jobqueue/").items():
        page = someone.go(address)
        assert page.evaluate("document.dir") == "rtl"
        links = page.eval_on_selector_all(
            ".jq a[href], .jq-list a[href]", "all => all.map((each) => each.pathname)"
        )
        found += [f"{name}: {link}" for link in links if not link.startswith("/under/x/ops/")]
        found += [f"{name} is too wide"] if width_at(page, 390) > 0 else []
    assert found == []


def test_assets_are_small() -> None:
    folder = Path(PROJECT) / "jobqueue" / "static" / "jobqueue"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 20_480
