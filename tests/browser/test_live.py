"""Pages that refill themselves: what is new appears, and nothing is taken from under somebody's hands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route

from jobqueue.models import Job, JobLog
from tests.browser.site import Person
from tests.browser.steps import LIST, ROOT, empty, finished, ids_shown, many_failed, number_in
from tests.factories import JobFactory, JobLogFactory, QueueFactory

pytestmark = pytest.mark.usefixtures("nothing")

OVERVIEW = f"{ROOT}overview/"

#: Milliseconds between two looks: on most pages, and on the list.
EVERY, NEWER = 5_000, 10_000

#: Seconds for which the numbers of the overview serve everybody.
FRESH = 3.0


@pytest.fixture
def nothing(rows: None) -> None:
    empty()


@pytest.fixture
def watching(person: Callable[..., Person]) -> Callable[..., Person]:
    """`watching(path)`: somebody who has opened that page, whose time passes when the test says so."""

    def open_page(path: str = OVERVIEW, **context: object) -> Person:
        someone = person(**context)
        someone.page.clock.install()
        someone.go(path)
        return someone

    return open_page


def status(page: Page) -> str:
    """What the line about the live updates says."""
    return page.locator("[data-jq=live-status]").inner_text()


def wait_status(page: Page, text: str) -> None:
    """Wait until it says that."""
    page.locator("[data-jq=live-status]", has_text=text).wait_for()


@contextmanager
def requests(page: Page, part: str) -> Iterator[list[str]]:
    """The addresses asked for meanwhile that have `part` in them."""
    asked: list[str] = []

    def note(request: object) -> None:
        url = str(request.url)  # type: ignore[attr-defined]
        if part in urlsplit(url).path:
            asked.append(url)

    page.on("request", note)
    yield asked
    page.remove_listener("request", note)


def pass_time(page: Page, milliseconds: int, answers: int = 1) -> None:
    """Let the page's time pass until it has asked again, and let it be answered."""
    for _each in range(answers):
        with page.expect_response(lambda response: "/live/" in response.url):
            page.clock.run_for(milliseconds)


def test_numbers_appear(watching: Callable[..., Person]) -> None:
    """Without a reload, after two looks at most: the first may still get what was computed before."""
    many_failed(2)
    page = watching().page
    page.evaluate("window.kept = true")
    many_failed(3)
    time.sleep(FRESH)  # by the server's clock
    pass_time(page, EVERY)
    page.locator("[data-jq=tile-failed] b", has_text="5").wait_for()
    assert page.evaluate("window.kept")
    assert status(page) == "Live."


def test_queues_appear(watching: Callable[..., Person]) -> None:
    QueueFactory(name="default")
    page = watching(f"{ROOT}queue/").page
    QueueFactory(name="mail")
    time.sleep(FRESH)
    pass_time(page, EVERY)
    page.locator("[data-jq=queue-row]", has_text="mail").wait_for()


def _stays(page: Page, why: str) -> None:
    """Nothing is replaced in three ticks; the line says why."""
    with requests(page, "/live/") as asked:
        page.evaluate("document.querySelector('[data-jq-live]').firstElementChild.kept = true")
        for _each in range(3):
            page.clock.run_for(EVERY)
        wait_status(page, why)
        kept = "document.querySelector('[data-jq-live]').firstElementChild.kept"
        assert page.evaluate(kept)
    assert asked == []


def _goes_on(page: Page) -> None:
    page.clock.run_for(1_100)
    wait_status(page, "Live.")
    page.wait_for_function("!document.querySelector('[data-jq-live]').firstElementChild.kept")


def test_open_details_hold_it(watching: Callable[..., Person]) -> None:
    """Those that are opened; the newest attempt is open from the start."""
    job = JobFactory(processing=True, attempt=2)
    JobLogFactory(job=job, event=JobLog.Event.ERRORED, attempt=1, level="error", message="E: no")
    page = watching(f"{LIST}{job.pk}/change/").page
    pass_time(page, EVERY)
    wait_status(page, "Live.")
    page.locator("[data-jq=attempts] details").nth(1).locator("summary").click()
    page.locator("h1").click()
    page.clock.run_for(EVERY)
    wait_status(page, "Waiting: details are open.")
    page.evaluate("document.querySelector('[data-jq=attempts] details').kept = true")
    page.clock.run_for(2 * EVERY)
    assert page.evaluate("document.querySelector('[data-jq=attempts] details').kept")
    page.locator("[data-jq=attempts] details").nth(1).locator("summary").click()
    page.locator("h1").click()
    page.clock.run_for(1_100)
    page.wait_for_function("!document.querySelector('[data-jq=attempts] details').kept")
    wait_status(page, "Live.")


