"""A site whose workers are real processes: start them, wait for what they do, and read what they did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from jobqueue.models import Job, JobLog
from tests.servers import PrivatePostgres

#: Seconds after which whatever a test waits for is not coming any more: far beyond what it takes.
PATIENCE = 30.0

#: Short enough for tests, long enough for a busy machine.
OPTIONS = {
    "lease": 3.0,
    "heartbeat": 0.5,
    "tick": 0.1,
    "backoff_base": 0.05,
    "backoff_max": 0.2,
    "grace": 10.0,
    "kill_after": 1.0,
}


def wait_until(
    condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = PATIENCE
) -> Any:
    """Wait until `condition` is true and return its value; fail, saying `what`, after `timeout`."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            pytest.fail(f"waited {timeout:g} s in vain for {said}")
        time.sleep(0.01)
    return value


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet reaped does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def wait_gone(*pids: int, timeout: float = PATIENCE) -> None:
    """Wait until none of the processes runs any more."""
    wait_until(
        lambda: not any(is_alive(pid) for pid in pids), f"the end of the processes {pids}", timeout
    )


class Supervised:
    """One `runworker`: the supervisor and the worker processes below it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log

    @property
    def workers(self) -> list[int]:
        """The pids of its worker processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return [int(pid) for pid in children.read_text().split()]
        return []

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def send(self, number: int) -> None:
        """Send a signal to the supervisor alone."""
        self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the supervisor's end; returns its exit code."""
        return self.process.wait(timeout)

    def kill_all(self) -> None:
        """SIGKILL the supervisor and its workers at one instant."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


class Site:
    """The site under test."""

    def __init__(self, folder: Path, environment: Callable[..., dict[str, str]]) -> None:
        self.folder = folder
        self.events_file = folder / "events"
        self._environment = environment
        self.running: list[Supervised] = []

    def start(
        self, *arguments: str, options: dict[str, Any] | None = None, **variables: str
    ) -> Supervised:
        """Start `runworker` with these arguments, in a process group of its own."""
        log = self.folder / f"runworker-{len(self.running)}.log"
        environment = self._environment(
            OPTIONS | (options or {}), JOBQUEUE_TEST_EVENTS=str(self.events_file), **variables
        )
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "runworker", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        supervised = Supervised(process, log)
        self.running.append(supervised)
        return supervised

    def start_ready(self, *arguments: str, **kwargs: Any) -> Supervised:
        """`start`, and wait until its workers have introduced themselves."""
        from jobqueue.models import Worker

        supervised = self.start(*arguments, **kwargs)
        wait_until(
            lambda: (
                supervised.workers
                and Worker.objects.filter(pid__in=supervised.workers).count()
                == len(supervised.workers)
            ),
            lambda: f"the workers to be ready; log:\n{supervised.log}",
        )
        return supervised

    def manage(
        self, *arguments: str, options: dict[str, Any] | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """Start another management command."""
        return self.module("django", *arguments, options=options, **variables)

    def module(
        self, *arguments: str, options: dict[str, Any] | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """Start `python -m` with these arguments, on this site."""
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=self._environment(OPTIONS | (options or {}), **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def reconciling(self, *, options: dict[str, Any] | None = None) -> Iterator[None]:
        """`reconcile` in a loop, as fast as it may, beside whatever else runs."""
        log = self.folder / "reconcile.log"
        with log.open("wb") as output:
            command = subprocess.Popen(
                [sys.executable, "-m", "django", "reconcile", "--every", "0.1"],
                env=self._environment(OPTIONS | (options or {})),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: log.stat().st_size, "the first pass of reconcile")
            yield
            command.terminate()
            assert command.wait(PATIENCE) == 0, log.read_text()
        finally:
            command.kill()
            command.wait()

    def release(self, name: str) -> None:
        """Let the tasks that wait for the file `name` go on."""
        (self.folder / name).touch()

    def events(self, event: str | None = None, job: Any = None) -> list[dict[str, Any]]:
        """What the tasks have recorded so far."""
        if not self.events_file.exists():
            return []
        text = self.events_file.read_text()
        whole = text[: text.rfind("\n") + 1]  # the last line may be on its way
        lines = [json.loads(line) for line in whole.splitlines()]
        return [
            line
            for line in lines
            if event in (None, line["event"]) and (job is None or line["job"] == str(job))
        ]

    def wait_for(self, event: str, job: Any, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `event` of `job` has been recorded `count` times."""
        return wait_until(  # type: ignore[no-any-return]
            lambda: (found := self.events(event, job)) and len(found) >= count and found,
            lambda: f"{count} x {event} of job {job}; {self._seen(job)}",
        )

    def wait_status(self, job: Any, *statuses: str, timeout: float = PATIENCE) -> Job:
        """Wait until the job has one of these statuses, and return its row."""
        return wait_until(  # type: ignore[no-any-return]
            lambda: Job.objects.filter(pk=str(job), status__in=statuses).first(),
            lambda: f"job {job} to be {' or '.join(statuses)}; {self._seen(job)}",
            timeout,
        )

    def _seen(self, job: Any) -> str:
        rows = Job.objects.filter(pk=str(job)).values("status", "error", "attempt", "lease_owner")
        try:
            seen = str(list(rows))
        except OperationalError as error:  # a test of outages
            seen = str(error)
        return f"it is {seen}; log:\n" + "\n".join(each.log for each in self.running)

    def log_lines(self, job: Any, event: str) -> list[JobLog]:
        """The lines of the job's log about this event, in their order."""
        return list(JobLog.objects.filter(job=str(job), event=event).order_by("pk"))

    def log_events(self, job: Any) -> list[str]:
        """The events of the job's log, in their order."""
        lines = JobLog.objects.filter(job=str(job)).order_by("pk")
        return list(lines.values_list("event", flat=True))


@pytest.fixture
def site(
    transactional_db: None, tmp_path: Path, child_environment: Callable[..., dict[str, str]]
) -> Iterator[Site]:
    """A site on the test database; whatever it has started is gone afterwards."""
    site = Site(tmp_path, child_environment)
    try:
        yield site
    finally:
        for supervised in site.running:
            supervised.kill_all()


@pytest.fixture
def private_site(
    on_private_postgres: PrivatePostgres,
    tmp_path: Path,
    child_environment: Callable[..., dict[str, str]],
) -> Iterator[Site]:
    """A site on a PostgreSQL of its own, which may be stopped, restarted and cut."""
    site = Site(tmp_path, child_environment)
    try:
        yield site
    finally:
        for supervised in site.running:
            supervised.kill_all()
