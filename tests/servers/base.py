"""What the private servers have in common: a directory, a port, a process, and how these end."""

from __future__ import annotations

import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from .room import room, server_user

HOST = "127.0.0.1"
PATIENCE = 30.0  # seconds for a start or a stop; both take well under one on an idle machine


class ServerError(Exception):
    """A private server did not do what it was told; the text ends with its log."""


class ServerUnavailable(ServerError):
    """This machine has no program for such a server; the text says what was looked for."""


class PrivateServer(ABC):
    """One server on the loopback interface, with a directory and a port of its own.

    The port stays the same from the first start to `close()`, also while the server is down.
    """

    kind: ClassVar[str]
    busy_port: ClassVar[tuple[str, ...]]
    """What the log says when another process has the port."""

    def __init__(self) -> None:
        self.user = server_user()
        self.port = 0
        self.password = secrets.token_hex(8)
        self.process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=room()))
        self.give_to_user(self.directory)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find the server, password included."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments; the guard looks for the directory among them."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the process that was started answers clients."""

    @property
    def log(self) -> str:
        """All that the server has said since it was made."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> Self:
        """Start the server and return once it answers."""
        assert not self.running, f"{self.kind} runs already"
        fresh = not self.port
        deadline = time.monotonic() + PATIENCE
        while True:
            if fresh:
                self.port = free_port()
            said = len(self.log)
            self._spawn()
            if self._await_ready(deadline):
                return self
            words = self.log[said:]
            again = self.may_try_again(words) or (fresh and any(w in words for w in self.busy_port))
            if not again or time.monotonic() > deadline:
                raise ServerError(f"{self.kind} did not start; its log:\n{words[-3000:]}")

    def may_try_again(self, words: str) -> bool:
        """Whether a start that failed with these words in the log can succeed a moment later."""
        return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tell the server to stop and wait until it has."""
        assert self.process is not None, f"{self.kind} was never started"
        self.process.send_signal(number)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise ServerError(f"{self.kind} did not stop; its log:\n{self.log[-3000:]}") from None

    def kill(self) -> None:
        """End the server by SIGKILL: no shutdown, no goodbye to clients."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """Stop the server for good and remove its directory."""
        if self.running:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def give_to_user(self, *paths: Path) -> None:
        """Hand files of ours to the user that the server runs as."""
        if self.user is not None:
            for path in paths:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def _spawn(self) -> None:
        command = self.command()
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **as_user(self.user, self.directory),
            )
        (self.directory / "server.pid").write_text(str(self.process.pid))

    def _await_ready(self, deadline: float) -> bool:
        assert self.process is not None
        while time.monotonic() < deadline:
            if self.is_ready():
                return True
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            return False
        self.kill()
        return False


def as_user(user: pwd.struct_passwd | None, directory: Path) -> dict[str, Any]:
    """How `subprocess` runs a server's program: as whom, where, and with which few variables."""
    # A session of its own: a Ctrl-C in the terminal is for the tests, which then stop the server.
    how: dict[str, Any] = {
        "cwd": directory,
        "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
        "start_new_session": True,
    }
    if user is not None:
        how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return how


def free_port() -> int:
    """A port that nobody listens on.

    From below the range that systems hand out by themselves, so that no passing connection takes it
    while the server is down. Not drawn from `random` itself, whose seed all test processes share.
    """
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerError("found no free port")
