"""`manage.py demo`, as people run it: in a process of its own, on files of its own."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

PROJECT = Path(__file__).resolve().parent.parent
LIMIT = 120  # seconds for everything that a demo of a dozen jobs does

# The demo has its own SQLite file, whatever database this leg of the tests has.
pytestmark = [pytest.mark.sqlite, pytest.mark.processes, pytest.mark.timeout(LIMIT + 30)]


class Demo:
    """A running demo: what it prints, and the processes that it says it has started."""

    def __init__(self, folder: Path, *arguments: str, terminal: bool = False) -> None:
        self.folder = folder
        self.said = ""
        ours, theirs = os.openpty() if terminal else os.pipe()
        environment = os.environ | {
            "JOBQUEUE_DEMO": str(folder),
            "JOBQUEUE_DEMO_SEED": "seven",
            # Neither is ever reached: the demo looks at neither.
            "DATABASE_URL": "postgres://nobody:wrong@127.0.0.1:1/none",
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "DJANGO_SETTINGS_MODULE": "no.such.settings",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), "demo", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.output = ours

    def read_until(self, pattern: str) -> re.Match[str]:
        """Wait until what it has printed matches; its end before that is a failure."""
        until = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.said)):
            assert self._read(until), f"ended without {pattern!r}:\n{self.said}"
        return found

    def wait(self) -> int:
        """Read all that it still prints, and return its exit code."""
        until = time.monotonic() + LIMIT
        while self._read(until):
            pass
        return self.process.wait(max(0.1, until - time.monotonic()))

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self.output], [], [], max(0, until - time.monotonic()))
        assert ready, f"nothing more within {LIMIT} s:\n{self.said}"
        try:
            chunk = os.read(self.output, 65536)
        except OSError:  # how a terminal says that nobody is at its other end
            chunk = b""
        self.said += chunk.decode(errors="replace")
        return bool(chunk)

    def pid(self, name: str) -> int:
        """The id of one of its processes, as printed."""
        return int(self.read_until(rf"{name} +process (\d+)")[1])

    def jobs(self, number: int) -> list[tuple[str, str]]:
        """The status and the last error of the first jobs in its file."""
        query = "SELECT status, error FROM jobqueue_job ORDER BY id LIMIT ?"
        with contextlib.closing(sqlite3.connect(self.folder / "demo.sqlite3")) as database:
            return database.execute(query, [number]).fetchall()

    def life(self) -> dict[str, int]:
        """How many jobs there are of each status beyond those."""
        query = "SELECT status, count(*) FROM jobqueue_job GROUP BY status"
        with contextlib.closing(sqlite3.connect(self.folder / "demo.sqlite3")) as database:
            return dict(database.execute(query).fetchall())

    def leftovers(self) -> list[str]:
        """Which of its process groups still have a member."""
        return [name for name in ("web", "worker") if _has_members(self.pid(name))]


def _has_members(group: int) -> bool:
    """Whether a process of the group runs. One that was killed may be there until init looks."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def demo(folder: Path, *arguments: str, terminal: bool = False) -> Iterator[Demo]:
    """A demo that is ended with the block, whatever happened in it."""
    running = Demo(folder, *arguments, terminal=terminal)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            running.process.wait(30)
        os.close(running.output)


def test_without_a_terminal_it_ends_with_its_jobs(tmp_path: Path) -> None:
    with demo(tmp_path / "files", "--jobs", "12") as running:
        assert running.wait() == 0, running.said
        assert running.jobs(12) == [("completed", "")] * 12
        life = running.life()
        # What ran when it ended has been handed back, or is about to be tried again.
        assert (life["failed"], life["cancelled"]) == (4, 2)
        assert life["queued"] >= 7
        assert life["scheduled"] >= 5
        assert "paused queue 'billing'" in running.said
        assert "All 12 jobs are final" in running.said
        assert re.search(r"log in +user demo, password \S+", running.said)
        assert '"GET / HTTP/1.1" 200' in (tmp_path / "files" / "web.log").read_text()
        assert running.leftovers() == []
        assert "\r" not in running.said


def test_on_a_terminal_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path, "--jobs", "5", terminal=True) as running:
        port = int(running.read_until(r"page +http://127\.0\.0\.1:(\d+)/")[1])
        running.read_until("Ctrl-C ends them")
        for path, answer in (("/", 200), ("/static/demo/site.css", 200), ("/admin/", 302)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            assert connection.getresponse().status == answer
            connection.close()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0, running.said
        assert running.jobs(5) == [("completed", "")] * 5
        assert running.leftovers() == []


@pytest.mark.parametrize("name", ["web", "worker"])
def test_a_process_that_dies_is_a_failure(tmp_path: Path, name: str) -> None:
    with demo(tmp_path, "--jobs", "1000") as running:
        os.kill(running.pid(name), signal.SIGKILL)
        assert running.wait() == 1, running.said
        assert f"The {name} process was killed by signal 9" in running.said
        assert running.leftovers() == []


def test_jobs_that_are_not_final_in_time_are_a_failure(tmp_path: Path) -> None:
    with demo(tmp_path, "--jobs", "2000", "--patience", "1") as running:
        assert running.wait() == 1, running.said
        assert "jobs are not final after 1 s" in running.said
        assert running.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--jobs", "1000") as running:
        running.pid("worker")
        running.process.send_signal(number)
        assert running.wait() == 130, running.said
        assert "Interrupted" in running.said
        assert running.leftovers() == []


def test_a_second_demo_on_the_same_files_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with demo(tmp_path, "--jobs", "1") as running:
            assert running.wait() == 1
            assert "A demo is running in" in running.said
    # From Django 6.1 on the checks of every command open the database, which makes an empty file.
    with contextlib.closing(sqlite3.connect(tmp_path / "demo.sqlite3")) as database:
        assert database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_it_never_runs_on_a_site_of_its_own_database() -> None:
    # Under the tests' settings the command is not even installed; called all the same, it refuses.
    from config.management.commands.demo import Command

    with pytest.raises(CommandError, match=r"manage\.py demo"):
        call_command(Command())
