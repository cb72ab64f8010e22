"""The pages there are, and what a test can ask one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jobqueue.models import Sweep
from tests.browser.data import EVIL, Seeded
from tests.browser.site import Person

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


def settle(page: Any) -> None:
    """Let colours come to rest that change gently."""
    page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")


def width_at(page: Any, width: int) -> int:
    """By how much the page is too wide for a window of that width."""
    page.set_viewport_size({"width": width, "height": 1000})
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
