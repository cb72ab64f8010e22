"""The jobs that are measured: they do nothing but record that they ran, and when."""

import asyncio
import os
import random
import struct
import time

from jobqueue import task

#: A number given by who enqueued, the process, and the moment (time.monotonic_ns).
RECORD = struct.Struct("=QQQQ")

_file = -1


def _record(number: int) -> None:
    global _file
    if _file < 0:
        path = os.environ["JOBQUEUE_BENCH_RECORDS"]
        _file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, RECORD.pack(number, os.getpid(), time.monotonic_ns(), 0))


@task
def sync_noop(number: int, payload: dict[str, str]) -> None:
    """A sync job, in a slot's thread."""
    _record(number)


@task
async def async_noop(number: int, payload: dict[str, str]) -> None:
    """An async job, on the event loop."""
    _record(number)


#: Seconds within which a payment ends, if each of its attempts takes the longest time.
PAYMENT_PATIENCE = 180.0


@task(max_attempts=10, backoff=lambda attempt, error: min(2.0**attempt, 10.0))
async def payment(number: int, seconds: float) -> None:
    """Waits for somebody else most of the time, and fails 3 in 10 times."""
    await asyncio.sleep(seconds)
    if random.random() < 0.3:
        raise ConnectionError("the gateway did not answer")
