"""The runner behind `make test`: one set of private servers, and the suite on each database.

    python -m tests.run [--all] [--only postgres|sqlite] [-- arguments for pytest]

A leg is the suite on one database under one Django; `--all` adds the legs of the other supported
Django. A leg has three parts: the quick tests, those that start processes, those that drive a browser. The
last are for PostgreSQL; and on SQLite the other Django gets the first alone, since processes differ
by database and by Django, but not by both at once. A few that fail
beside others are run once more, alone, and the table says so. `DATABASE_URL` and `REDIS_URL` take
the place of the shared servers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree

from tests.environments import PROJECT, EnvironmentUnavailable, chromium_path, other
from tests.servers import PrivatePostgres, PrivateRedis, ServerError, room

PARTS = (
    ["-m", "not processes and not browser", "-n", "2"],
    # They wait more than they compute; what they measure has generous bounds.
    ["-m", "processes", "-n", "3"],
    # Apart, since what drives the browser keeps an event loop in the thread of the tests; by files,
    # each of which has a site of its own.
    ["-m", "browser", "-n", "2", "--dist", "loadfile"],
)
FEW = 5  # failures that may be their neighbours' fault; more are not
TIMED_OUT = 124
NO_TESTS = 5  # pytest's exit code when none was selected
YOUNG = 11.0  # seconds after a server's start in which nobody takes a lease that has ended
LIMIT = 15 * 60  # seconds for one part, when everything else failed to end it


@dataclass
class Leg:
    """The suite on one database under one Django, and how it went."""

    title: str
    python: Path
    database_url: str | None
    parts: Sequence[Sequence[str]] = PARTS
    broken: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unsteady: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.failed or self.broken)

    def __str__(self) -> str:
        outcome = "ok    " if self.ok else "FAILED"
        counts = f"{self.passed:5} passed, {self.failed:3} failed, {self.skipped:4} skipped"
        why = f": {self.broken}" if self.broken else ""
        unsteady = f"  ({self.unsteady} of them only alone)" if self.unsteady else ""
        return f"{outcome} {counts}, {self.seconds:4.0f} s  {self.title}{why}{unsteady}"

    def run(self, arguments: list[str]) -> None:
        """Run both parts and count."""
        began = time.monotonic()
        for part in self.parts:
            cache = f"cache_dir={room() / f'cache-{secrets.token_hex(4)}'}"
            failed = self._run_part([*part, "-o", cache, *arguments])
            if 0 < failed <= FEW and not self.broken:
                # Neighbours that keep both cores busy may cost a test its patience.
                print(f"=== {failed} failed beside others: once more, alone", flush=True)
                again = [*part, "-n", "1", "--last-failed", "--last-failed-no-failures", "none"]
                self.failed -= failed
                self.unsteady += failed - self._run_part([*again, "-o", cache, *arguments])
        self.seconds = time.monotonic() - began
        if not (self.passed or self.failed or self.broken):
            self.broken = "no test ran"

    def _run_part(self, arguments: list[str]) -> int:
        """Run one part; returns how many of its tests failed."""
        report = room() / f"report-{secrets.token_hex(4)}.xml"
        command: list[str | Path] = [
            self.python,
            "-m",
            "pytest",
            f"--junitxml={report}",
            *arguments,
        ]
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        if self.database_url:
            environment["DATABASE_URL"] = self.database_url
        print(f"\n=== {self.title}: pytest {' '.join(arguments)}", flush=True)
        code = call(command, environment)
        failed = self._count(report)
        if code not in (0, NO_TESTS) and not failed:
            self.broken = f"pytest ended with {code}"
        return failed

    def _count(self, report: Path) -> int:
        failed = 0
        if not report.exists():
            return failed
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            tests, failures, errors, skipped = (
                int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")
            )
            failed += failures + errors
            self.skipped += skipped
            self.passed += max(0, tests - failures - errors - skipped)
        report.unlink()
        self.failed += failed
        return failed


def call(command: list[str | Path], environment: dict[str, str]) -> int:
    """Run a program to its end, within the limit; a Ctrl-C gives it time to end by itself."""
    process = subprocess.Popen(command, env=environment, cwd=PROJECT)
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        print(f"=== not done after {LIMIT} s, ended", flush=True)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        return TIMED_OUT
    except KeyboardInterrupt as interrupt:
        # A terminal's Ctrl-C has reached pytest too; a second would cut its clearing up short.
        if isinstance(interrupt, Terminated):
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        raise
    finally:
        if process.poll() is None:
            process.kill()


@contextlib.contextmanager
def shared_servers(*, postgres: bool) -> Iterator[tuple[str | None, str]]:
    """Servers for the whole run: PostgreSQL's URL, or None and why there is none."""
    with contextlib.ExitStack() as servers:
        url, problem = os.environ.get("DATABASE_URL", ""), ""
        if not url.startswith(("postgres://", "postgresql://")):
            url = ""
        if postgres and not url:
            try:
                url = servers.enter_context(PrivatePostgres()).url
            except ServerError as error:
                problem = str(error)
        if "REDIS_URL" not in os.environ:
            try:
                os.environ["REDIS_URL"] = servers.enter_context(PrivateRedis()).url
            except ServerError as error:
                print(f"=== The tests that need Redis are skipped: {error}")
        yield url or None, problem


