"""celery on Redis, as it comes: its own command with a pool of two processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from celery import Celery

from benchmarks.peers.job import PAYLOAD, record

app = Celery("bench", broker=os.environ["REDIS_URL"])


@app.task
def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


def prepare() -> None:
    """Redis needs no preparation."""


def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    for number in numbers:
        noop.delay(number, PAYLOAD)


def work() -> None:
    """Its own command, whose children are the workers."""
    app.worker_main(["worker", "--concurrency", "2", "--loglevel", "ERROR"])
