"""What people see is what they may: tabs, the side bar, actions, buttons; and strangers see the login."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import make_user
from tests.browser.data import Seeded, seed
from tests.browser.site import Person
from tests.browser.steps import LIST, ROOT, empty

TABS = {"Overview", "Jobs", "Queues", "Workers", "Reconcile", "Audit log"}

#: Who sees which actions of the list, which buttons of jobs, and which of the other pages.
SEEN: dict[str, tuple[set[str], set[str], set[str]]] = {
    "viewer": (set(), set(), set()),
    "support": ({"requeue_jobs"}, {"requeue", "run_now"}, set()),
    "operator": (
        {"requeue_jobs", "cancel_jobs"},
        {"requeue", "run_now", "cancel"},
        {"pause", "resume", "quiet", "stop"},
    ),
    "owner": (
        {"requeue_jobs", "cancel_jobs", "purge_jobs"},
        {"requeue", "run_now", "cancel", "purge"},
        {"pause", "resume", "quiet", "stop", "sweep", "dry", "export"},
    ),
}


@pytest.fixture(scope="module")
def seeded(rows: None) -> Seeded:
    empty()
    return seed(failed=60, large=0)


@pytest.mark.parametrize("name", SEEN)
def test_what_is_offered_is_what_one_may(
    person: Callable[..., Person], seeded: Seeded, name: str
) -> None:
    actions, buttons, others = SEEN[name]
    someone = person(name)
    page = someone.go(f"{ROOT}overview/")
    assert set(page.locator("[data-jq=tabs] a").all_inner_texts()) == TABS
    side = page.locator("#nav-sidebar .app-jobqueue th a").all_inner_texts()
    assert len(side) == len(TABS)
    page = someone.go(f"{LIST}?state=failed")
    offered = page.locator("select[name=action] option").evaluate_all(
        "(all) => all.map((each) => each.value).filter(Boolean)"
    )
    assert set(offered) == actions
    if not actions:  # no bar at all, and nothing to tick
        assert page.locator(".actions").count() == 0
        assert page.locator("input.action-select").count() == 0
    else:
        page.locator("#action-toggle").check()
        across = page.get_by_text("jobs that match").and_(page.locator("a"))
        assert across.count() == (1 if name in ("operator", "owner") else 0)
    found = set()
    for state in ("failed", "queued", "scheduled", "processing", "completed"):
        page = someone.go(f"{LIST}{seeded.jobs[state].pk}/change/")
        for each in page.locator("[data-jq=job-header] a[href*='/act/']").all():
            found.add(each.get_attribute("data-jq"))
    assert found == buttons
    verbs = set()
    for path in ("queue/", "worker/", "sweep/", "auditentry/"):
        page = someone.go(f"{ROOT}{path}")
        for each in page.locator("a[href*='/act/']").all():
            verbs.add((each.get_attribute("href") or "").split("/act/")[1].split("/")[0])
        verbs |= {each for each in ("dry", "export") if page.locator(f"[data-jq={each}]").count()}
    assert verbs == others


def test_without_any_right(person: Callable[..., Person], seeded: Seeded) -> None:
    """Neither on the first page of the admin nor at the addresses."""
    someone = person("nobody")
    page = someone.go("/admin/")
    assert page.locator(".app-jobqueue").count() == 0
    for path in ("overview/", "job/", "queue/", "worker/", "sweep/", "auditentry/"):
        answer = page.goto(f"{someone.address}{ROOT}{path}")
        assert answer is not None
        assert answer.status == 403, path
    someone.complaints = [each for each in someone.complaints if "403" not in each]


def test_strangers_see_the_login(person: Callable[..., Person], seeded: Seeded) -> None:
    """And come to where they wanted to go."""
    someone = person(None)
    page = someone.go(f"{LIST}?state=failed")
    assert "/login/" in page.url
    assert "next=" in page.url
    assert page.locator("#id_username").is_visible()
    user = make_user("viewer")
    user.set_password("of the tests alone")
    user.save()
    page.locator("#id_username").fill("viewer")
    page.locator("#id_password").fill("of the tests alone")
    page.locator("input[type=submit], button[type=submit]").first.click()
    page.wait_for_url("**/job/?state=failed")
    assert page.locator("[data-jq=job-row]").count() == 50
