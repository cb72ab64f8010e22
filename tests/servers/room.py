"""The room: the one temporary directory of a test run, where servers and SQLite files live.

The first process that asks makes it, tells its children where it is (`JOBQUEUE_TEST_DIR`) and
starts the guard: a process of its own that ends every server in the room and removes it as soon as
that first process has gone, however it went.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLE = "JOBQUEUE_TEST_DIR"
MEMORY = "/dev/shm"
ENOUGH_MEMORY = 4 * 2**30  # bytes; a run takes a tenth of it
USER_VARIABLE = "JOBQUEUE_TEST_SERVER_USER"


def room() -> Path:
    """The directory of this test run; made when there is none yet."""
    known = os.environ.get(VARIABLE)
    if known and Path(known).is_dir():
        return Path(known)
    return _open_room()


def server_user() -> pwd.struct_passwd | None:
    """Whom servers run as: None for ourselves, and as root an unprivileged user.

    PostgreSQL refuses to run as root. `JOBQUEUE_TEST_SERVER_USER` names another than `nobody`.
    """
    if os.geteuid() != 0:
        return None
    name = os.environ.get(USER_VARIABLE, "nobody")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise LookupError(
            f"there is no user {name!r} to run PostgreSQL as; name one in {USER_VARIABLE}"
        ) from None


def within_reach(name: str, fill: Callable[[Path], None]) -> Path:
    """The directory `name` of the room, filled once by `fill`, whoever comes first."""
    wanted = room() / name
    if not wanted.exists():
        # Filled beside and moved into place: two test processes may both be the first.
        ours = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=room()))
        ours.chmod(0o755)
        fill(ours)
        try:
            ours.rename(wanted)
        except OSError:
            if not wanted.exists():
                raise
            shutil.rmtree(ours)
    return wanted


def _open_room() -> Path:
    path = _make_directory()
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), str(path)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the terminal is not for the guard
        cwd="/",
    )
    owner = os.getpid()

    def close() -> None:
        if os.getpid() == owner and guard.stdin is not None:
            guard.stdin.close()
            guard.wait()
            os.environ.pop(VARIABLE, None)

    atexit.register(close)
    os.environ[VARIABLE] = str(path)
    return path


def _parents() -> Iterator[str]:
    """Where the room may be, the best place first."""
    # In memory a private server is made in a sixth of the time; `TMPDIR` is taken at its word.
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        status = os.statvfs(MEMORY)
        if status.f_bavail * status.f_frsize >= ENOUGH_MEMORY:
            yield MEMORY
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if os.access(parent, os.W_OK):
            yield parent


def _make_directory() -> Path:
    """A new directory that the servers' user can reach and run programs in."""
    user = server_user()
    tried = []
    for parent in _parents():
        # Resolved, since the guard compares it with the command lines of processes.
        path = Path(tempfile.mkdtemp(prefix="jobqueue-tests-", dir=parent)).resolve()
        if user is None:
            return path
        path.chmod(0o711)
        probe = path / "probe"
        probe.write_text("#!/bin/sh\n")
        probe.chmod(0o755)
        try:
            subprocess.run(
                [probe], user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(path)
            tried.append(f"{parent}: {error}")
            continue
        probe.unlink()
        return path
    raise OSError(
        f"no temporary directory in which {user.pw_name if user else 'we'} may run a program: "
        + "; ".join(tried)
    )
