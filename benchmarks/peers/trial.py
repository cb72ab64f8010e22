"""One peer's figures: what the driving process does for each, beside `benchmarks.peers.roles`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarks.peers import PROJECT, Peer
from benchmarks.peers.job import RECORD, RECORDS_VARIABLE
from benchmarks.peers.roles import WARM_UP

DATABASE = "jobqueue_bench_peer"
CALL = 5_000
PATIENCE = 120.0
GRACE = 10.0


class Failed(Exception):
    """A figure could not be had; the text says why."""


class Trial:
    """Measures one peer, a round at a time."""

    def __init__(
        self, peer: Peer, python: Path, postgres_url: str, redis_url: str, quick: bool
    ) -> None:
        self.peer = peer
        self.python = python
        self.postgres_url = postgres_url
        self.redis_url = redis_url
        self.scale = 0.1 if quick else 1.0

    def measures(self) -> dict[str, Callable[[], dict[str, float]]]:
        """The figures that there are of this peer, and how to measure each."""
        found = {"enqueue": self.enqueue, "bulk": self.bulk}
        if not self.peer.bulk:
            del found["bulk"]
        return found | {"drain": self.drain, "pick-up": self.pick_up}

    def prepare(self) -> None:
        """Try whether the peer can be started at all."""
        with self._place():
            pass

    def enqueue(self) -> dict[str, float]:
        """Jobs a second, one ordinary call after the other."""
        jobs = int(2_000 * self.scale)
        with self._place() as place:
            return {"enqueue": jobs / self._play(place, "enqueue", jobs)[0]}

    def bulk(self) -> dict[str, float]:
        """Jobs a second by the bulk call."""
        jobs = int(20_000 * self.scale)
        with self._place() as place:
            return {"bulk": jobs / self._play(place, "bulk", jobs, CALL)[0]}

    def drain(self) -> dict[str, float]:
        """Jobs a second from the first start to the last, with everything queued beforehand."""
        jobs = int(self.peer.drained * self.scale)
        with self._place() as place:
            if self.peer.bulk:
                self._play(place, "bulk", jobs - 1, CALL)
            else:
                self._play(place, "enqueue", jobs - WARM_UP)
            self._vacuum()
            with self._workers(place) as workers:
                workers.await_records(jobs)
                time.sleep(0.5)
            entries = workers.records()
        counts = Counter(number for number, *_ in entries)
        if counts.keys() != set(range(jobs)) or len(entries) != jobs:
            raise Failed(f"{len(counts)} of {jobs} jobs ran, in {len(entries)} attempts")
        moments = [at for _, _, at, _ in entries]
        return {"drain": (jobs - 1) / ((max(moments) - min(moments)) / 1e9)}

    def pick_up(self) -> dict[str, float]:
        """Milliseconds from the start of the enqueue call to the start of the function."""
        jobs = int(150 * self.scale) + WARM_UP
        with self._place() as place, self._workers(place) as workers:
            sent = self._play(place, "paced", jobs)
            workers.await_records(jobs + 1)
            picked = {number: at for number, _, at, _ in workers.records()}
        times = sorted((picked[number] - at) / 1e6 for number, at in sent[WARM_UP:])
        return {"p50": statistics.median(times), "p99": times[int(len(times) * 0.99)]}

    @contextlib.contextmanager
    def _place(self) -> Iterator[dict[str, str]]:
        """The environment variables of a figure: an empty database and Redis, prepared."""
        with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as folder:
            place = os.environ | {
                "PYTHONPATH": str(PROJECT),
                "REDIS_URL": self.redis_url,
                RECORDS_VARIABLE: str(Path(folder) / "records"),
            }
            if self.postgres_url:
                address = urlsplit(self.postgres_url)._replace(path=f"/{DATABASE}")
                place["DATABASE_URL"] = address.geturl()
                self._execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
                self._execute(f"CREATE DATABASE {DATABASE}")
            try:
                with self._redis():
                    self._play(place, "prepare")
                    yield place
            finally:
                if self.postgres_url:
                    self._execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")

    @contextlib.contextmanager
    def _redis(self) -> Iterator[None]:
        if self.peer.server != "redis":
            yield
            return
        import redis

        with redis.Redis.from_url(self.redis_url) as client:
            try:
                found = client.dbsize()
            except redis.RedisError as error:
                raise Failed(f"Redis: {error}") from None
            if found:
                raise Failed("the Redis is not empty")
            try:
                yield
            finally:
                client.flushdb()

    def _execute(self, statement: str, database: str = "") -> None:
        import psycopg

        address = urlsplit(self.postgres_url)
        url = address._replace(path=f"/{database}").geturl() if database else self.postgres_url
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(statement.encode())
        except psycopg.Error as error:
            raise Failed(f"PostgreSQL: {_last_line(str(error))}") from None

    def _vacuum(self) -> None:
        """What autovacuum would do in its own time."""
        if self.peer.server == "postgres":
            self._execute("VACUUM ANALYZE", DATABASE)

    def _command(self, role: str, *numbers: int) -> list[str]:
        command = [str(self.python), "-m", "benchmarks.peers.roles", self.peer.name, role]
        return [*command, *map(str, numbers)]

    def _play(self, place: dict[str, str], role: str, *numbers: int) -> list[Any]:
        """Play a role in the peer's environment, and return its answer."""
        try:
            done = subprocess.run(
                self._command(role, *numbers),
                cwd=PROJECT,
                env=place,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{role} took more than {PATIENCE:.0f} s") from None
        if done.returncode:
            raise Failed(f"{role}: {_last_line(done.stderr)}")
        answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextlib.contextmanager
    def _workers(self, place: dict[str, str]) -> Iterator[_Workers]:
        with tempfile.TemporaryFile("w+") as words, _Workers(place, words) as workers:
            for _ in range(self.peer.workers):
                workers.start(self._command("work"))
            yield workers


class _Workers:
    """The worker processes of one figure, each the head of a session of its own."""

    def __init__(self, place: dict[str, str], words: IO[str]) -> None:
        self.place = place
        self.words = words
        self.path = Path(place[RECORDS_VARIABLE])
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str]) -> None:
        # The end of its standard input ends the worker, should this process be killed.
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=self.place,
            stdin=subprocess.PIPE,
            stdout=self.words,
            stderr=self.words,
            start_new_session=True,
        )
        self.started.append(process)

    def records(self) -> list[tuple[int, int, int, int]]:
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        return list(RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))

    def await_records(self, jobs: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.path.exists() or self.path.stat().st_size < jobs * RECORD.size:
            if any(process.poll() is not None for process in self.started):
                self.words.seek(0)
                raise Failed(f"a worker ended: {_last_line(self.words.read())}")
            if time.monotonic() > deadline:
                ran = len(self.records())
                raise Failed(f"{ran} of {jobs} jobs ran within {PATIENCE:.0f} s")
            time.sleep(0.05)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers: asked first, then, with whatever children they left, killed."""
        for process in self.started:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no word why"
