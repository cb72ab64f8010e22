"""`make bench`: measure, print a table, and write benchmarks/RESULTS.md.

    python -m benchmarks [--rounds 3] [--quick] [--only postgres|sqlite] [--no-write]

On a private PostgreSQL with fsync on (or the one in DATABASE_URL), then on SQLite.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Measure on each database, in a process each, and gather what they print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each figure (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs: a smoke test")
    parser.add_argument("--only", choices=["postgres", "sqlite"])
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--measure", metavar="TITLE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.rounds, options.quick)
        return
    sections = [
        section
        for title, url in databases(options.only)
        if (section := run_in_process(title, url, options.rounds, options.quick))
    ]
    text = "\n".join([heading(options.rounds, options.quick), *sections])
    print("\n" + text)
    if not options.no_write and not options.quick:
        (HERE / "RESULTS.md").write_text(text)
        print(f"Written to {HERE / 'RESULTS.md'}.")


def databases(only: str | None) -> Iterator[tuple[str, str]]:
    """The databases to measure on, each running while it is."""
    # On a disk: in memory fsync would cost nothing.
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    with ExitStack() as stack:
        if only != "sqlite":
            url = os.environ.get("DATABASE_URL", "")
            if not url.startswith("postgres"):
                from tests.servers import PrivatePostgres

                server = PrivatePostgres(
                    fsync="on", full_page_writes="on", shared_buffers="256MB", max_wal_size="1GB"
                )
                url = stack.enter_context(server).url
            yield "PostgreSQL", url
        if only != "postgres":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jobqueue-bench-"))
            yield "SQLite", f"sqlite:///{folder}/bench.sqlite3"


def run_in_process(title: str, url: str, rounds: int, quick: bool) -> str:
    """Measure in a process of its own, whose Django knows this database."""
    environment = os.environ | {
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "PYTHONPATH": str(HERE.parent),
    }
    command = [sys.executable, "-m", "benchmarks", "--measure", title, "--rounds", str(rounds)]
    command += ["--quick"] if quick else []
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def measure(title: str, rounds: int, quick: bool) -> None:
    """All figures on the database of this process, as a section of the report."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from benchmarks import figures, floor, tasks
    from benchmarks.figures import Figure

    call_command("migrate", verbosity=0)
    url = os.environ["DATABASE_URL"]
    sqlite = connection.vendor == "sqlite"
    scale = (0.1 if quick else 1.0) * (0.25 if sqlite else 1.0)
    few, many, drained = int(2_000 * scale), int(20_000 * scale), int(20_000 * scale)
    lines = {
        "one": Figure("enqueue, one by one", "jobs/s", wanted="80 % of the floor"),
        "bulk": Figure("enqueue_many", "jobs/s"),
        "sync": Figure("drain, sync no-op, 2 processes x 16 slots", "jobs/s", wanted="3,000"),
        "async": Figure("drain, async no-op, 2 processes x 100 slots", "jobs/s", wanted="6,000"),
        "p50": Figure("pick-up p50, 2 idle workers", "ms", wanted="" if sqlite else "under 5"),
        "p99": Figure("pick-up p99", "ms"),
    }
    with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as folder:
        records = Path(folder) / "records"
        for number in range(1, rounds + 1):
            print(f"{title}: round {number} of {rounds} ...", file=sys.stderr, flush=True)
            # The floor's turn in each round comes beside ours, so that a drifting machine
            # drifts for both.
            lines["one"].values.append(figures.enqueue_one_by_one(few))
            lines["one"].floor.append(floor.insert_one_by_one(url, few))
            lines["bulk"].values.append(figures.enqueue_many_calls(many))
            lines["bulk"].floor.append(floor.copy(url, many))
            for key, task, slots in (
                ("sync", tasks.sync_noop, 16),
                ("async", tasks.async_noop, 100),
            ):
                lines[key].values.append(figures.drain(task, drained, 2, slots, records))
                lines[key].floor.append(figures.floor_drain(url, drained, 2, slots))
            times = sorted(figures.pick_up(max(20, int(200 * min(1.0, scale * 4))), records))
            lines["p50"].values.append(statistics.median(times))
            lines["p99"].values.append(times[int(len(times) * 0.99)])
    print(f"## {title} {version(connection)}\n")
    print("| figure | median | least to most | floor (median) | ratio to the floor | wanted |")
    print("|---|---|---|---|---|---|")
    for line in lines.values():
        digits = 1 if line.unit == "ms" else 0
        spread = f"{min(line.values):,.{digits}f} to {max(line.values):,.{digits}f}"
        floor_median = f"{statistics.median(line.floor):,.0f}" if line.floor else ""
        ratio = f"{line.ratio:.0%}" if line.ratio else ""
        value = f"{line.median:,.{digits}f} {line.unit}"
        print(f"| {line.name} | {value} | {spread} | {floor_median} | {ratio} | {line.wanted} |")
    print()


def version(connection: object) -> str:
    """The version of the database server or library."""
    if connection.vendor == "sqlite":  # type: ignore[attr-defined]
        import sqlite3

        return sqlite3.sqlite_version
    number = connection.pg_version  # type: ignore[attr-defined]
    return f"{number // 10000}.{number % 10000}"


def heading(rounds: int, quick: bool) -> str:
    """What was measured, on what, and how."""
    import django

    said = ", quick" if quick else ""

    return f"""# How fast it is

Measured on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), {platform.system()},
Python {platform.python_version()}, Django {django.get_version()}; medians of {rounds} rounds{said}.
fsync is on, nothing is deleted, every outcome is fenced, and each drain is checked: every job ran exactly once.

The floor has no queue library: plain driver code that inserts with a commit each, copies, or claims and
completes rows of a small table in the same batch sizes with the same number of processes. Machines
differ and are shared, so the ratios say more than the absolute figures.

- *enqueue, one by one*: an ordinary call in autocommit, one after the other, in one process.
- *enqueue_many*: calls of 5,000 jobs, the making of the calls included; the floor is COPY.
- *drain*: everything queued beforehand; (N - 1) / (last start - first start).
- *pick-up*: workers idle, a job every 50 ms; from the start of the enqueue call to the start of the function.
"""


if __name__ == "__main__":
    main()
