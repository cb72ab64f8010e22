"""What is known of each job after a run: its row, its log, every move the database noted, every execution."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from jobqueue.models import Job, JobLog
from tests.app.models import Effect
from tests.chaos import audit, record
from tests.chaos.audit import Move
from tests.chaos.record import Line


@dataclass
class Execution:
    """One run of a body: when it began, and when and how it ended, if it lived to say so."""

    attempt: int
    owner: str
    pid: int
    began: float
    ended: float | None = None
    how: str = ""


@dataclass
class History:
    """One job. `row` is None if there were executions, or words, and no row."""

    id: UUID
    row: Any = None
    moves: list[Move] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    said: list[Line] = field(default_factory=list)
    effects: int = 0

    @property
    def kind(self) -> str:
        """Which task it is."""
        return self.row["task_path"].rpartition(".")[2] if self.row else "?"

    def run_of(self, attempt: int) -> Execution | None:
        """The execution of an attempt."""
        return next((each for each in self.executions if each.attempt == attempt), None)

    def __str__(self) -> str:
        """All of it, in the order of time."""
        entries: list[tuple[float, str]] = []
        entries += [(each.at, f"row       {each}") for each in self.moves]
        for line in self.log:
            text = f"log       {line['event']} attempt {line['attempt']} {line['worker']}: "
            entries.append((line["created_at"].timestamp(), text + line["message"][:90]))
        for run in self.executions:
            who = f"attempt {run.attempt}, pid {run.pid}, owner {run.owner}"
            entries.append((run.began, f"execution begins: {who}"))
            if run.ended is not None:
                entries.append((run.ended, f"execution ends:   {who}: {run.how}"))
        entries += [(line["at"], f"said      {json.dumps(line)}") for line in self.said]
        entries.sort(key=lambda entry: entry[0])
        first = entries[0][0] if entries else 0.0
        head = f"  job {self.id} ({self.kind}): {self.row or 'no row'}; effects: {self.effects}"
        return "\n".join([head, *(f"    {at - first:8.3f} {text}" for at, text in entries)])


@dataclass
class Calls:
    """What enqueuers said of their calls."""

    asked: dict[str, Line] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    rolled_back: Counter[str] = field(default_factory=Counter)
    times_asked: Counter[str] = field(default_factory=Counter)
    jobs: dict[str, list[tuple[str, bool]]] = field(default_factory=lambda: defaultdict(list))


class Past:
    """The whole run."""

    def __init__(self, folder: Path) -> None:
        self.lines = list(record.Reader(folder / "events").lines())
        self.jobs: dict[UUID, History] = {}
        self.calls = Calls()
        self.rows_of: dict[str, list[UUID]] = defaultdict(list)
        self.executed_calls: dict[str, list[UUID]] = defaultdict(list)
        self._read_tables()
        self._read_lines()

    def job(self, key: str | UUID) -> History:
        """The history of a job, begun if there is none yet."""
        key = key if isinstance(key, UUID) else UUID(key)
        if key not in self.jobs:
            self.jobs[key] = History(key)
        return self.jobs[key]

    def of(self, *events: str) -> list[Line]:
        """The lines about these events."""
        return [line for line in self.lines if line["event"] in events]

    def _read_tables(self) -> None:
        for row in Job.objects.values().iterator(chunk_size=5_000):
            self.job(row["id"]).row = row
            self.rows_of[row["kwargs"]["call"]].append(row["id"])
        for line in JobLog.objects.order_by("pk").values().iterator(chunk_size=5_000):
            self.job(line["job_id"]).log.append(line)
        for key, moves in audit.moves().items():
            self.job(key).moves = moves
        for key in Effect.objects.values_list("key", flat=True).iterator(chunk_size=5_000):
            self.job(key).effects += 1

    def _read_lines(self) -> None:
        for line in self.lines:
            event = line["event"]
            if event == "begin":
                fence = (line["attempt"], line["owner"], line["pid"])
                self.job(line["job"]).executions.append(Execution(*fence, line["at"]))
                self.executed_calls[line["call"]].append(UUID(line["job"]))
            elif event == "end":
                self._end(line)
            elif event == "asked":
                for call in line["calls"]:
                    self.calls.asked[call] = line
                    self.calls.times_asked[call] += 1
            elif event == "committed":
                self.calls.committed.update(line["calls"])
                for call, job in zip(line["calls"], line["jobs"], strict=True):
                    self.calls.jobs[call].append((job[0], job[1]))
            elif event == "rolled_back":
                self.calls.rolled_back.update(line["calls"])
            elif event.startswith(("cancel_", "requeue_")) or event in ("crashed", "finished"):
                self.job(line["job"]).said.append(line)

    def _end(self, line: Line) -> None:
        for run in reversed(self.job(line["job"]).executions):
            if (run.attempt, run.pid) == (line["attempt"], line["pid"]) and run.ended is None:
                run.ended, run.how = line["at"], line["how"]
                return


def spans(lines: Iterable[Line], begin: str, end: str, key: str) -> list[tuple[Any, float, float]]:
    """From pairs of lines about the same thing: what, from when, until when (inf: it never ended)."""
    found: list[tuple[Any, float, float]] = []
    open_: dict[Any, float] = {}
    for line in lines:
        whats = line[key] if isinstance(line[key], list) else [line[key]]
        for what in whats:
            if line["event"] == begin:
                open_.setdefault(what, line["at"])
            elif line["event"] == end and what in open_:
                found.append((what, open_.pop(what), line["at"]))
    return found + [(what, since, float("inf")) for what, since in open_.items()]
