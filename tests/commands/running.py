"""Running a command in this process or in one of its own, and jobs of long ago."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from django.core.management import CommandError, call_command

from jobqueue import ids
from jobqueue.models import Job
from tests.factories import JobFactory, ago

NOWHERE = "00000000-0000-7000-8000-000000000000"

#: What is shown at work here: a flag as `command action --flag`, and the tests that show it.
SHOWN: dict[str, list[str]] = {}

Test = Callable[..., None]


def shows(*flags: str) -> Callable[[Test], Test]:
    """Marks a test that fails when one of these flags does nothing."""

    def mark(test: Test) -> Test:
        for flag in flags:
            SHOWN.setdefault(flag, []).append(test.__name__)
        return test

    return mark


@dataclass
class Ran:
    """What a command printed, and the error or exit code that it ended with."""

    out: str
    err: str
    error: str | None = None
    code: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: object) -> Ran:
    """Run a command in this process, on the test's own connection."""
    out, err = io.StringIO(), io.StringIO()
    error, code = None, 0
    try:
        call_command(*map(str, words), stdout=out, stderr=err)
    except CommandError as raised:
        error, code = str(raised), raised.returncode
    except SystemExit as raised:
        code = int(raised.code or 0)
    return Ran(out.getvalue(), err.getvalue(), error, code)


def manage(environment: dict[str, str], *words: object, **pipes: Any) -> subprocess.Popen[str]:
    """Start a command as a process of its own, with pipes for what it prints."""
    command = [sys.executable, "-m", "django", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | pipes
    return subprocess.Popen(command, env=environment, text=True, **pipes)


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def lines_of(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    return (line.rstrip("\n") for line in stream)


def id_of(moment: datetime) -> uuid.UUID:
    """An id as one that was made at that time: pruning goes by it."""
    return uuid.UUID(int=ids.first_at(moment.timestamp()).int | uuid.uuid4().int % 2**62)


def long_ago(days: float = 400, **traits: Any) -> Job:
    """A job that was enqueued and ended so many days ago."""
    then = ago(days * 86_400)
    return JobFactory(id=id_of(then), enqueued_at=then, run_after=then, finished_at=then, **traits)


def many(number: int, like: Job) -> None:
    """So many more jobs, alike but for their ids."""
    values = {field.attname: getattr(like, field.attname) for field in Job._meta.fields}
    rows = (Job(**values | {"id": id_of(like.enqueued_at)}) for _ in range(number))
    Job.objects.bulk_create(rows, batch_size=500)
