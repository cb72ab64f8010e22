"""What runs in a peer's own environment: the roles, the same for all, around the peer's adapter.

    python -m benchmarks.peers.roles PEER prepare | enqueue JOBS | bulk JOBS CALL | paced JOBS | work

Before the JOBS that count come a few which do not: WARM_UP of them, one for `bulk` and `paced`.

An adapter is a module of this package with the functions, sync or async,

    prepare()            makes the peer's tables in an empty database, if it has any
    enqueue(numbers)     enqueues one job for each number, by the peer's ordinary call
    enqueue_many(calls)  makes one bulk call for each list of numbers, if the peer has one
    work()               is one worker, until it is told to stop

`numbers` and `calls` are generators which also take the time, so that neither an adapter's import
nor its connecting counts. The answer is printed as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.job import RECORDS_VARIABLE

WARM_UP = 20
EVERY = 0.05
SETTLED = 2.0
PATIENCE = 60.0


def main() -> None:
    """Play one role with one adapter."""
    name, role, *numbers = sys.argv[1:]
    if role == "work":
        threading.Thread(target=_end_with_parent, daemon=True).start()
    adapter: Any = importlib.import_module(f"benchmarks.peers.{name}")
    answer: list[Any] = []
    if role == "enqueue":
        jobs = int(numbers[0])
        _run(adapter.enqueue, _timed(range(jobs + WARM_UP), WARM_UP, answer))
    elif role == "bulk":
        jobs, call = map(int, numbers)
        # The first call, of one job, is to connect.
        starts = range(1, jobs + 1, call)
        calls = [[0], *(list(range(n, min(n + call, jobs + 1))) for n in starts)]
        _run(adapter.enqueue_many, _timed(calls, 1, answer))
    elif role == "paced":
        _run(adapter.enqueue, _paced(int(numbers[0]), answer))
    else:
        _run(getattr(adapter, role))
    print(json.dumps(answer))


def _run(function: Any, *arguments: Any) -> None:
    outcome = function(*arguments)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def _timed(items: Any, skipped: int, answer: list[float]) -> Iterator[Any]:
    """Hand out the items; the answer is the seconds that all but the first few took."""
    begin = 0.0
    for position, item in enumerate(items):
        if position == skipped:
            begin = time.perf_counter()
        yield item
    answer.append(time.perf_counter() - begin)


def _paced(jobs: int, answer: list[tuple[int, int]]) -> Iterator[int]:
    """Hand out a number every 50 ms once the workers run; the answer is when each was."""
    records = Path(os.environ[RECORDS_VARIABLE])
    yield 0
    deadline = time.monotonic() + PATIENCE
    while not records.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no worker ran a job within {PATIENCE:.0f} s")
        time.sleep(0.05)
    time.sleep(SETTLED)
    begin = time.monotonic()
    for number in range(1, jobs + 1):
        time.sleep(max(0.0, begin + number * EVERY - time.monotonic()))
        answer.append((number, time.monotonic_ns()))
        yield number


def _end_with_parent() -> None:
    """End this worker and its children once the other end of standard input is gone."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
