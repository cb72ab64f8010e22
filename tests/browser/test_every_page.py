"""Whatever the page: it fits, loads nothing from elsewhere, breaks no policy, runs no value, and axe is content.

Each page is visited once, under a strict content security policy, by somebody who may do anything; one test after the
other then looks at what was seen there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from jobqueue.models import Sweep
from tests.browser.conftest import make_user
from tests.browser.data import CANARY, EVIL, EXACT, SECRET, Seeded, seed
from tests.browser.site import Person
from tests.conftest import PROJECT

#: Name of a page: its address, made of what was seeded.
PAGES: dict[str, Callable[[Seeded], str]] = {
    "overview": lambda _: "overview/",
    "overview of a day": lambda _: "overview/?range=24h",
    "jobs": lambda _: "job/",
    "failed jobs": lambda _: "job/?state=failed",
    "queued jobs": lambda _: "job/?state=queued",
    "scheduled jobs": lambda _: "job/?state=scheduled",
    "no jobs": lambda _: "job/?q=no.such.task",
    "a search": lambda _: "job/?q=task%3Ashop.mail.send+attempt%3A%3E0",
    "a search that is none": lambda _: f"job/?q=error%3A{EVIL.replace('=', '%3D')}",
    **{
        f"{name} job": lambda seeded, name=name: f"job/{seeded.jobs[name].pk}/change/"
        for name in (
            *("failed", "evil", "tried", "large", "processing", "lost", "completed", "queued"),
            *("scheduled", "retrying", "stopping", "cancelled"),
        )
    },
    "queues": lambda _: "queue/",
    "workers": lambda _: "worker/",
    "gone workers": lambda _: "worker/?gone=1",
    "a worker": lambda seeded: f"worker/{seeded.workers['alive'].pk}/change/",
    "reconcile": lambda _: "sweep/",
    "a sweep": lambda _: f"sweep/{Sweep.objects.get(eventful=True).pk}/change/",
    "audit log": lambda _: "auditentry/",
    "app": lambda _: "",
}

#: Pages with a button that leads to a confirmation: the page, and what the address has in it.
CONFIRMATIONS = {
    "requeue": "failed job",
    "cancel": "queued job",
    "run_now": "scheduled job",
    "purge": "completed job",
    "pause": "queues",
    "resume": "queues",
    "quiet": "workers",
    "stop": "workers",
    "sweep": "reconcile",
}

#: What is read from a page by its own rules: counts, and the beginnings of elements that break one.
LOOK = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const bare = (elements) => elements.map((each) => each.outerHTML.slice(0, 150));
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const numbers = (colour) => { // of red, green, blue and opacity, in whatever way it is written
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (colour) => numbers(colour).slice(0, 3)
        .map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return numbers(colour)[3] === 255 || !element.parentElement ? colour : behind(element.parentElement);
    };
    const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    return {
        headings: all("h1").filter((each) => each.checkVisibility()).length,
        tabs: all("nav.jq-tabs").length,
        breadcrumbs: all(".breadcrumbs").filter((each) => each.offsetHeight < 60).length,
        links: bare(all(".jq a[href], #result_list a[href]").filter((each) => {
            const style = getComputedStyle(each);
            return !style.textDecorationLine.includes("underline") && !parseFloat(style.borderBottomWidth)
                && each.checkVisibility() && !each.matches("[aria-current]");
        })),
        inline: bare(all(".jq *, .jq-list *").filter((each) => each.matches("script:not([src]), a[href^='javascript:']")
            || [...each.attributes].some(({name}) => name === "style" || name.startsWith("on")))),
        strays: bare(all("main img[src=x], main svg[onload], .jq script")),
        ran: window.__xss,
        moving: document.getAnimations().filter((each) => each instanceof CSSAnimation).length,
        pale: bare(all(".jq-state").filter((each) => each.checkVisibility()
            && contrast(getComputedStyle(each).borderTopColor, behind(each.parentElement)) < 3)),
    };
}"""

#: What axe finds in our own parts of the page, by the rules of these tags or names.
AXE = """async ({type, values}) => {
    const include = [".jq", "#result_list", "[data-jq=told]"].filter(
        (selector) => document.querySelector(selector));
    const result = await axe.run({include},
        {runOnly: {type, values}, resultTypes: ["violations"], preload: false});
    return result.violations.flatMap(({id, nodes}) => nodes.map(
        ({html, target}) => `${id} at ${target}: ${html.slice(0, 150)}`));
}"""
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}

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
def seeded(rows: None) -> Seeded:
    return seed()


def addresses(seeded: Seeded, root: str = "/admin/jobqueue/") -> dict[str, str]:
    return {name: root + make(seeded) for name, make in PAGES.items()}


def everywhere(someone: Person, seeded: Seeded) -> Iterator[tuple[str, Any]]:
    """Every page, one after the other, with its name."""
    for name, address in addresses(seeded).items():
        yield name, someone.go(address)
    for verb, name in CONFIRMATIONS.items():
        page = someone.go(addresses(seeded)[name])
        page.locator(f"a[href*='/act/{verb}/']").first.click()
        page.wait_for_load_state()
        yield f"to {verb}", page


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


def settle(page: Any) -> None:
    """Let colours come to rest that change gently."""
    page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")


def width_at(page: Any, width: int) -> int:
    """By how much the page is too wide for a window of that width."""
    page.set_viewport_size({"width": width, "height": 1000})
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


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


@pytest.mark.skipif(django.VERSION < (6, 1), reason="unfold is looked at on Django 6.1")
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