def test_the_table_of_the_chart_holds_it(watching: Callable[..., Person]) -> None:
    finished(completed=5, failed=2)
    page = watching().page
    page.locator("[data-jq=chart-table] summary").click()
    page.locator("h1").click()
    _stays(page, "Waiting: details are open.")
    page.locator("[data-jq=chart-table] summary").click()
    page.locator("h1").click()
    _goes_on(page)


def test_focus_holds_it(watching: Callable[..., Person]) -> None:
    page = watching().page
    page.locator("[data-jq=tile-failed]").focus()
    _stays(page, "Waiting: the focus is in what would be replaced.")
    assert page.evaluate("document.activeElement.dataset.jq") == "tile-failed"
    page.locator("[data-jq=tile-failed]").blur()
    _goes_on(page)


def test_a_selection_holds_it(watching: Callable[..., Person]) -> None:
    page = watching().page
    page.locator("[data-jq=tile-failed] .jq-quiet").evaluate(
        "(node) => getSelection().selectAllChildren(node)"
    )
    _stays(page, "Waiting: text is selected.")
    assert page.evaluate("getSelection().toString()") != ""
    page.evaluate("getSelection().removeAllRanges()")
    _goes_on(page)


def test_a_pointer_that_is_down_holds_it(watching: Callable[..., Person]) -> None:
    page = watching().page
    box = page.locator("[data-jq=tiles]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] + 4)
    page.mouse.down()
    _stays(page, "Waiting: the pointer is down.")
    page.mouse.up()
    _goes_on(page)


def test_the_list_is_never_replaced(watching: Callable[..., Person]) -> None:
    """Ticks, what was typed, the place and the focus are kept; while rows are ticked nothing is asked."""
    jobs = many_failed(40)
    page = watching(LIST).page
    page.locator("#searchbar").fill("task:shop")
    for job in jobs[30:32]:
        page.locator(f"input.action-select[value='{job.pk}']").check()
    page.evaluate("scrollTo(0, 600)")
    focused = page.locator(f"input.action-select[value='{jobs[25].pk}']")
    focused.focus()
    place = page.evaluate("scrollY")
    shown = ids_shown(page)
    with requests(page, "/newer/") as asked:
        JobFactory()
        for _each in range(3):
            page.clock.run_for(NEWER)
    assert asked == []
    assert page.locator("input.action-select:checked").count() == 2
    assert page.locator("#searchbar").input_value() == "task:shop"
    assert page.evaluate("scrollY") == place
    assert page.evaluate("document.activeElement.value") == str(jobs[25].pk)
    assert ids_shown(page) == shown
    assert "2 of 40 selected" in page.locator(".action-counter").inner_text()


def test_newer_jobs_are_offered(watching: Callable[..., Person]) -> None:
    many_failed(3)
    page = watching(f"{LIST}?state=failed").page
    bar = page.locator("[data-jq-newer]")
    page.clock.run_for(NEWER)
    assert not bar.is_visible()
    many_failed(2)
    JobFactory()  # of another state
    shown = ids_shown(page)
    page.clock.run_for(NEWER)
    bar.wait_for()
    assert bar.inner_text() == "2 newer jobs – show them"
    assert ids_shown(page) == shown
    bar.locator("a").click()
    page.wait_for_load_state()
    assert len(ids_shown(page)) == 5
    assert "state=failed" in page.url


def test_a_pause_survives_a_reload(watching: Callable[..., Person]) -> None:
    page = watching().page
    button = page.locator("[data-jq=pause]")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    page.reload()
    assert page.locator("[data-jq=pause]").get_attribute("aria-pressed") == "true"
    assert status(page) == "Live updates are paused."
    assert page.locator("[data-jq=every]").input_value() == "off"
    with requests(page, "/live/") as asked:
        page.clock.run_for(12 * EVERY)
    assert asked == []
    page.locator("[data-jq=pause]").click()
    wait_status(page, "Live.")
    page.locator("[data-jq=every]").select_option("60")
    page.reload()
    assert page.locator("[data-jq=every]").input_value() == "60"
    with requests(page, "/live/") as asked:
        page.clock.run_for(55_000)
        assert asked == []
        pass_time(page, 6_000)
    assert len(asked) == 1


def test_a_hidden_tab_asks_nothing(watching: Callable[..., Person]) -> None:
    """Neither of the overview nor of the list; once it is seen again it asks at once."""
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page = watching().page
    page.evaluate(hide, True)
    with requests(page, "/jobqueue/") as asked:
        page.clock.run_for(12 * EVERY)
        wait_status(page, "Waiting: the tab is hidden.")
    assert asked == []
    with page.expect_response(lambda response: "/live/" in response.url):
        page.evaluate(hide, False)
    wait_status(page, "Live.")
    many_failed(1)
    page = watching(LIST).page
    page.evaluate(hide, True)
    with requests(page, "/jobqueue/") as asked:
        page.clock.run_for(12 * NEWER)
    assert asked == []


def _numbers(page: Page) -> list[str]:
    """What the tiles count; the ages beside it go on without an answer."""
    lines = page.locator("[data-jq=tiles]").inner_text().splitlines()
    return [line for line in lines if line.strip().isdigit()]


def test_signed_out(watching: Callable[..., Person]) -> None:
    """It says so, keeps what was there, and asks no more."""
    someone = watching()
    page = someone.page
    before = _numbers(page)
    someone.context.clear_cookies()
    with requests(page, "/live/") as asked:
        page.clock.run_for(EVERY)
        wait_status(page, "Signed out or no longer allowed. Reload the page.")
        for _each in range(4):
            page.clock.run_for(15_000)
    assert len(asked) == 1
    assert _numbers(page) == before
    with requests(page, "/live/") as asked:
        page.keyboard.press("r")
        page.clock.run_for(EVERY)
    assert asked == []


def test_a_right_that_is_taken_away(watching: Callable[..., Person]) -> None:
    someone = watching()
    page = someone.page
    user = someone.user
    assert user is not None
    user.is_superuser = False
    user.save()
    page.clock.run_for(EVERY)
    wait_status(page, "Signed out or no longer allowed. Reload the page.")
    user.is_superuser = True
    user.save()
    someone.complaints = [each for each in someone.complaints if "403" not in each]


@pytest.mark.parametrize("failure", ["status", "network"])
def test_errors_are_waited_out(watching: Callable[..., Person], failure: str) -> None:
    """Twice as long each time; what was there stays, and is said to be old; then all goes on."""
    someone = watching()
    page = someone.page
    before = _numbers(page)
    assert len(before) == 6

    def fail(route: Route) -> None:
        if failure == "status":
            route.fulfill(status=500, body="<h1>Server Error</h1>")
        else:
            route.abort("connectionrefused")

    page.route("**/live/**", fail)
    with requests(page, "/live/") as asked:
        page.clock.run_for(EVERY)
        wait_status(page, "No answer; data from ")
        said = status(page)
        assert len(asked) == 1
        for number, wait in enumerate((10_000, 20_000, 40_000, 60_000, 60_000), 2):
            page.clock.run_for(wait - 1_000)
            assert len(asked) == number - 1, wait
            with page.expect_event("requestfinished" if failure == "status" else "requestfailed"):
                page.clock.run_for(1_000)
            page.wait_for_timeout(50)
            assert len(asked) == number
    assert _numbers(page) == before
    assert status(page) == said
    page.unroute("**/live/**")
    pass_time(page, 60_000)
    wait_status(page, "Live.")
    pass_time(page, EVERY)
    someone.complaints = [each for each in someone.complaints if "load resource" not in each]


def test_nobody_there(watching: Callable[..., Person]) -> None:
    """After half an hour without a key or a pointer it stops, until somebody is there again."""
    many_failed(1)
    page = watching().page
    page.clock.fast_forward(31 * 60_000)
    page.clock.run_for(EVERY)
    wait_status(page, "Stopped after 30 minutes")
    with requests(page, "/live/") as asked:
        page.clock.run_for(5 * 60_000)
    assert asked == []
    with page.expect_response(lambda response: "/live/" in response.url):
        page.mouse.move(200, 200)
    wait_status(page, "Live.")
    page = watching(LIST).page
    page.clock.fast_forward(31 * 60_000)
    with requests(page, "/newer/") as asked:
        page.clock.run_for(60_000)
    assert len(asked) <= 1


def test_many_tabs_cost_one_computation(person: Callable[..., Person]) -> None:
    """The numbers are computed once in three seconds, however many look."""
    someone = person()
    seen = []
    begun = time.monotonic()
    for _each in range(20):
        JobFactory()
        answer = someone.context.request.get(f"{someone.address}{OVERVIEW}live/")
        found = answer.text().split('data-jq="tile-queued"')[1].split("<b>")[1].split("</b>")[0]
        seen.append(number_in(found))
    # The first may have been computed for somebody before.
    assert len(set(seen)) <= 2 + (time.monotonic() - begun) / FRESH
    assert seen == sorted(seen)
    assert Job.objects.count() == 20
