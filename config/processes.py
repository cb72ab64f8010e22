"""The processes that the demo starts, and how they are ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.core.management import CommandError

GRACE = 3  # seconds that running jobs get when the demo ends


class Child:
    """One process of the demo: `manage.py` with some arguments, its output in `folder`."""

    def __init__(self, folder: Path, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C reaches the demo alone, which then ends the group.
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise CommandError, with the end of its log, if the process has ended."""
        code = self.process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-15:]
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            said = f"The {self.name} process {how}. The end of {self.log}:"
            raise CommandError("\n".join([said, *lines]))

    def stop(self) -> None:
        """Ask it to end; kill what has not after the grace time and a little more."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE + 5)
        # Also what it started itself, if any is left. macOS says "not permitted" of an empty group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
