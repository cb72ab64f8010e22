"""A database router that keeps the queue in the database that the options name."""

from typing import Any

from django.db.models import Model

from jobqueue import conf

APP_LABEL = "jobqueue"


class JobQueueRouter:
    """Sends jobqueue's models to `OPTIONS["database"]`, and has no opinion about any others.

    Put it first in `DATABASE_ROUTERS`: the first router with an opinion wins.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return conf.options().database if model._meta.app_label == APP_LABEL else None

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        return conf.options().database if model._meta.app_label == APP_LABEL else None

    def allow_relation(self, obj1: Model, obj2: Model, **hints: Any) -> bool | None:
        labels = {obj1._meta.app_label, obj2._meta.app_label}
        return True if labels == {APP_LABEL} else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == conf.options().database if app_label == APP_LABEL else None
