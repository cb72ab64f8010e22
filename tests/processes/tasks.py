"""What the workers under test run. Each execution writes a line when it begins and when it ends."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from jobqueue import Stopped, task
from jobqueue.compat import task_finished
from jobqueue.context import JobContext
from tests.app.models import Effect, Note


def record(event: str, context: JobContext, **data: Any) -> None:
    """One line in the event file, in a single write, so that processes cannot mix theirs."""
    line = {
        "event": event,
        "job": context.job_id,
        "attempt": context.attempt,
        "pid": os.getpid(),
        "thread": threading.get_ident(),
        "at": time.monotonic(),
        **data,
    }
    descriptor = os.open(os.environ["JOBQUEUE_TEST_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def tell(task_result: Any, **kwargs: Any) -> None:
    """Record that a receiver was told of the end of a job that kills its process."""
    if task_result.task.name == "deadly":
        line = {"event": "finished", "job": task_result.id, "pid": os.getpid()}
        descriptor = os.open(os.environ["JOBQUEUE_TEST_EVENTS"], os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


if "JOBQUEUE_TEST_EVENTS" in os.environ:  # in a worker, and not where the tests import this
    task_finished.connect(tell)


def wait_for_file(name: str) -> None:
    """Run on, in Python code, until the test makes the file `name` beside the event file."""
    path = Path(os.environ["JOBQUEUE_TEST_EVENTS"]).with_name(name)
    while not path.exists():
        time.sleep(0.01)


@task(takes_context=True)
def quick(context: JobContext, value: Any = None) -> Any:
    """End at once."""
    record("begin", context)
    record("end", context)
    return value


@task(takes_context=True)
def until(context: JobContext, name: str) -> str:
    """Run until the test says so (see `wait_for_file`)."""
    record("begin", context)
    wait_for_file(name)
    record("end", context)
    return name


@task(takes_context=True)
def lasting(context: JobContext, seconds: float) -> float:
    """Run for some seconds in Python code that can be interrupted."""
    record("begin", context)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    record("end", context)
    return seconds


@task(takes_context=True)
def blocking(context: JobContext, seconds: float) -> None:
    """Run for some seconds in one call into C, which no exception can interrupt."""
    record("begin", context)
    time.sleep(seconds)
    record("end", context)


@task(takes_context=True)
async def waiting(context: JobContext, seconds: float) -> float:
    """Run for some seconds on the event loop."""
    record("begin", context)
    await asyncio.sleep(seconds)
    record("end", context)
    return seconds


@task(takes_context=True)
def holding_the_gil(context: JobContext, seconds: float) -> None:
    """Keep every other thread of the process from running for some seconds."""
    record("begin", context)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    record("end", context)


@task(takes_context=True)
def deadly(context: JobContext) -> None:
    """Kill the process."""
    record("begin", context)
    os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True)
def checking(context: JobContext, name: str) -> None:
    """Run until the test makes the file of this attempt (`go` and 2, say), or until told to stop;
    then tell what `check` says."""
    record("begin", context)
    try:
        wait_for_file(f"{name}{context.attempt}")
    except Stopped:
        try:
            context.check()
        except Stopped as why:
            record("told", context, why=type(why).__name__)
        raise
    record("end", context)


@task(takes_context=True)
def talking(context: JobContext, name: str) -> None:
    """Say something again and again until the test makes the file."""
    record("begin", context)
    path = Path(os.environ["JOBQUEUE_TEST_EVENTS"]).with_name(name)
    while not path.exists():
        context.log("still here")
        context.progress(1, 2)
        time.sleep(0.05)
    record("end", context)


@task(takes_context=True)
def noting(context: JobContext, name: str) -> None:
    """Keep a transaction open that has written a row with a foreign key to this very job."""
    with transaction.atomic():
        Note.objects.create(text="mine", job_id=context.job_id)
        record("begin", context)
        wait_for_file(name)
    record("end", context)


@task(takes_context=True, atomic=True)
def writing(context: JobContext) -> None:
    """Write a row in the transaction that completes the job."""
    record("begin", context)
    Effect.objects.create(key=context.job_id)
    record("end", context)


@task(takes_context=True)
def refusing(context: JobContext) -> None:
    """Fail."""
    record("begin", context)
    raise ValueError("no")


@task(takes_context=True)
def cutting(context: JobContext) -> None:
    """End all sessions of the database, this worker's too, and return at once."""
    record("begin", context)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    record("end", context)
