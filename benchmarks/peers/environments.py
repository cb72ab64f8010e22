"""The peers' environments: made once, and used again as long as their requirements stay the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers import Peer

PATIENCE = 600.0


class Unavailable(Exception):
    """A peer cannot be installed here, or what it needs is not there."""


def make(peer: Peer, cache: Path) -> Path:
    """The interpreter of the peer's environment."""
    folder = cache / f".venv-bench-{peer.name.replace('_', '-')}"
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = "".join(f"{line}\n" for line in peer.requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        _run("no environment", sys.executable, "-m", "venv", "--clear", str(folder))
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run("cannot be installed", *pip, *peer.requirements)
        stamp.write_text(wanted)
    return python


def version(peer: Peer, python: Path) -> str:
    """Which version of the peer was installed."""
    program = f"from importlib.metadata import version; print(version({peer.package!r}))"
    return _run("is not installed", str(python), "-c", program).strip()


def _run(failing: str, *command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{failing}: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        last = (lines or done.stderr.splitlines() or ["no word why"])[-1]
        raise Unavailable(f"{failing}: {last.removeprefix('ERROR: ')}")
    return done.stdout
