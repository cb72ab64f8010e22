"""The smallest site for those peers that are Django applications."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit


def configure(*apps: str, backend: str, **settings: Any) -> None:
    """Set Django up on the database in DATABASE_URL, which each process keeps its connection to."""
    import django
    from django.conf import settings as site

    url = urlsplit(os.environ["DATABASE_URL"])
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.hostname,
        "PORT": url.port,
        "CONN_MAX_AGE": None,
    }
    tasks = {"BACKEND": backend, "OPTIONS": settings.pop("OPTIONS", {})}
    site.configure(
        DATABASES={"default": database},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=list(apps),
        # In the peers' favour: Django's own lines about each task would cost them much.
        LOGGING={"version": 1, "loggers": {"django.tasks": {"level": "ERROR"}}},
        SECRET_KEY="of the benchmarks alone",
        TASKS={"default": tasks},
        USE_TZ=True,
        **settings,
    )
    django.setup()


def migrate() -> None:
    """Make the tables."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
