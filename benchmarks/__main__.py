"""`make bench`: measure, print tables, and write benchmarks/RESULTS.md and a chart.

    python -m benchmarks [--rounds 3] [--quick] [--only postgres,redis,sqlite,loads,sleepers,peers]
        [--no-write] [--finished 1000000] [--peers pgqueuer,huey]

On a private PostgreSQL with fsync on (or the one in DATABASE_URL), there without and with a private Redis
(or the one in REDIS_URL), then with tables that are not empty and with many jobs that wait; then other queues,
then SQLite.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.chart import Bar, draw

HERE = Path(__file__).resolve().parent


PARTS = ("postgres", "redis", "sqlite", "loads", "sleepers", "peers")


def main() -> None:
    """Measure on each database, in a process each, and gather what they print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each figure (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs: a smoke test")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument(
        "--finished",
        type=int,
        default=1_000_000,
        help="finished rows in the table of that load (default: 1,000,000)",
    )
    parser.add_argument(
        "--peers", type=lambda text: text.split(","), help="some of the other queues (default: all)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=HERE.parent,
        help="folder for the environments of the other queues (default: the project's)",
    )
    parser.add_argument("--measure", metavar="TITLE", help=argparse.SUPPRESS)
    parser.add_argument("--load", metavar="TITLE", help=argparse.SUPPRESS)
    parser.add_argument("--sleepers", metavar="TITLE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.measure:
        measure(options.measure, options.rounds, options.quick)
    elif options.load:
        measure_loads(options.load, options.quick, options.finished)
    elif options.sleepers:
        measure_sleepers(options.sleepers, options.quick)
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    """Everything that was asked for, each part in a process of its own."""
    # On a disk: in memory fsync would cost nothing.
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    sections = [heading(options.rounds, options.quick)]
    bars: list[Bar] = []
    descriptor, name = tempfile.mkstemp(prefix="jobqueue-bench-")
    os.close(descriptor)
    values = Path(name)
    os.environ["JOBQUEUE_BENCH_VALUES"] = name
    same = ["--rounds", str(options.rounds), *(["--quick"] if options.quick else [])]
    same += ["--finished", str(options.finished)]
    if set(options.only) - {"sqlite", "peers"}:
        with private_postgres() as url, private_redis() as redis_url:
            if "postgres" in options.only:
                sections.append(in_process(["--measure", "PostgreSQL", *same], url))
            if "redis" in options.only and redis_url:
                title = "PostgreSQL and Redis"
                sections.append(in_process(["--measure", title, *same], url, redis_url))
            if "loads" in options.only:
                sections.append(in_process(["--load", "PostgreSQL", *same], url))
                if redis_url:
                    title = "PostgreSQL and Redis"
                    sections.append(in_process(["--load", title, *same], url, redis_url))
            if "sleepers" in options.only:
                sections.append(in_process(["--sleepers", "PostgreSQL", *same], url))
        if "peers" in options.only:
            # A Redis of their own: they want it empty, and ours has left its keys in that one.
            with private_postgres() as url, private_redis() as redis_url:
                if redis_url:
                    section, more = measure_peers(url, redis_url, options)
                    sections.append(section)
                    bars += more
    if "sqlite" in options.only:
        with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as folder:
            url = f"sqlite:///{folder}/bench.sqlite3"
            sections.append(in_process(["--measure", "SQLite", *same], url))
    bars += [
        Bar(f"{OURS[title]}, {kind}", value, ours=True)
        for title, figures in json.loads(f"[{values.read_text().rstrip(',')}]")
        for kind, value in (("async", figures["async"]), ("sync", figures["sync"]))
        if title in OURS
    ]
    values.unlink()
    text = "\n".join([*sections, (HERE / "NOTES.md").read_text()])
    print("\n" + text)
    if not options.no_write and not options.quick:
        (HERE / "RESULTS.md").write_text(text)
        if bars:
            title = "No-op jobs drained a second, fsync on (median)"
            (HERE / "drain.svg").write_text(draw(title, bars))
        print(f"Written to {HERE / 'RESULTS.md'}.")


def measure_peers(url: str, redis_url: str, options: argparse.Namespace) -> tuple[str, list[Bar]]:
    """Other queues on the same servers, as a section and as bars of the chart."""
    from benchmarks import peers
    from benchmarks.peers.__main__ import table

    found = peers.measure(
        options.peers or list(peers.PEERS),
        url,
        redis_url,
        options.rounds,
        cache=options.cache,
        quick=options.quick,
    )
    bars = [Bar(each.name.replace("_", "-"), each.drain) for each in found if each.drain]
    return f"## Other queues, on the same servers\n\n{table(found)}\n", bars


@contextmanager
def private_postgres() -> Iterator[str]:
    """The URL of a PostgreSQL: the one in DATABASE_URL, else one of our own, on a disk."""
    if (url := os.environ.get("DATABASE_URL", "")).startswith("postgres"):
        yield url
        return
    from tests.servers import PrivatePostgres

    with PrivatePostgres(
        fsync="on", full_page_writes="on", shared_buffers="256MB", max_wal_size="1GB"
    ) as server:
        yield server.url


@contextmanager
def private_redis() -> Iterator[str | None]:
    """The URL of a Redis that keeps a log on disk, as it would in earnest; None without one."""
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    from tests.servers import PrivateRedis, ServerUnavailable

    try:
        server = PrivateRedis(appendonly="yes", appendfsync="everysec")
    except ServerUnavailable as error:
        print(f"Without Redis: {error}", file=sys.stderr)
        yield None
        return
    with server:
        yield server.url


def in_process(arguments: list[str], url: str, redis_url: str = "") -> str:
    """Measure in a process of its own, whose Django knows these servers."""
    environment = os.environ | {
        "DATABASE_URL": url,
        "JOBQUEUE_BENCH_REDIS": redis_url,
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "PYTHONPATH": str(HERE.parent),
    }
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def measure_loads(title: str, quick: bool, finished: int) -> None:
    """What the drain of async jobs comes to when the table is not empty, as a section."""
    import django

    django.setup()
    from django.core.management import call_command

    from benchmarks import figures, loads

    call_command("migrate", verbosity=0)
    url = os.environ["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
    scale = 0.1 if quick else 1.0
    print(f"## {title}, when the table is not empty\n")
    print("Async no-op jobs, 2 processes x 100 slots, one measurement each.\n")
    print("| load | measured | wanted |")
    print("|---|---|---|")

    def line(load: str, value: str, wanted: str) -> None:
        print(f"| {load} | {value} | {wanted} |", flush=True)
        print(f"{title}: {load}: {value}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as folder:
        records = Path(folder) / "records"
        rates = [loads.plain_rate(records) for _ in range(3)]
        plain = statistics.median(rates)
        line("none: 20,000 jobs alone", f"{plain:,.0f} jobs/s", "")
        jobs = int(300_000 * scale)
        part = loads.under_a_snapshot(url, records, jobs)
        load = f"a snapshot held open, {jobs:,} jobs: the last 10,000 against the first"
        line(load, f"{part:.0%}", "80 %")
        rows = int(finished * scale)
        part = loads.among_finished(url, records, plain, rows)
        line(f"{rows:,} finished rows", f"{part:.0%}", "90 %")
        rows = int(1_000_000 * scale)
        part = loads.among_queued(url, records, plain, rows)
        line(f"{rows:,} queued", f"{part:.0%}", "85 %")
        part = loads.among_later(url, records, int(100_000 * scale))
        line("2,000 ready among 100,000 due tomorrow", f"{part:.0%}", "90 %")
        line(
            "idle memory, supervisor and 2 workers", f"{loads.idle_memory(records):.0f} MB", "60 MB"
        )
        figures.empty()
    print()


def measure_sleepers(title: str, quick: bool) -> None:
    """How a steady load of jobs that mostly wait and often fail is kept up with, as a section."""
    import django

    django.setup()
    from django.core.management import call_command

    from benchmarks import figures, loads

    call_command("migrate", verbosity=0)
    seconds = 48.0 if quick else 480.0
    print(f"{title}: {seconds:.0f} s of sleepers ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as folder:
        found = loads.sleepers(Path(folder) / "records", seconds)
    figures.empty()
    print(f"## {title}, jobs that wait\n")
    print(
        f"100 jobs a second for {seconds:.0f} s, to 2 processes x 250 slots. 7 in 10 wait for 1 to 5 s, "
        "fail 3 in 10 times, and are\ntried again; 1 in 10 is urgent and does nothing.\n"
    )
    print("| figure | measured | wanted |")
    print("|---|---|---|")
    print(f"| jobs | {found.jobs:,} | |")
    print(f"| deepest queue | {found.deepest} | 300 at most |")
    print(f"| open at the end | {found.open} | 0 |")
    print(f"| 95 % of the {found.urgent:,} urgent jobs done in | {found.p95:.2f} s | 12 s |")
    print()


#: What ours are called in the chart.
OURS = {"PostgreSQL": "jobqueue", "PostgreSQL and Redis": "jobqueue with Redis"}

#: What we are after.
WANTED = {
    "PostgreSQL": {
        "one": "85 % of the floor",
        "bulk": "60,000; 35 % of the floor",
        "sync": "1.1 x the fastest on Redis",
        "async": "1.1 x the fastest of all",
        "p50": "3.4",
        "p99": "6",
    },
    "PostgreSQL and Redis": {"one": "75 % of the floor", "p50": "1.6", "p99": "3.3"},
}


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
        "one": Figure("enqueue, one by one", "jobs/s"),
        "bulk": Figure("enqueue_many", "jobs/s"),
        "sync": Figure("drain, sync no-op, 2 processes x 16 slots", "jobs/s"),
        "async": Figure("drain, async no-op, 2 processes x 100 slots", "jobs/s"),
        "p50": Figure("pick-up p50, 2 idle workers", "ms"),
        "p99": Figure("pick-up p99", "ms"),
    }
    for key, wanted in WANTED.get(title, {}).items():
        lines[key].wanted = wanted
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
    with Path(os.environ["JOBQUEUE_BENCH_VALUES"]).open("a") as values:
        medians = {key: line.median for key, line in lines.items()}
        values.write(json.dumps([title, medians]) + ",")
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
