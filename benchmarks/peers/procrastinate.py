"""procrastinate: async tasks, 20 at once in a process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import procrastinate

from benchmarks.peers.job import PAYLOAD, record

CONCURRENCY = 20

connector = procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"])
app = procrastinate.App(connector=connector)


@app.task
async def noop(number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


async def prepare() -> None:
    """Make its tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    async with app.open_async():
        for number in numbers:
            await noop.defer_async(number=number, payload=PAYLOAD)


async def enqueue_many(calls: Iterator[list[int]]) -> None:
    """Its bulk call."""
    async with app.open_async():
        for call in calls:
            await noop.batch_defer_async(*({"number": n, "payload": PAYLOAD} for n in call))


async def work() -> None:
    """One worker."""
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)
