"""The fault run can fail: each breakage of a copy of the queue is found, and the whole copy shows nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import django
import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent

pytestmark = [
    pytest.mark.processes,
    pytest.mark.postgres,
    pytest.mark.timeout(240),
    pytest.mark.skipif(django.VERSION >= (6, 0), reason="broken once, on Django 5.2"),
]


@dataclass(frozen=True)
class Breakage:
    """What is done to the copy (file, what stands there, what takes its place), in which narrow run that must show,
    and a word of what the run must say."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    focus: str
    said: str


BREAKAGES = [
    Breakage(
        "a completion finds its row by id alone",
        (
            (
                "postgres/moving.py",
                """id = outcome.id AND attempt = outcome.attempt
            AND lease_owner = outcome.owner AND status = 'processing'""",
                "id = outcome.id",
            ),
        ),
        "zombie",
        "was completed by",
    ),
    Breakage(
        "a failure finds its row by id alone",
        (
            (
                "lifecycle/settling.py",
                "    return job.lease_owner == attempt.owner and job.attempt == attempt.attempt",
                "    return True",
            ),
            (
                "lifecycle/settling.py",
                """        pk=attempt.id,
        attempt=attempt.attempt,
        lease_owner=attempt.owner,
        status=Status.PROCESSING,
    )
    return fenced""",
                """        pk=attempt.id,
    )
    return fenced""",
            ),
        ),
        "zombie",
        "VIOLATION",
    ),
    Breakage(
        "the failure path forgets to look for a cancellation",
        (
            (
                "lifecycle/settling.py",
                "            if job.status == Status.CANCELLED:\n                _let_go",
                "            if False:\n                _let_go",
            ),
            (
                "lifecycle/settling.py",
                "        lease_owner=attempt.owner,\n        status=Status.PROCESSING,\n    )\n    return",
                "        lease_owner=attempt.owner,\n    )\n    return",
            ),
        ),
        "cancel",
        "went from cancelled to",
    ),
    Breakage(
        "recovery reads without a lock and writes without a guard",
        (
            (
                "lifecycle/recovering.py",
                "        rows.select_for_update(skip_locked=not wait, no_key=True)\n        .order_by",
                "        rows.order_by",
            ),
            (
                "lifecycle/recovering.py",
                "pk=job.pk, attempt=job.attempt, lease_owner=job.lease_owner, status=job.status",
                "pk=job.pk",
            ),
        ),
        "recovery",
        "VIOLATION: job",
    ),
    Breakage(
        "recovery counts the attempt once more",
        (
            (
                "lifecycle/recovering.py",
                "        changes, level = scheduled(now, delay, error), JobLog.Level.WARNING",
                "        changes, level = scheduled(now, delay, error), JobLog.Level.WARNING\n"
                '        changes["attempt"] = min(job.attempt + 1, job.max_attempts - 1)',
            ),
        ),
        "recovery",
        "counted",
    ),
    Breakage(
        "what was lost is not written to the log",
        (("lifecycle/recovering.py", "            lines.append(line)\n", ""),),
        "recovery",
        "the log says nothing",
    ),
    Breakage(
        "what is given back is spent",
        (("lifecycle/settling.py", '"run_after": now} | given_back(job)', '"run_after": now}'),),
        "release",
        "were given back",
    ),
    Breakage(
        "an atomic task's writes commit by themselves",
        (
            (
                "lifecycle/settling.py",
                "    with transaction.atomic(using):\n        yield complete",
                "    yield complete",
            ),
        ),
        "atomic",
        "effects",
    ),
    Breakage(
        "a job that kills its process is given back",
        (
            (
                "supervisor.py",
                "Repair(child, reason, not child.killed,",
                "Repair(child, reason, False,",
            ),
        ),
        "poison",
        "killed its process and ended as released",
    ),
    Breakage(
        "heartbeats extend nothing",
        (
            (
                "lifecycle/claiming.py",
                "        _extend(using, owner, beat.held, now + timedelta(seconds=options.lease))\n",
                "",
            ),
        ),
        "calm",
        "was taken from a healthy worker",
    ),
    Breakage(
        "nobody is told of new jobs",
        (
            ("dispatch.py", "    if ready and (connection", "    if not ready and (connection"),
            ("dispatch.py", "    if names:\n", "    if not names:\n"),
        ),
        "calm",
        "jobs of an idle site waited",
    ),
    Breakage(
        "two workers may claim a job",
        (("postgres/moving.py", '    FOR NO KEY UPDATE SKIP LOCKED"""', '"""'),),
        "calm",
        "VIOLATION: job",
    ),
]


#: Tries, each with a plan of its own, in which a breakage must show: some need two to come at the same moment.
SEEDS = (1, 2, 3)


def run(folder: Path, focus: str, *arguments: str, seed: int = 1) -> tuple[int, str]:
    """A short narrow run of the copy; how many violations it found, and all it said."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("DATABASE_URL", None)
    narrow = ["--focus", focus] if focus else ["--seconds", "10"]
    command = ["tests.chaos", *narrow, "--seed", str(seed), *arguments]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    last = re.search(
        r"^chaos: (\d+) jobs, .* (\d+) violations, seed \d+$", done.stdout, re.MULTILINE
    )
    assert last is not None, done.stdout
    assert int(last[1]) > 20, f"too few jobs to prove anything\n{done.stdout}"
    assert (done.returncode != 0) == (last[2] != "0"), done.stdout
    return int(last[2]), done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the queue and its tests, to be broken."""
    for name in ("jobqueue", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=ignored)
    return tmp_path


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
def test_a_breakage_is_found(breakage: Breakage, copy: Path) -> None:
    for name, old, new in breakage.edits:
        path = copy / "jobqueue" / name
        text = path.read_text()
        assert old in text, f"{name} has changed: bring the breakage up to date"
        path.write_text(text.replace(old, new))
    for seed in SEEDS:
        violations, said = run(copy, breakage.focus, "--no-redis", seed=seed)
        if violations:
            break
    assert violations, said
    assert breakage.said in said, said


@pytest.mark.parametrize("focus", ["", "calm", "recovery", "zombie"])
def test_the_whole_queue_shows_nothing(focus: str, copy: Path) -> None:
    violations, said = run(copy, focus)
    assert not violations, said
