"""django-vtasks on Redis: async tasks, 20 at once in a process."""

from __future__ import annotations

import os
from collections.abc import Iterator

from django.core.management import call_command
from django.tasks import task_backends
from django_vtasks import task

from benchmarks.peers.job import PAYLOAD, record
from benchmarks.peers.site import configure

CONCURRENCY = 20

configure(
    "django_vtasks",
    backend="django_vtasks.backends.valkey.ValkeyTaskBackend",
    OPTIONS={"BROKER_URL": os.environ["REDIS_URL"]},
)


@task
async def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


def prepare() -> None:
    """Redis needs no preparation."""


def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    for number in numbers:
        noop.enqueue(number, PAYLOAD)


def enqueue_many(calls: Iterator[list[int]]) -> None:
    """Its backend's bulk call."""
    for call in calls:
        task_backends["default"].enqueue_many([(noop, (number, PAYLOAD), {}) for number in call])


def work() -> None:
    """Its own command."""
    call_command("runworker", concurrency=CONCURRENCY)
