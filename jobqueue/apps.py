"""The app's entry in Django's registry. It registers the checks; it opens and starts nothing."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class JobQueueConfig(AppConfig):
    name = "jobqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobqueue import checks, signals

        register(checks.check, "jobqueue")
        register(checks.check_connection, Tags.database)
        signals.connect()
