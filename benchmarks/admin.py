"""`make bench-admin`: how long the dashboard's pages take among many jobs; writes benchmarks/ADMIN.md.

    python -m benchmarks.admin [--rows 2000000] [--few] [--no-write]

On a private PostgreSQL (or the one in DATABASE_URL, whose jobs it deletes), through Django's test client: the time
on the server, the number of statements, and the slowest of them. Each page is asked for once with an empty cache
and, but for pairs of filters, twice more, of which the faster counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.__main__ import private_postgres

HERE = Path(__file__).resolve().parent

#: What a page may take, in milliseconds, and its statements.
PAGE, STATEMENT, STATEMENTS = 300, 100, 16
SEARCH = 1_000
OVERVIEW_COLD, OVERVIEW_WARM = 300, 50

#: Days over which the jobs were enqueued.
DAYS = 30

# The ids are UUIDs of version 7 whose time is the enqueueing's, and rows lie in the order of their ids.
FILL = """
INSERT INTO jobqueue_job (
    id, task_path, args, kwargs, queue_name, priority, status, run_after, enqueued_at, started_at, attempted_at,
    finished_at, attempt, given_back, max_attempts, timeout, lease_owner, lease_expires_at, worker, error)
SELECT
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n %% 4096), 3, '0')
        || 'a' || substr(md5(n::text), 1, 15))::uuid,
    'shop.tasks.task_' || n %% 200, jsonb_build_array(n),
    jsonb_build_object('order_id', n, 'customer', jsonb_build_object('id', n %% 1000, 'note', repeat('x', 100))),
    'queue_' || n %% 20, n %% 3, status,
    CASE status WHEN 'scheduled' THEN now() + n %% 100000 * interval '1 second' ELSE at END, at,
    CASE WHEN ran THEN at END, CASE WHEN ran THEN at END,
    CASE WHEN status IN ('completed', 'failed', 'cancelled') THEN at + interval '3 seconds' END,
    CASE WHEN ran OR retried THEN 1 + n %% 3 ELSE 0 END, 0, 5, 60,
    CASE WHEN status = 'processing' THEN gen_random_uuid() END,
    CASE WHEN status = 'processing' THEN now() + (n %% 3 - 1) * interval '1 hour' END,
    CASE WHEN ran OR retried THEN 'web' || n %% 50 || ':4100:0a1b2c3d' ELSE '' END,
    CASE WHEN status = 'failed' OR retried
        THEN (ARRAY['ValueError: no such order', 'ConnectionError: refused', 'TimedOut: 60 s'])[1 + n %% 3]
        ELSE '' END
FROM (
    SELECT n, at,
        CASE WHEN part < 780 THEN 'completed' WHEN part < 840 THEN 'failed' WHEN part < 870 THEN 'cancelled'
            WHEN part < 920 THEN 'queued' WHEN part < 990 OR n %% 10 > 0 THEN 'scheduled' ELSE 'processing' END
            AS status,
        part < 870 OR (part >= 990 AND n %% 10 = 0) AS ran, part BETWEEN 950 AND 989 AS retried
    FROM (
        SELECT n, n::bigint * 7919 %% 1000 AS part,
            now() - (%(rows)s - n) * (%(days)s * interval '1 day') / %(rows)s AS at
        FROM generate_series(1, %(rows)s) AS n) AS numbered) AS jobs
"""

#: Filters, one at a time and in pairs: parameters of the list's address.
FILTERS: list[dict[str, str]] = [
    *(
        {"state": key}
        for key in (
            *("scheduled", "queued", "processing", "retrying"),
            *("completed", "failed", "cancelled", "lost"),
        )
    ),
    {"queue": "queue_7"},
    {"queue": "nothing"},
    {"task": "shop.tasks.task_42"},
    {"task": "nothing"},
    {"within": "1h"},
    {"within": "7d"},
    {"from": "20", "to": "19"},
    {"attempt": "first"},
    {"attempt": "retried"},
    {"attempt": "last"},
    {"q": "shop.tasks.task_1"},
    {"q": "task:nothing*"},
    {"q": 'error:"ValueError"'},
    {"q": 'error:"KeyError"'},
    {"q": "worker:web7"},
    {"q": "key:nothing"},
    {"q": "attempt:>2"},
    {"q": "args.customer.id:42"},
    {"q": "args.order_id:-1"},
]


@dataclass
class Measured:
    """One page."""

    name: str
    cold: float
    warm: float
    statements: int
    slowest: float
    faults: list[str] = field(default_factory=list)
    note: str = ""


def main() -> None:
    """Measure in a process that knows the private server."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.admin", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="jobs (default: 2,000,000)")
    parser.add_argument("--few", action="store_true", help="a fifth of the pairs of filters")
    parser.add_argument("--no-write", action="store_true", help="leave ADMIN.md as it is")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.rows, few=options.few))
        return
    # On a disk: in memory there may be no room for so many.
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    with private_postgres() as url:
        environment = os.environ | {
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": str(HERE.parent),
        }
        command = [sys.executable, "-m", "benchmarks.admin", "--measure", f"--rows={options.rows}"]
        command += ["--few"] * options.few
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    print("\n" + done.stdout)
    if not options.no_write:
        (HERE / "ADMIN.md").write_text(done.stdout)
        print(f"Written to {HERE / 'ADMIN.md'}.")


