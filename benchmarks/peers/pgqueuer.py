"""pgqueuer: asyncpg, batches of 100; its rows are deleted when done."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pgqueuer
import uvloop

from benchmarks.peers.job import PAYLOAD, record

URL = os.environ["DATABASE_URL"]
BATCH = 100


async def prepare() -> None:
    """Install its tables."""
    async with _queries() as queries:
        await queries.install()


async def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    async with _queries() as queries:
        for number in numbers:
            await queries.enqueue("noop", _payload(number))


async def enqueue_many(calls: Iterator[list[int]]) -> None:
    """The same method takes lists."""
    async with _queries() as queries:
        for call in calls:
            payloads: list[bytes | None] = [_payload(number) for number in call]
            await queries.enqueue(["noop"] * len(call), payloads, [0] * len(call))


def work() -> None:
    """One process, in uvloop as its own command has it."""
    uvloop.run(pgqueuer.run(_worker, batch_size=BATCH))


@contextlib.asynccontextmanager
async def _worker() -> AsyncIterator[pgqueuer.PgQueuer]:
    connection = await asyncpg.connect(URL)
    manager = pgqueuer.PgQueuer.from_asyncpg_connection(connection)

    @manager.entrypoint("noop")
    async def noop(job: pgqueuer.Job) -> None:
        record(json.loads(job.payload or b"")["number"])

    try:
        yield manager
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _queries() -> AsyncIterator[pgqueuer.Queries]:
    connection = await asyncpg.connect(URL)
    try:
        yield pgqueuer.Queries(pgqueuer.AsyncpgDriver(connection))
    finally:
        await connection.close()


def _payload(number: int) -> bytes:
    return json.dumps({"number": number, "payload": PAYLOAD}).encode()
