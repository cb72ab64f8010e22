"""Without a mouse, and without eyes: stops, shortcuts, what is announced, and what a screen reader finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from jobqueue.models import AuditEntry, Job, JobLog, Status, Sweep
from tests.browser.site import Person
from tests.browser.steps import LIST, ROOT, empty, finished, ids_shown, many_failed, message
from tests.factories import JobFactory, QueueFactory, WorkerFactory, now

pytestmark = pytest.mark.usefixtures("nothing")


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


def focused(page: Page, of: str = "dataset.jq") -> Any:
    return page.evaluate(f"document.activeElement.{of}")


def tab_to(page: Page, selector: str, most: int = 150) -> None:
    """Press Tab until the focus is there; whatever has it on the way shows that it has."""
    for _each in range(most):
        page.keyboard.press("Tab")
        assert _is_marked(page), f"nothing shows that {focused(page, 'outerHTML')} has the focus"
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    pytest.fail(f"no way to {selector} with {most} times Tab")


def _is_marked(page: Page) -> bool:
    """Whether the focus can be seen on an element of ours; those of the admin are its own."""
    return bool(
        page.evaluate(
            """() => {
                const here = document.activeElement;
                if (!here.closest(".jq, #result_list")) return true;
                const style = getComputedStyle(here);
                const box = here.getBoundingClientRect();
                return box.width > 0 && (style.boxShadow !== "none"
                    || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1);
            }"""
        )
    )


def test_the_table_is_one_stop_away(person: Callable[..., Person]) -> None:
    many_failed(3)
    page = person().go(LIST)
    page.locator(".jq-list, .jq").first.evaluate(
        """(node) => {
            const before = document.createElement("a");
            before.href = "#";
            node.before(before);
            before.focus();
        }"""
    )
    page.keyboard.press("Tab")
    skip = page.locator("a.jq-skip")
    assert focused(page, "textContent") == "Skip to the job table"
    box = skip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["height"] >= 24
    page.keyboard.press("Enter")
    assert focused(page, "id") == "result_list"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#result_list') !== null")


@pytest.mark.parametrize("path", ["", "overview/", "queue/", "worker/", "sweep/", "auditentry/"])
def test_first_stop_elsewhere_is_a_tab(person: Callable[..., Person], path: str) -> None:
    page = person().go(f"{ROOT}{path}")
    first = page.locator(".jq a, .jq button").first
    assert (first.get_attribute("data-jq") or "").startswith("tab-")


def test_requeue_with_the_keyboard_alone(person: Callable[..., Person]) -> None:
    """From the list to the message, and the focus is seen at every stop."""
    (job,) = many_failed(1)
    page = person().go(f"{LIST}?state=failed")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.jq") == "job-row"
    page.keyboard.press("Enter")
    page.wait_for_url("**/change/**")
    tab_to(page, "[data-jq=requeue]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/act/requeue/**")
    tab_to(page, "#id_reason")
    page.keyboard.type("jump? no: j, k and x are letters here")
    assert page.locator("#id_reason").input_value() == "jump? no: j, k and x are letters here"
    tab_to(page, "[data-jq=confirm-form] button[type=submit]")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert message(page) == "1 job queued."
    job.refresh_from_db()
    assert job.status == Status.QUEUED


def test_requeue_ticked_rows_with_the_keyboard_alone(person: Callable[..., Person]) -> None:
    jobs = many_failed(3)
    page = person().go(f"{LIST}?state=failed")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator("input.action-select:checked").count() == 2
    page.locator("select[name=action]").focus()
    page.keyboard.type("Req")
    tab_to(page, ".actions button[type=submit]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/act/requeue/**")
    assert page.locator("h1").inner_text() == "Requeue 2 jobs?"
    tab_to(page, "#id_reason")
    page.keyboard.type("again")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert message(page) == "2 jobs queued."
    # What has become of it has the focus, so that it is read out and comes first.
    assert Job.objects.filter(status=Status.QUEUED).count() == 2
    assert jobs


@pytest.mark.parametrize("theme", ["stock", "unfold"])
def test_after_a_change_the_focus_is_on_what_became_of_it(
    person: Callable[..., Person], theme: str
) -> None:
    if theme == "unfold":
        pytest.importorskip("unfold", reason="django-unfold is not installed")
    (job,) = many_failed(1)
    someone = person(variants=() if theme == "stock" else (theme,))
    page = someone.go(f"{LIST}{job.pk}/change/")
    page.locator("[data-jq=requeue]").click()
    page.wait_for_url("**/act/requeue/**")
    page.locator("#id_reason").fill("again")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.closest('[data-jq=told]')")
    assert "1 job queued." in message(page)


def test_rows_and_ticks(person: Callable[..., Person]) -> None:
    many_failed(3)
    page = person().go(LIST)
    shown = ids_shown(page)
    here = "document.activeElement.textContent"
    for key, row in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        assert page.evaluate(here) == shown[row]
    page.keyboard.press("x")
    assert page.locator("input.action-select:checked").count() == 1
    assert page.locator("input.action-select").nth(1).is_checked()
    page.keyboard.press("x")
    assert page.locator("input.action-select:checked").count() == 0
    assert page.evaluate(here) == shown[1]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{shown[1]}/change/**")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("o", "overview/"),
        ("j", "job/"),
        ("q", "queue/"),
        ("w", "worker/"),
        ("r", "sweep/"),
        ("a", "auditentry/"),
    ],
)
def test_ways_to_the_tabs(person: Callable[..., Person], key: str, path: str) -> None:
    start = "worker/" if path == "overview/" else "overview/"
    page = person().go(f"{ROOT}{start}")
    page.keyboard.press("g")
    page.keyboard.press(key)
    page.wait_for_url(f"**{ROOT}{path}")


def test_other_shortcuts(person: Callable[..., Person]) -> None:
    """Search, refresh, pause; the list of them all; and they can be turned off."""
    someone = person()
    page = someone.go(LIST)
    page.keyboard.press("/")
    assert focused(page, "id") == "searchbar"
    page.keyboard.type("?gojkxrp/")
    assert page.locator("#searchbar").input_value() == "?gojkxrp/"
    assert not page.locator("dialog[open]").count()
    assert page.url.endswith("/job/")
    page = someone.go(f"{ROOT}overview/")
    with page.expect_response(lambda response: "/live/" in response.url):
        page.keyboard.press("r")
    page.keyboard.press("p")
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("p")
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "false"
    for modifier in ("Control", "Alt"):
        page.keyboard.press(f"{modifier}+p")
        assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "false"
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    listed = {each.inner_text() for each in dialog.locator("kbd").all()}
    assert listed == {*"/jkxrpgoqwa", "Enter"}
    page.keyboard.press("p")  # not while it is open
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "false"
    dialog.get_by_label("Shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    assert not page.locator("dialog[open]").count()
    for key in ("p", "?", "g", "j"):
        page.keyboard.press(key)
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "false"
    page.reload()
    page.keyboard.press("p")
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "false"
    assert page.url.endswith("/overview/")
    page.locator("[data-jq=shortcuts]").click()
    page.get_by_label("Shortcuts are on").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("p")
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "true"


def test_no_shortcut_changes_anything(person: Callable[..., Person]) -> None:
    """Whatever key is pressed on a list or on the page of a job."""
    (job,) = many_failed(1)
    someone = person()
    for path in (LIST, f"{LIST}{job.pk}/change/"):
        page = someone.go(path)
        posts: list[str] = []
        page.on(
            "request", lambda each, to=posts: to.append(each.url) if each.method == "POST" else 0
        )
        for key in "abcdefhiklmnpqrstuvwxyz/?":
            page.keyboard.press(key)
            page.keyboard.press("Escape")
        assert posts == []
    assert Job.objects.get().status == Status.FAILED
    assert not AuditEntry.objects.exists()
    assert not JobLog.objects.exists()


def test_pausing_is_announced_once(person: Callable[..., Person]) -> None:
    """The line is polite, and no tick is worth a word."""
    someone = person()
    someone.page.clock.install()
    page = someone.go(f"{ROOT}overview/")
    line = page.locator("[data-jq=live-status]")
    assert line.get_attribute("role") == "status"
    line.evaluate(
        """(node) => {
            window.said = [];
            new MutationObserver(() => said.push(node.textContent)).observe(
                node, {childList: true, characterData: true, subtree: true});
        }"""
    )
    for _each in range(3):
        with page.expect_response(lambda response: "/live/" in response.url):
            page.clock.run_for(5_000)
    page.wait_for_timeout(100)
    assert page.evaluate("said") == []
    page.keyboard.press("p")
    page.clock.run_for(20_000)
    assert page.evaluate("said") == ["Live updates are paused."]
    page.keyboard.press("p")
    page.wait_for_function("said.length > 1")
    with page.expect_response(lambda response: "/live/" in response.url):
        page.clock.run_for(5_000)
    assert page.evaluate("said") == ["Live updates are paused.", "Live."]


def tree(page: Page) -> list[tuple[str, str]]:
    """What a screen reader finds: role and name of everything."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]