def say(words: str) -> None:
    """To whoever waits."""
    print(words, file=sys.stderr, flush=True)


def fill(rows: int) -> None:
    """So many jobs, in all states."""
    from django.db import connection

    from jobqueue.models import Queue, Tally

    started = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobqueue_job CASCADE")
        cursor.execute("SET synchronous_commit = off")
        cursor.execute(FILL, {"rows": rows, "days": DAYS})
        # What a commit that is not yet on the disk wrote, VACUUM leaves for the next time.
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("CHECKPOINT")
        cursor.execute("VACUUM ANALYZE jobqueue_job")
        cursor.execute("SELECT now()")
        (now,) = cursor.fetchone()
    names = (f"queue_{number}" for number in range(20))
    Queue.objects.bulk_create((Queue(name=name) for name in names), ignore_conflicts=True)
    Tally.objects.all().delete()
    Tally.objects.bulk_create(
        Tally(
            span=900,
            starts_at=now,
            queue_name="queue_0",
            task_path=f"shop.tasks.task_{number}",
            completed=1,
        )
        for number in range(200)
    )
    say(f"{rows:,} jobs in {time.perf_counter() - started:.0f} s")


def measure(rows: int, *, few: bool) -> str:
    """The whole report."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.test.utils import setup_test_environment

    setup_test_environment()
    call_command("migrate", verbosity=0)
    fill(rows)
    user, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    singles = [page(client, each) for each in [{}, *FILTERS]]
    pairs_of_filters = [
        (first, second)
        for first, second in itertools.combinations(FILTERS, 2)
        if not first.keys() & second.keys()
    ]
    say(f"{len(pairs_of_filters)} pairs")
    pairs = [
        page(client, first | second, times=1)
        for first, second in pairs_of_filters[:: 5 if few else 1]
    ]
    say("deep pages")
    deep = [
        found
        for each in ({}, {"state": "failed"}, {"state": "queued"}, {"state": "scheduled"})
        if (found := deep_page(client, each)) is not None
    ]
    everywhere = [page(client, each | {"all": "1"}) for each in FILTERS if "q" in each]
    return report(rows, singles, pairs, deep, everywhere, overview(client))


def page(client: Any, params: dict[str, str], times: int = 3) -> Measured:
    """One page of the list."""
    from django.urls import reverse

    name = " ".join(f"{key}={value}" for key, value in params.items()) or "no filter"
    is_search = any(term in params.get("q", "") for term in ("args.", "kwargs."))
    return ask(
        client,
        reverse("admin:jobqueue_job_changelist"),
        dated(params),
        name,
        SEARCH if is_search else PAGE,
        SEARCH if is_search else STATEMENT,
        times,
    )


def dated(params: dict[str, str]) -> dict[str, str]:
    """With days ago made into days."""
    from datetime import timedelta

    from django.utils import timezone

    return {
        key: str((timezone.now() - timedelta(days=int(value))).date())
        if key in ("from", "to")
        else value
        for key, value in params.items()
    }


def deep_page(client: Any, params: dict[str, str]) -> Measured | None:
    """The 1,000th page, or that in the middle if there are fewer."""
    from jobqueue import clock
    from jobqueue.admin import paging
    from jobqueue.admin.listing import Listing
    from jobqueue.models import Job

    each = Listing.of(Job.objects.all(), params, see_args=True, now=clock.now("default"))
    number = min(50_000, each.matching.count() // 2)
    row = each.matching.order_by(*paging.terms(each.order))[number : number + 1].first()
    if row is None:
        return None
    cursor = paging.written(each.order, paging.place_of(each.order, row))
    found = page(client, params | {"after": cursor})
    found.name = (
        " ".join(f"{key}={value}" for key, value in params.items()) or "no filter"
    ) + f", page {number // 50:,}"
    return found


def overview(client: Any) -> list[Measured]:
    """The first page."""
    from django.urls import reverse

    address = reverse("admin:jobqueue_overview_changelist")
    found = ask(client, address, {}, "overview", OVERVIEW_COLD, STATEMENT, statements=None)
    if found.warm > OVERVIEW_WARM:
        found.faults.append(f"warm over {OVERVIEW_WARM} ms")
    return [found]


def ask(
    client: Any,
    address: str,
    params: dict[str, str],
    name: str,
    limit: float,
    statement: float,
    runs: int = 3,
    statements: int | None = STATEMENTS,
) -> Measured:
    """A page, some times, and what its log of statements says."""
    from django.core.cache import cache
    from django.db import connection, reset_queries
    from django.test.utils import CaptureQueriesContext

    cache.clear()
    times, logs = [], []
    for _ in range(runs):
        reset_queries()
        with CaptureQueriesContext(connection) as asked:
            started = time.perf_counter()
            response = client.get(address, params)
            times.append((time.perf_counter() - started) * 1000)
        logs.append(asked.captured_queries)
        assert response.status_code == 200, (address, params, response.status_code)
    cold, warm = times[0], min(times[1:] or times)
    slowest = max(float(query["time"]) for log in logs for query in log) * 1000
    found = Measured(name, cold, warm, max(map(len, logs)), slowest)
    body = response.content.decode()
    if "did not answer in 2 s" in body:
        found.note = "gives up after 2 s"
    elif "Search all" in body:
        found.note = "in a window"
    for words, bad in (
        (f"over {limit} ms", cold > limit),
        (f"a statement over {statement} ms", slowest > statement),
        (
            f"over {statements} statements",
            statements is not None and found.statements > statements,
        ),
        *((word, any(word in sql.upper() for sql in _sql(logs))) for word in BANNED),
        (
            "counts without a LIMIT",
            any(
                sql.upper().count("COUNT(*)") > sql.upper().count("LIMIT ")
                for sql in _sql(logs)
                if "jobqueue_job" in sql
            ),
        ),
    ):
        if bad:
            found.faults.append(words)
    return found


BANNED = ("OFFSET ", "DISTINCT", "UPPER(")


def _sql(logs: list[list[dict[str, str]]]) -> list[str]:
    return [query["sql"] for log in logs for query in log]


def report(
    rows: int,
    singles: list[Measured],
    pairs: list[Measured],
    deep: list[Measured],
    everywhere: list[Measured],
    first_page: list[Measured],
) -> str:
    """Tables of what was measured."""
    import django
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (server,) = cursor.fetchone()
        cursor.execute("SELECT pg_total_relation_size('jobqueue_job') / 1000000")
        (size,) = cursor.fetchone()
    slowest = sorted(pairs, key=lambda each: -each.cold)
    wrong = [each for each in pairs if each.faults]
    parts = [
        "# The dashboard among many jobs\n",
        f"{rows:,} jobs ({size:,} MB), PostgreSQL {server}, Django {django.__version__}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores. Made by `make bench-admin`. Milliseconds on the "
        "server: first with an empty cache, then the better of two. A page is wanted within "
        f"{PAGE} ms with at most {STATEMENTS} statements of at most {STATEMENT} ms; a search in arguments within "
        f"{SEARCH} ms; the overview within {OVERVIEW_COLD} ms, and {OVERVIEW_WARM} ms when it is remembered.\n",
        table("The list, one filter", singles),
        table("The list, deep down", deep),
        table(
            f"The list, two filters: the slowest of {len(pairs)} pairs",
            slowest[:15],
        ),
        f"Pairs that miss a limit: {len(wrong)}.\n",
        *([table("Pairs that miss a limit", wrong)] if wrong else []),
        table("The overview", first_page),
        table("Search all, without a window (no limit but the 2 s)", everywhere, judge=False),
    ]
    return "\n".join(parts)


def table(title: str, measured: list[Measured], *, judge: bool = True) -> str:
    """A section of the report."""
    lines = [
        f"## {title}\n",
        "| page | first | again | statements | slowest | |",
        "|---|---|---|---|---|---|",
    ]
    for each in measured:
        words = "; ".join([each.note] * bool(each.note) + each.faults * judge)
        lines.append(
            f"| `{each.name}` | {each.cold:.0f} | {each.warm:.0f} | {each.statements} | "
            f"{each.slowest:.0f} | {words} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
