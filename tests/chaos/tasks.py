"""What the jobs of a run do: each execution says when it begins and how it ends, and returns the fence it ran under."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobqueue import JobContext, PermanentError, Snooze, task
from tests.app.models import Effect
from tests.chaos import killpoints, record

#: With what a process exits that a job ends on purpose.
CRASH = 3


@contextmanager
def execution(context: JobContext, call: str) -> Iterator[dict[str, Any]]:
    """Record an execution; yields what it is to return: the fence it ran under."""
    assert context.run is not None
    fence = {"attempt": context.attempt, "owner": str(context.run.attempt.owner)}
    about = {"job": context.job_id, "call": call, **fence}
    # All in the `try`: an attempt whose time is up is told so wherever it just is.
    try:
        record.say("begin", **about)
        killpoints.hit("body")
        yield fence
        record.say("end", how="returned", **about)
    except BaseException as error:
        record.say("end", how=type(error).__name__, **about)
        raise


def spend(seconds: float) -> None:
    """Run for a while, in Python code that an exception can stop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)


@task(takes_context=True)
def quick(context: JobContext, call: str) -> dict[str, Any]:
    """Do nothing."""
    with execution(context, call) as fence:
        return fence


@task(takes_context=True)
async def quick_async(context: JobContext, call: str) -> dict[str, Any]:
    """Do nothing, on the event loop."""
    with execution(context, call) as fence:
        await asyncio.sleep(0)
        return fence


@task(takes_context=True)
def long(context: JobContext, call: str, seconds: float) -> dict[str, Any]:
    """Take some time, and say so."""
    with execution(context, call) as fence:
        context.progress(0, seconds)
        spend(seconds)
        return fence


@task(takes_context=True)
async def long_async(context: JobContext, call: str, seconds: float) -> dict[str, Any]:
    """Take some time on the event loop."""
    with execution(context, call) as fence:
        await asyncio.sleep(seconds)
        return fence


@task(takes_context=True, max_attempts=3)
def failing(context: JobContext, call: str, times: int, seconds: float = 0) -> dict[str, Any]:
    """Fail in the first attempts."""
    with execution(context, call) as fence:
        spend(seconds)
        if context.attempt <= times:
            raise ValueError(f"no luck in attempt {context.attempt}")
        return fence


@task(takes_context=True)
def hopeless(context: JobContext, call: str) -> None:
    """Fail for good."""
    with execution(context, call):
        raise PermanentError("hopeless")


@task(takes_context=True, max_attempts=2)
def crashing(context: JobContext, call: str, times: int, hard: bool) -> dict[str, Any]:
    """Take the process along, in the first attempts."""
    with execution(context, call) as fence:
        if context.attempt <= times:
            record.say("crashed", job=context.job_id, attempt=context.attempt)
            if hard:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(CRASH)
        return fence


@task(takes_context=True, max_attempts=2, timeout=0.3)
def overrunning(context: JobContext, call: str) -> dict[str, Any]:
    """Take longer than it may, in code that can be stopped."""
    with execution(context, call) as fence:
        if context.attempt == 1:
            spend(20)
        return fence


@task(takes_context=True, max_attempts=2, timeout=0.3)
def stubborn(context: JobContext, call: str) -> dict[str, Any]:
    """Take longer than it may in one call that nothing can stop: it costs its process."""
    with execution(context, call) as fence:
        if context.attempt == 1:
            time.sleep(20)
        return fence


@task(takes_context=True)
def snoozing(context: JobContext, call: str, times: int) -> dict[str, Any]:
    """Ask for another moment, a few times."""
    with execution(context, call) as fence:
        if context.attempt <= times:
            raise Snooze(after=0.1)
        return fence


@task(takes_context=True, atomic=True, max_attempts=4)
def writing(context: JobContext, call: str, fails: bool, seconds: float) -> dict[str, Any]:
    """Write a row that commits with the job's completion, or not at all."""
    with execution(context, call) as fence:
        Effect.objects.create(key=context.job_id)
        spend(seconds)
        if fails and context.attempt == 1:
            raise ValueError("after the write")
        return fence
