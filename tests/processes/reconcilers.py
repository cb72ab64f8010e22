"""`python -m tests.processes.reconcilers N FILE`: N processes make one pass of reconcile at one instant.

They print READY when all are there, begin when the file appears, and print what each has repaired.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import django


def one(start: Path, ready: int) -> None:
    """In a process of its own: wait for the start and make one pass."""
    from jobqueue import reconcile

    os.write(ready, b"!")
    while not start.exists():
        time.sleep(0.001)
    for finding in reconcile.sweep():
        if finding.repaired or finding.left:
            # One write a line: the processes share this output.
            os.write(1, f"{finding.kind} {finding.repaired} {len(finding.left)}\n".encode())


def main(count: int, start: Path) -> int:
    """Fork them, and say whether all ended well."""
    django.setup()
    reader, writer = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                one(start, writer)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    for _ in range(count):
        os.read(reader, 1)
    os.write(1, b"READY\n")
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