def legs(options: argparse.Namespace, url: str | None, problem: str) -> Iterator[Leg]:
    """What there is to run."""
    pythons = [Path(sys.executable)]
    if options.all:
        try:
            environment = other()
            print(f"=== {environment.name} as well, in {environment.directory.name}", flush=True)
            environment.make()
            pythons.append(environment.executable)
        except EnvironmentUnavailable as error:
            print(f"=== The other Django is left out: {error}.", flush=True)
    for python in pythons:
        versions = describe(python)
        if options.only != "sqlite":
            yield Leg(f"PostgreSQL, {versions}", python, url, broken="" if url else problem)
        if options.only != "postgres":
            yield Leg(
                f"SQLite, {versions}", python, None, PARTS[: 2 if python is pythons[0] else 1]
            )


def wait_until_grown(url: str | None) -> None:
    """After a restart the owners of leases come first, also of those that tests have made up. That ends with the
    server's age, which nothing announces."""
    if url is None:
        return
    import psycopg

    age = "SELECT EXTRACT(EPOCH FROM statement_timestamp() - pg_postmaster_start_time())::float"
    with psycopg.connect(url) as connection:
        ((seconds,),) = connection.execute(age).fetchall()
    time.sleep(max(0.0, YOUNG - seconds))


def describe(python: Path) -> str:
    """Which Python and Django an environment has, in words."""
    program = "import django, platform; print(django.__version__, platform.python_version())"
    answer = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    django, version = answer.stdout.split()
    return f"Django {django}, Python {version}"


class Terminated(KeyboardInterrupt):
    """SIGTERM, which reaches this process alone."""


def terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def main() -> int:
    """Run every leg, print a table of them and, as the last line, the totals."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="also on the other supported Django")
    parser.add_argument("--only", choices=["postgres", "sqlite"], help="one database")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, terminate)
    if chromium_path() is None:
        print(
            "=== The tests that need a browser are skipped: no Chromium (apt-get install chromium)"
        )
    done: list[Leg] = []
    with shared_servers(postgres=options.only != "sqlite") as (url, problem):
        for leg in legs(options, url, problem):
            if not leg.broken:
                wait_until_grown(leg.database_url)
                leg.run(options.pytest)
            done.append(leg)
    print("\n=== Summary")
    for leg in done:
        print(leg)
    # A leg that could not run counts as a failure: the last line never looks better than it is.
    failed = sum(leg.failed or bool(leg.broken) for leg in done)
    passed, skipped = sum(leg.passed for leg in done), sum(leg.skipped for leg in done)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if all(leg.ok for leg in done) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
