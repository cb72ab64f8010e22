"""dramatiq on Redis: its own command with two processes of 8 threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import dramatiq
from dramatiq import cli
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.job import PAYLOAD, record

dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"]))


@dramatiq.actor
def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


def prepare() -> None:
    """Redis needs no preparation."""


def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    for number in numbers:
        noop.send(number, PAYLOAD)


def work() -> None:
    """Its own command, whose children are the workers."""
    arguments = [__name__, "--processes", "2", "--threads", "8", "--skip-logging"]
    sys.exit(cli.main(cli.make_argument_parser().parse_args(arguments)))
