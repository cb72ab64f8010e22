"""Tasks for the tests: a task needs a path that leads to it."""

from __future__ import annotations

import asyncio
from typing import Any

from django.db import connection

from jobqueue import JobContext, PermanentError, Retry, Snooze, task
from tests.app.models import Effect


@task
def noop(*args: Any, **kwargs: Any) -> None:
    """Take anything, do nothing."""


@task
async def async_noop(*args: Any, **kwargs: Any) -> None:
    """Take anything, do nothing, on the event loop."""


@task(queue_name="maths", priority=5)
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def async_add(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@task
def echo(value: Any) -> Any:
    return value


@task
def effect(key: str) -> None:
    """Leave a row, so that a test can count how often it happened."""
    Effect.objects.create(key=key)


@task(max_attempts=3, backoff=lambda attempt, error: 60.0 * attempt)
def fail(text: str = "no luck") -> None:
    raise ValueError(text)


@task
def fail_for_good() -> None:
    raise PermanentError("hopeless")


@task
def retry_in(seconds: float) -> None:
    raise Retry("later", after=seconds)


@task
def snooze(seconds: float) -> None:
    raise Snooze(after=seconds)


@task(takes_context=True)
def describe(context: JobContext, word: str = "") -> dict[str, Any]:
    """What a task learns from its context."""
    return {
        "job_id": context.job_id,
        "attempt": context.attempt,
        "max_attempts": context.max_attempts,
        "idempotency_key": context.idempotency_key,
        "cancelled": context.cancelled,
        "status": context.task_result.status,
        "word": word,
    }


@task(takes_context=True)
async def async_describe(context: JobContext) -> str:
    context.check()
    return context.job_id


@task(takes_context=True)
def tell(context: JobContext, total: int) -> None:
    """Progress and lines of its own."""
    for done in range(1, total + 1):
        context.progress(done, total, f"step {done}")
        context.log(f"did {done}", level="warning")


@task
def enqueue_more(levels: int) -> int:
    """A task that enqueues itself, until `levels` is used up."""
    if levels > 0:
        enqueue_more.enqueue(levels - 1)
    return levels


@task
def break_transaction() -> None:
    """Leave the connection in a transaction that the database has given up, and say nothing."""
    Effect.objects.create(key="before it broke")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'a')")
        cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'b')")


@task(atomic=True)
def effect_atomically(key: str, error: str = "") -> None:
    Effect.objects.create(key=key)
    if error:
        raise PermanentError(error)


@task(backoff=lambda attempt, error: 60.0)
def interrupt() -> None:
    raise KeyboardInterrupt


def not_a_task() -> None:
    """Just a function."""


class NotAFunction:
    """Callable, and no function."""

    def __call__(self) -> None:
        """Do nothing."""


not_a_function = NotAFunction()

another_name = noop
