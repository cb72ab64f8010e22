"""The same cases everywhere: by the fast statements, by the plain ways, and in local time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings as django_settings
from django.db import connection

from jobqueue import lifecycle, postgres

LOCAL = " in local time"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """PostgreSQL runs each case twice, but for modules with ONE_WAY; those marked `local_time_too`
    run once more, without USE_TZ and far from Greenwich."""
    if "ways" not in metafunc.fixturenames:
        return
    ways = ["fast", "plain"] if connection.vendor == "postgresql" else ["sqlite"]
    if getattr(metafunc.module, "ONE_WAY", False):
        del ways[1:]
    marked = (metafunc.function, metafunc.cls)
    if any(getattr(each, "local_time", False) for each in marked) and django_settings.USE_TZ:
        ways = [*ways, *(way + LOCAL for way in ways)]
    metafunc.parametrize("ways", ways, indirect=True)


@pytest.fixture(autouse=True)
def ways(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: object
) -> Iterator[str]:
    """How the lifecycle does its work in this case."""
    way: str = request.param
    if way.endswith(LOCAL):
        settings.USE_TZ = False  # type: ignore[attr-defined]
        settings.TIME_ZONE = "America/New_York"  # type: ignore[attr-defined]
    monkeypatch.setattr(postgres, "enabled", way.startswith("fast"))
    before = lifecycle.listen(None)
    yield way
    lifecycle.listen(before)
