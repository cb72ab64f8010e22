"""django-tasks-db: one task at a time in a process; its workers look once a second."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.management import call_command
from django.tasks import task

from benchmarks.peers.job import PAYLOAD, record
from benchmarks.peers.site import configure, migrate

configure("django_tasks_db", backend="django_tasks_db.DatabaseBackend")


@task
def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


def prepare() -> None:
    """Make its tables."""
    migrate()


def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    for number in numbers:
        noop.enqueue(number, PAYLOAD)


def work() -> None:
    """Its own command."""
    call_command("db_worker", reload=False)
