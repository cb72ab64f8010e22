"""A private PgBouncer in front of a private PostgreSQL: it pools transactions, as most sites have it."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import ClassVar

from .base import HOST, PrivateServer, ServerUnavailable
from .postgres import USER, PrivatePostgres

PROGRAM_VARIABLE = "JOBQUEUE_TEST_PGBOUNCER"


class PrivatePgBouncer(PrivateServer):
    """A PgBouncer of one's own: each transaction of a client gets any of few connections to `postgres`."""

    kind: ClassVar[str] = "pgbouncer"
    busy_port: ClassVar[tuple[str, ...]] = ("Address already in use", "Address in use")

    def __init__(self, postgres: PrivatePostgres, *, pool_size: int = 4) -> None:
        self.program = program()
        super().__init__()
        self.postgres = postgres
        self.pool_size = pool_size

    @property
    def url(self) -> str:
        return f"postgres://{USER}:{self.postgres.password}@{HOST}:{self.port}/postgres"

    def command(self) -> list[str]:
        users = self.directory / "users.txt"
        text = f"""\
[databases]
postgres = host={HOST} port={self.postgres.port} dbname=postgres

[pgbouncer]
listen_addr = {HOST}
listen_port = {self.port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
default_pool_size = {self.pool_size}
max_client_conn = 200
"""
        path = self.directory / "pgbouncer.ini"
        for file, content in ((users, f'"{USER}" "{self.postgres.password}"\n'), (path, text)):
            file.touch(mode=0o600)
            file.write_text(content)
            self.give_to_user(file)
        return [str(self.program), str(path)]

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1):
                return self.running
        except OSError:
            return False


def program() -> Path:
    """PgBouncer's program. Raises ServerUnavailable where there is none."""
    named = os.environ.get(PROGRAM_VARIABLE)
    found = named or shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if not found:
        raise ServerUnavailable(
            f"no PgBouncer: install the system's package, or name one in {PROGRAM_VARIABLE}"
        )
    return Path(found)
