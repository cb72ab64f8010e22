"""The guard: waits until its parent has gone, then ends the servers of a room and removes it.

Run as a program, with nothing but the standard library: `guard.py ROOM`, its standard input a pipe
whose other end the parent holds. The end of that pipe is the one sign that also a SIGKILL gives.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def command_of(pid: int) -> str:
    """The command line of a process; empty when there is none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
    answer = subprocess.run(
        ["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def end(pid: int, directory: Path) -> None:
    """End the server `pid`, if it still is the one that was started in `directory`."""
    # SIGQUIT is PostgreSQL's immediate shutdown, which frees its shared memory; SIGKILL does not.
    for number, patience in ((signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        if str(directory) not in command_of(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + patience
        while str(directory) in command_of(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def empty(room: Path) -> None:
    """End what runs in the room, then remove it."""
    for note in room.glob("*/server.pid"):
        with contextlib.suppress(ValueError, OSError):
            end(int(note.read_text()), note.parent)
    # A server's own children may write for another moment.
    for _ in range(50):
        shutil.rmtree(room, ignore_errors=True)
        if not room.exists():
            return
        time.sleep(0.1)
    print(f"could not remove {room}", file=sys.stderr)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while os.read(0, 1024):
        pass
    empty(Path(sys.argv[1]))
