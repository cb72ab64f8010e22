"""The app's configuration."""

import os
import warnings

from django.apps import AppConfig
from django.db import connection


class TestsAppConfig(AppConfig):
    name = "tests.app"
    label = "tests_app"

    def ready(self) -> None:
        wanted = os.environ.get("JOBQUEUE_TEST_RECEIVERS")
        if wanted:
            from tests.app import receivers

            receivers.connect(failing=wanted == "failing")
        if os.environ.get("JOBQUEUE_TEST_READY"):
            # As some apps do, whatever Django says of it.
            with warnings.catch_warnings(action="ignore"), connection.cursor() as cursor:
                cursor.execute("SELECT 1")
