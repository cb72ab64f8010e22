"""The same cases once more in local time, where they are marked so; and nobody listens to what ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings

from jobqueue import lifecycle

UTC, LOCAL = "in UTC", "in local time"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked `local_time_too` runs without USE_TZ and far from Greenwich, too."""
    if "site_time" not in metafunc.fixturenames:
        return
    marked = (metafunc.function, metafunc.cls)
    if any(getattr(each, "local_time", False) for each in marked) and django_settings.USE_TZ:
        metafunc.parametrize("site_time", [UTC, LOCAL], indirect=True)


@pytest.fixture(autouse=True)
def site_time(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    """How the site of this case keeps time."""
    if getattr(request, "param", UTC) == LOCAL:
        settings.USE_TZ = False
        settings.TIME_ZONE = "America/New_York"
    before = lifecycle.listen(None)
    yield
    lifecycle.listen(before)
