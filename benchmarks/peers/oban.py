"""oban, the Python one: a limit of 100 in a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import oban
import uvloop
from oban.schema import install

from benchmarks.peers.job import PAYLOAD, record

URL = os.environ["DATABASE_URL"]
LIMIT = 100


@oban.worker(queue="default")
class Noop:
    """The job."""

    async def process(self, job: oban.Job) -> None:
        """Record its number."""
        record(job.args["number"])


async def prepare() -> None:
    """Make its tables."""
    pool = await oban.Oban.create_pool(URL)
    await install(pool)
    await pool.close()


async def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    async with _oban() as client:
        for number in numbers:
            await client.enqueue(_job(number))


async def enqueue_many(calls: Iterator[list[int]]) -> None:
    """Its bulk call."""
    async with _oban() as client:
        for call in calls:
            await client.enqueue_many([_job(number) for number in call])


def work() -> None:
    """One worker, in uvloop as its own command has it."""
    uvloop.run(_work())


async def _work() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with _oban(queues={"default": LIMIT}):
        await stop.wait()


@contextlib.asynccontextmanager
async def _oban(**options: Any) -> AsyncIterator[oban.Oban]:
    pool = await oban.Oban.create_pool(URL)
    async with oban.Oban(pool=pool, **options) as instance:
        yield instance
    await pool.close()


def _job(number: int) -> oban.Job:
    return Noop.new({"number": number, "payload": PAYLOAD})
