"""chancy: the async executor, 20 at once in a process; it writes outcomes once a second."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from chancy import Chancy, Job, Queue, Worker

from benchmarks.peers.job import PAYLOAD, record

URL = os.environ["DATABASE_URL"]
CONCURRENCY = 20
CALL = 5_000
QUIET = logging.getLogger("benchmarks.chancy")  # its own would print a line for each job


async def noop(*, number: int, payload: dict[str, str]) -> None:
    """The job."""
    record(number)


async def prepare() -> None:
    """Make its tables, and the queue that its workers look for."""
    async with Chancy(URL, log=QUIET) as chancy:
        await chancy.migrate()
        # Eager, since else it looks for its next 20 jobs only every 5 seconds.
        queue = Queue(
            "default",
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            eager_polling=True,
        )
        await chancy.declare(queue)


async def enqueue(numbers: Iterator[int]) -> None:
    """One call each."""
    async with Chancy(URL, log=QUIET) as chancy:
        for number in numbers:
            await chancy.push(_job(number))


async def enqueue_many(calls: Iterator[list[int]]) -> None:
    """Its bulk call, in one transaction as the others' are."""
    async with Chancy(URL, log=QUIET) as chancy:
        for call in calls:
            async for _ in chancy.push_many([_job(n) for n in call], batch_size=CALL):
                pass


async def work() -> None:
    """One worker."""
    async with Chancy(URL, log=QUIET) as chancy, Worker(chancy) as worker:
        await worker.wait_for_shutdown()


def _job(number: int) -> Job:
    return Job.from_func(noop, kwargs={"number": number, "payload": PAYLOAD})
