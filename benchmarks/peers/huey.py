"""huey on Redis: one consumer with two worker processes, the rest as it comes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from huey import RedisHuey

from benchmarks.peers.job import PAYLOAD, record

PROCESSES = 2

queue = RedisHuey("bench", url=os.environ["REDIS_URL"])


@queue.task()
def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


def prepare() -> None:
    """Redis needs no preparation."""


def enqueue(numbers: Iterator[int]) -> None:
    """One call each: a task that is called is enqueued."""
    for number in numbers:
        noop(number, PAYLOAD)


def work() -> None:
    """Its consumer, whose children are the workers."""
    queue.create_consumer(workers=PROCESSES, worker_type="process").run()