def test_what_a_screen_reader_finds(person: Callable[..., Person]) -> None:
    """A badge is its word; charts and tables have names; the glyphs are nowhere."""
    QueueFactory(name="default")
    WorkerFactory()
    many_failed(2)
    JobFactory(processing=True)
    finished(completed=5, failed=2)
    someone = person()
    page = someone.go(f"{LIST}?state=failed")
    found = tree(page)
    words = [name.strip() for role, name in found if role == "StaticText"]
    assert words.count("Failed") >= 3  # two rows and a chip
    assert not set("✕▶◷○↻✓⊘") & set("".join(words))
    assert [name for role, name in found if role == "table"][-1] == "Jobs"  # after the side bar's
    page = someone.go(f"{ROOT}overview/?range=24h")
    charts = [name for role, name in tree(page) if role in ("image", "img", "graphics-document")]
    assert any(re.search(r"\b5 completed|completed:? 5", name, re.I) for name in charts), charts
    sweep = Sweep.objects.create(
        started_at=now(), finished_at=now(), eventful=True, repairs=[["lost", "x", "a", "b"]]
    )
    changes = (f"job/{Job.objects.latest('pk').pk}", f"sweep/{sweep.pk}")
    for path in (
        *("queue/", "worker/", "overview/", "sweep/", "auditentry/"),
        *(f"{each}/change/" for each in changes),
    ):
        page = someone.go(f"{ROOT}{path}")
        for role, name in tree(page):
            if role in ("table", "image", "img", "meter", "region", "progressbar", "navigation"):
                assert name, f"{path}: a {role} without a name"
