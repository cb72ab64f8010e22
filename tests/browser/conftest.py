"""What the browser tests share: one browser, one site a variant, people with rights, and committed rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connections

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

from tests.browser.data import Seeded, seed  # noqa: E402
from tests.browser.site import Person, running  # noqa: E402
from tests.environments import chromium_path  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A site, a browser and axe take their time."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db)  # or no test database would be made
            item.add_marker(
                pytest.mark.postgres
            )  # once for each Django; the pages know no database
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def browser(django_db_setup: None) -> Iterator[Any]:
    """The system's Chromium, headless; where there is none the test is skipped."""
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as started:
        # Playwright keeps an event loop in this thread, which Django takes for asynchronous code.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = started.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def _django_db_helper() -> None:
    """Takes the place of pytest-django's, which would undo each test: rows stay for the module."""


@pytest.fixture(scope="module")
def rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The database, for real: what is written is committed, and gone after the module."""
    with django_db_blocker.unblock():
        yield
        call_command("flush", verbosity=0, interactive=False)
        connections.close_all()


@pytest.fixture(scope="module")
def site(rows: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """`site("csp")`: the address of the site in that variant, started when it is first asked for."""
    addresses: dict[tuple[str, ...], str] = {}
    sites = ExitStack()

    def start(*variants: str) -> str:
        if variants not in addresses:
            log = tmp_path_factory.mktemp("site") / "log"
            addresses[variants] = sites.enter_context(running(log, *variants))
        return addresses[variants]

    yield start
    sites.close()


#: Who may do what, as the docs suggest it.
GROUPS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "viewer": (
        "view_job",
        "view_joblog",
        "view_queue",
        "view_worker",
        "view_sweep",
        "view_auditentry",
    ),
}
GROUPS["support"] = (*GROUPS["viewer"], "view_job_args", "requeue_job")
GROUPS["operator"] = (*GROUPS["support"], "cancel_job", "bulk_job", "pause_queue", "control_worker")


def make_user(name: str) -> User:
    """A staff user with the rights of a group; `owner` has all."""
    user, _ = User.objects.get_or_create(
        username=name, defaults={"is_staff": True, "is_superuser": name == "owner"}
    )
    codenames = GROUPS.get(name, ())
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="jobqueue", codename__in=codenames)
    )
    return user


@pytest.fixture
def person(browser: Any, site: Callable[..., str]) -> Iterator[Callable[..., Person]]:
    """`person("viewer")`: that user in front of the site; `person(None)` is nobody in particular."""
    people: list[Person] = []

    def sit_down(
        name: str | None = "owner", *, variants: tuple[str, ...] = (), **context: Any
    ) -> Person:
        user = make_user(name) if name else None
        someone = Person(browser, site(*variants), user, **context)
        people.append(someone)
        return someone

    yield sit_down
    for someone in people:
        someone.close()


@pytest.fixture(scope="module")
def seeded(rows: None) -> Seeded:
    """Rows of every kind, there as long as the module."""
    return seed()
