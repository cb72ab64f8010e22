"""Whatever the page: it fits, loads nothing from elsewhere, breaks no policy, runs no value, and axe is content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from jobqueue.models import Sweep
from tests.browser.data import CANARY, EVIL, EXACT, SECRET, Seeded, seed
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

#: What the admin itself is guilty of, by rule.
STOCK = {"target-size", "link-in-text-block"}


@pytest.fixture(scope="module")
def seeded(rows: None) -> Seeded:
    return seed()


def addresses(seeded: Seeded, root: str = "/admin/jobqueue/") -> dict[str, str]:
    return {name: root + make(seeded) for name, make in PAGES.items()}


def to_confirmation(someone: Person, seeded: Seeded, verb: str) -> Any:
    """Go to a confirmation by its button."""
    page = someone.go(addresses(seeded)[CONFIRMATIONS[verb]])
    page.locator(f"a[href*='/act/{verb}/']").first.click()
    page.wait_for_load_state()
    return page


def everywhere(someone: Person, seeded: Seeded) -> Iterator[tuple[str, Any]]:
    """Every page, one after the other, with its name."""
    for name, address in addresses(seeded).items():
        yield name, someone.go(address)
    for verb in CONFIRMATIONS:
        yield f"to {verb}", to_confirmation(someone, seeded, verb)


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (768, "dark"), (390, "dark"), (320, "light")]
)
def test_pages_fit(person: Callable[..., Person], seeded: Seeded, scheme: str, width: int) -> None:
    someone = person(color_scheme=scheme, viewport={"width": width, "height": 1000})
    for name, page in everywhere(someone, seeded):
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} is {wide} px wide"
        assert page.locator("h1:visible").count() == 1, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_is_content(person: Callable[..., Person], seeded: Seeded, scheme: str) -> None:
    someone = person(color_scheme=scheme)
    found = [
        f"{name}: {violation['id']}: {[node['html'][:150] for node in violation['nodes'][:2]]}"
        for name, page in everywhere(someone, seeded)
        for violation in axe(page)
    ]
    assert found == []


def axe(page: Any) -> list[dict[str, Any]]:
    """What axe finds in our own parts of the page."""
    page.evaluate(AXE_FILE_PATH.read_text())
    result = page.evaluate(
        """async () => {
            const include = [".jq", "#result_list", ".messagelist"].filter(
                (selector) => document.querySelector(selector));
            const tags = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"];
            const result = await axe.run({include: include.length ? include : ["main"]},
                {runOnly: {type: "tag", values: tags}});
            return result.violations.map(({id, nodes}) => (
                {id, nodes: nodes.map(({html, target}) => ({html, target}))}));
        }"""
    )
    return [each for each in result if each["id"] not in STOCK or _is_ours(each)]


def _is_ours(violation: dict[str, Any]) -> bool:
    """Whether it is about anything else than the filters and breadcrumbs of the admin."""
    own = [
        node
        for node in violation["nodes"]
        if not any(word in str(node["target"]) for word in ("changelist-filter", "breadcrumb"))
    ]
    return bool(own)


@pytest.mark.parametrize("variant", ["csp"])
def test_a_strict_policy_holds(person: Callable[..., Person], seeded: Seeded, variant: str) -> None:
    """Violations are errors on the console, which end the test."""
    someone = person(variants=(variant,))
    for _name, page in everywhere(someone, seeded):
        html = page.content()
        assert ' style="' not in html.split("<main", 1)[-1]
        assert " onclick=" not in html
        assert "javascript:" not in html
    if django.VERSION < (6, 1):
        # The admin's own inline parts are not ours to answer for.
        someone.complaints = [each for each in someone.complaints if "jobqueue" in each]


def test_values_are_text(person: Callable[..., Person], seeded: Seeded) -> None:
    someone = person()
    for name, page in everywhere(someone, seeded):
        assert page.evaluate("window.__xss") is None, name
        strays = page.locator("main img[src=x], main svg[onload], .jq script").count()
        assert strays == 0, name


def test_secrets_stay_hidden(person: Callable[..., Person], seeded: Seeded) -> None:
    someone = person()
    for name, page in everywhere(someone, seeded):
        assert SECRET not in page.content(), name


def test_values_are_for_those_who_may_see_them(
    person: Callable[..., Person], seeded: Seeded
) -> None:
    someone = person("viewer")
    for name, address in addresses(seeded).items():
        assert CANARY not in someone.go(address).content(), name


def test_numbers_are_exact(person: Callable[..., Person], seeded: Seeded) -> None:
    page = person().go(addresses(seeded)["failed job"])
    assert str(EXACT) in page.inner_text("main")


@pytest.mark.skipif(django.VERSION < (6, 1), reason="unfold is looked at on Django 6.1")
def test_unfold(person: Callable[..., Person], seeded: Seeded) -> None:
    pytest.importorskip("unfold", reason="django-unfold is not installed")
    someone = person(variants=("unfold",))
    for name, page in everywhere(someone, seeded):
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1400, name
        assert page.evaluate("window.__xss") is None, name


def test_a_second_site_below_a_prefix(person: Callable[..., Person], seeded: Seeded) -> None:
    """No link leaves the site, whatever its language."""
    someone = person(variants=("prefix", "arabic"))
    root = "/x/ops/jobqueue/"
    for name, address in addresses(seeded, root).items():
        page = someone.go(address)
        links = page.eval_on_selector_all(
            "main a[href], nav.jq-tabs a[href]", "all => all.map((each) => each.pathname)"
        )
        strays = [link for link in links if not link.startswith("/under/x/ops/")]
        assert strays == [], name
