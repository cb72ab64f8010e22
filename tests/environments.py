"""The second environment of a full test run: the other supported Django, on a Python that has it.

Python 3.11 gets Django 5.2, so the other is Django 6.1, on a Python 3.12 or later if one is found.
A newer Python gets Django 6.1, so the other is Django 5.2 with the backport, on the same Python.
"""

from __future__ import annotations

import glob
import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


class EnvironmentUnavailable(Exception):
    """The environment cannot be made here; the text says what is missing."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment: its directory, and what is installed there besides the project."""

    name: str
    directory: Path
    python: str
    extras: str
    django: str

    @property
    def executable(self) -> Path:
        return self.directory / "bin" / "python"

    def make(self) -> None:
        """Make it, unless it is there and no older than pyproject.toml."""
        stamp = self.directory / ".ready"
        wanted = PROJECT / "pyproject.toml"
        if stamp.exists() and stamp.stat().st_mtime > wanted.stat().st_mtime:
            return
        if not _has_pip(self.executable):
            subprocess.run([self.python, "-m", "venv", "--clear", self.directory], check=True)
        project = f"{PROJECT}[{self.extras}]"
        pip: list[str | Path] = [
            self.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, "--editable", project, self.django], check=True)
        stamp.touch()


def other() -> Environment:
    """The environment with the Django that the running one does not have."""
    if importlib.metadata.version("Django").startswith("5.2."):
        python = find_python()
        return Environment(
            "Django 6.1", PROJECT / ".venv-django61", python, "redis,test", "Django~=6.1.0"
        )
    return Environment(
        "Django 5.2",
        PROJECT / ".venv-django52",
        sys.executable,
        "backport,redis,test",
        "Django~=5.2.0",
    )


def find_python() -> str:
    """A Python 3.12 or later: on the PATH, else one of pyenv's; the newest."""
    names = ("python3.14", "python3.13", "python3.12")
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for name in names:
        found = [shutil.which(name), *sorted(glob.glob(f"{pyenv}/versions/*/bin/{name}"))]
        for path in found:
            if path and _works(path):
                return path
    raise EnvironmentUnavailable("found no Python 3.12 or later")


def _has_pip(python: Path) -> bool:
    if not python.exists():
        return False
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def _works(path: str) -> bool:
    # A pyenv shim is on the PATH for every version that is installed, and answers for few.
    program = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"
    answer = subprocess.run([path, "-c", program], capture_output=True, check=False)
    return answer.returncode == 0


def chromium_path() -> str | None:
    """The system's Chromium, if it has one."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
