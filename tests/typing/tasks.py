"""Tasks as an application declares and calls them.

mypy runs in strict mode and reports every `type: ignore` that hides nothing: so each of them proves
that the mistake on its line is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, assert_type

from jobqueue import BoundTask, JobContext, JobResult, Task, enqueue_many, task
from jobqueue.compat import TaskContext


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=5, max_attempts=3, timeout=None, retry_on=[OSError])
def send(to: str) -> None: ...


@task(takes_context=True, backoff=lambda attempt, error: 2.0**attempt)
def charge(context: JobContext, order_id: int, *, amount: str) -> dict[str, str]:
    context.progress(1, 2, "half")
    return {"key": context.idempotency_key, "amount": amount}


@task(takes_context=True)
def with_djangos_context(context: TaskContext[..., Any], word: str) -> str:
    return word


@task
async def fetch(url: str) -> bytes:
    return url.encode()


@task(takes_context=True)
async def fetch_with_context(context: JobContext, url: str) -> bytes:
    context.check()
    return url.encode()


def declarations() -> None:
    add(1)  # type: ignore[operator]
    assert_type(add.call(1, b=2), int)
    assert_type(add.func(1), int)
    assert_type(send.max_attempts, int | None)
    task(atomic="yes")  # type: ignore[call-overload]
    task(max_atempts=3)  # type: ignore[call-overload]
    task(run_after=datetime.now())  # type: ignore[call-overload]  # noqa: DTZ005


def enqueueing(later: datetime) -> None:
    result = add.enqueue(1, b=2)
    assert_type(result.return_value, int)
    assert_type(result.created, bool)
    assert_type(charge.enqueue(1, amount="9.99").return_value, dict[str, str])
    assert_type(with_djangos_context.enqueue("word").return_value, str)
    assert_type(fetch.enqueue("url").return_value, bytes)
    assert_type(fetch_with_context.enqueue(url="url").return_value, bytes)
    add.enqueue("1")  # type: ignore[arg-type]
    add.enqueue()  # type: ignore[call-arg]
    send.enqueue("to", "whom")  # type: ignore[call-arg]
    charge.enqueue(1)  # type: ignore[call-arg]
    charge.enqueue(1, "9.99")  # type: ignore[call-arg]

    same = add.using(idempotency_key="order-1", max_attempts=2, timeout=1.5, run_after=later)
    assert_type(same.enqueue(1).return_value, int)
    add.using(timeout=None)
    add.using(idempotency_key=1)  # type: ignore[arg-type]
    add.using(run_after=timedelta(1))  # type: ignore[arg-type]
    add.using(backoff=None)  # type: ignore[call-arg]


async def from_async_code() -> None:
    assert_type((await add.aenqueue(1)).return_value, int)
    assert_type(await add.acall(1), int)
    assert_type(await fetch.acall("url"), bytes)
    await add.aenqueue("1")  # type: ignore[arg-type]


def many() -> None:
    bound = add.bind(1)
    results = enqueue_many([bound, send.bind("to")])
    assert_type([result.created for result in results], list[bool])
    add.bind("1")  # type: ignore[arg-type]
    enqueue_many([add])  # type: ignore[list-item]


def values() -> tuple[Task[[int], int] | None, BoundTask[[str], None], JobResult[[str], None]]:
    keep: Callable[[str], JobResult[[str], None]] = send.enqueue
    return None, send.bind("to"), keep("to")
