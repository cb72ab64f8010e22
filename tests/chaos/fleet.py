"""The processes of a run: started, replaced when a fault has ended them, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos import record
from tests.chaos.killpoints import children
from tests.chaos.plan import Plan
from tests.chaos.process import CLOCK

PROJECT = Path(__file__).resolve().parent.parent.parent
#: Seconds for which a process that stopped itself at a place stays so: beyond the lease.
STOPPED_FOR = 4.5


@dataclass
class Member:
    """One process that was started: a `runworker`, an enqueuer, or a `reconcile`."""

    kind: str
    number: int
    process: subprocess.Popen[bytes]
    asked: str = ""
    """Which fault was to end it, if one was."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def workers(self) -> list[int]:
        """The worker processes of a `runworker`."""
        return children(self.pid)

    @property
    def runs(self) -> bool:
        return self.process.poll() is None


class Fleet:
    """All of them."""

    def __init__(self, plan: Plan, folder: Path, variables: dict[str, str]) -> None:
        self._plan = plan
        self.folder = folder
        self._variables = variables
        self.members: list[Member] = []
        self._lives = 0
        self._reader = record.Reader(folder / "events")
        self._go_on: dict[int, float] = {}
        self.kills = 0
        self.self_kills: set[int] = set()

    def environment(self, **more: str) -> dict[str, str]:
        """What every process of the run is given."""
        return {**os.environ, **self._variables, "PYTHONPATH": str(PROJECT), **more}

    def of(self, kind: str) -> list[Member]:
        """Those of a kind that run."""
        return [each for each in self.members if each.kind == kind and each.runs]

    # Starting

    def start_group(self, number: int, **options: Any) -> Member:
        """Start a `runworker`."""
        processes, slots, late = self._plan.groups[number]
        arguments = ["runworker", "--processes", str(processes), "--concurrency", str(slots)]
        return self._start(
            "group",
            number,
            ["tests.chaos.process", *arguments],
            **{CLOCK: str(late), "JOBQUEUE_TEST_OPTIONS": json.dumps(self._plan.options | options)},
        )

    def start_enqueuer(self, number: int) -> Member:
        """Start one that makes jobs; the last has a wrong clock, too."""
        kinds = json.dumps(self._plan.kinds)
        seed = f"{self._plan.seed} {self._lives}"
        arguments = [str(number), seed, str(self._plan.rate), kinds]
        late = "-3600" if number == self._plan.enqueuers - 1 else "0"
        return self._start(
            "enqueuer", number, ["tests.chaos.enqueuer", *arguments], **{CLOCK: late}
        )

    def start_reconcile(self, *arguments: str) -> Member:
        """Start a `reconcile`."""
        return self._start("reconcile", 0, ["tests.chaos.process", "reconcile", *arguments])

    def _start(self, kind: str, number: int, module: list[str], **variables: str) -> Member:
        self._lives += 1
        with (self.folder / f"{kind}-{self._lives}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *module],
                env=self.environment(**variables),
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        member = Member(kind, number, process)
        record.say("started", kind=kind, number=number, process=process.pid)
        self.members.append(member)
        return member

    def start_all(self) -> None:
        """Every `runworker` and every enqueuer of the plan."""
        for number in range(len(self._plan.groups)):
            self.start_group(number)
        for number in range(self._plan.enqueuers):
            self.start_enqueuer(number)

    # Ending and pausing

    def kill(self, *pids: int, member: Member | None = None) -> None:
        """SIGKILL these processes; `member` is the one of them that was started here."""
        orphans = [child for pid in pids for child in children(pid)]
        record.say("kill", pids=pids, children=orphans)
        if member is not None:
            member.asked = "kill"
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    def stop(self, pids: list[int], seconds: float) -> None:
        """SIGSTOP these processes; they go on after some seconds."""
        record.say("stop", pids=pids, seconds=seconds)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._go_on[pid] = time.monotonic() + seconds

    def terminate(self, member: Member) -> None:
        """SIGTERM one."""
        record.say("terminate", pids=[member.pid])
        member.asked = "terminate"
        with contextlib.suppress(ProcessLookupError):
            member.process.send_signal(signal.SIGTERM)

    def tend(self, *, replace: Collection[str] = ("group", "enqueuer")) -> None:
        """Let go on who was stopped for long enough, and put others in the place of who has ended."""
        now = time.monotonic()
        for line in self._reader.lines("stopped", "killed"):
            if line["event"] == "stopped":
                self._go_on[line["pid"]] = now + STOPPED_FOR
            else:
                self.self_kills.add(line["pid"])
        for pid in [pid for pid, at in self._go_on.items() if now >= at]:
            self._continue(pid)
        for member in [each for each in self.members if not each.runs]:
            self.members.remove(member)
            code = member.process.returncode
            record.say("exit", kind=member.kind, process=member.pid, code=code, asked=member.asked)
            if member.kind not in replace:
                continue
            if member.kind == "group":
                self.start_group(member.number)
            else:
                self.start_enqueuer(member.number)

    def _continue(self, pid: int) -> None:
        self._go_on.pop(pid, None)
        record.say("go_on", pids=[pid])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def continue_all(self) -> None:
        """Nobody stays stopped."""
        for pid in list(self._go_on):
            self._continue(pid)

    def end_all(self) -> None:
        """SIGKILL whatever is left: the run is over or was broken off."""
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(member.pid, signal.SIGKILL)
            member.process.wait()
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self) -> list[int]:
        """The processes of this run that live, whoever is their parent now."""
        mark = f"{record.VARIABLE}={self.folder}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                ours = mark in (path / "environ").read_bytes().split(b"\0")
                if ours and state not in "ZX" and int(path.name) != os.getpid():
                    found.append(int(path.name))
        return found
