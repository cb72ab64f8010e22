"""What must be true of the site as a whole after a run: nothing lost between two systems, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.db import connection, connections

from jobqueue.models import Worker
from tests.chaos.excuses import Excuses
from tests.chaos.fleet import Fleet
from tests.chaos.history import Past
from tests.chaos.tasks import CRASH
from tests.servers import PrivatePostgres, PrivateRedis

#: What Django and the driver raise where the database cannot be reached.
OUTAGE = {
    f"{module}.{name}"
    for module in ("psycopg", "django.db.utils")
    for name in ("OperationalError", "InterfaceError")
} | {
    f"psycopg.errors.{name}"
    for name in (
        "AdminShutdown",
        "CrashShutdown",
        "CannotConnectNow",
        "IdleInTransactionSessionTimeout",
    )
}
RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::.*)?$", re.MULTILINE)
GONE = re.compile(r"Worker process (\d+) is gone")
EXITED = re.compile(r"Worker process (\d+) is gone: its process exited with status (\d+)")


def calls(past: Past) -> Iterator[str]:
    """Committed calls have one job each, rolled back ones none; a key has one job."""
    told = past.calls
    for call in told.committed:
        rows = past.rows_of.get(call, [])
        if len(rows) != 1:
            yield f"call {call} was committed, and there are {len(rows)} jobs of it"
        makers = {job for job, _ in told.jobs[call]}
        if rows and makers != {str(rows[0])}:
            yield f"call {call} is job {rows[0]}, and callers were told {makers}"
        if sum(created for _, created in told.jobs[call]) > 1:
            yield f"more than one call was told to have made {call}"
    killed = {
        line["pid"]: line for line in past.of("killed") if line["point"] == "enqueue.inserted"
    }
    for call, asked in told.asked.items():
        gone = told.rolled_back[call] == told.times_asked[call]
        if asked["pid"] in killed and call not in told.committed:
            # Its last words: it died in the transaction.
            gone = gone or (told.times_asked[call] == 1 and not told.rolled_back[call])
        if gone and call not in told.committed:
            if past.rows_of.get(call):
                yield f"call {call} was rolled back, and is job {past.rows_of[call]}"
            if past.executed_calls.get(call):
                yield f"call {call} was rolled back, and was executed"
    for call, rows in past.rows_of.items():
        if call not in told.asked:
            yield f"job {rows} was asked for by nobody"
        if len(rows) > 1:
            yield f"call {call} has {len(rows)} jobs"


def ended(fleet: Fleet) -> set[int]:
    """The workers whose end surprised their supervisor, or that it ended itself."""
    texts = [path.read_text(errors="replace") for path in fleet.folder.glob("group-*.log")]
    return {int(pid) for text in texts for pid in GONE.findall(text)}


def exits(past: Past, fleet: Fleet, excuses: Excuses) -> Iterator[str]:
    """No process ended that nobody had ended."""
    killed = {line["pid"] for line in past.of("killed")}
    for line in past.of("exit"):
        code, pid = line["code"], line["process"]
        if pid in killed or line["asked"] == "kill":
            continue
        blocked = excuses.in_outage(line["at"] - 8, line["at"])
        if line["asked"] == "terminate":
            if code == 0 or (code == 1 and blocked):
                continue
            if code == -signal.SIGTERM and not _has_begun(fleet, pid):
                continue
        elif line["asked"] == "end" and code == 0:
            continue
        yield f"{line['kind']} {pid} exited with {code}; asked to: {line['asked'] or 'nothing'}"
    crashed = {line["pid"] for line in past.of("crashed")}
    for path in fleet.folder.glob("group-*.log"):
        text = path.read_text(errors="replace")
        for pid, status in EXITED.findall(text):
            if not (int(pid) in crashed and int(status) == CRASH):
                yield f"worker {pid} exited by itself with status {status} ({path.name})"
    for path in fleet.folder.glob("*.log"):
        for end, name in _tracebacks(path.read_text(errors="replace")):
            if name not in OUTAGE:
                yield f"{name} in {path.name}: {end}"


def _has_begun(fleet: Fleet, pid: int) -> bool:
    """Whether a `runworker` had got as far as to start workers, and to listen to signals."""
    words = f"Supervisor {pid} starts"
    return any(words in path.read_text(errors="replace") for path in fleet.folder.glob("group-*"))


def _tracebacks(text: str) -> Iterator[tuple[str, str]]:
    """The ends of the tracebacks in a log, with the names of their exceptions."""
    for part in text.split("Traceback (most recent call last):\n")[1:]:
        found = RAISED.search(part)
        # What tasks raise on purpose is logged, too, and what the queue raises into them.
        if (
            found
            and "chaos/tasks.py" not in part[: found.start()]
            and not found[1].startswith("jobqueue.")
        ):
            yield part[max(0, found.start() - 1_500) : found.end() + 300], found[1]


def reconciled() -> Iterator[str]:
    """One pass of `reconcile` puts right what is left; a second finds nothing."""
    for _ in range(2):
        said = StringIO()
        call_command("reconcile", "--json", stdout=said)
    answer = json.loads(said.getvalue())
    found = {kind: each for kind, each in answer["kinds"].items() if each["found"]}
    if found or answer["failures"]:
        yield f"after a pass of reconcile the next one finds {found} {answer['failures']}"


def redis_is_empty(redis: PrivateRedis, prefix: str) -> Iterator[str]:
    """Nothing is queued, so Redis holds the marker, and nobody's connection."""
    from redis import Redis

    with contextlib.closing(Redis.from_url(redis.url)) as client:
        keys = {key.decode() for key in client.scan_iter("*")}
        if keys - {f"{{{prefix}}}:marker"}:
            yield f"Redis still holds {sorted(keys)}"
        others = [each for each in client.client_list() if each["cmd"] != "client|list"]
        others = [each for each in others if each["cmd"] != "client"]
        if len(others) > 0:
            yield f"Redis still has connections: {others}"


def nothing_is_left(fleet: Fleet, postgres: PrivatePostgres) -> Iterator[str]:
    """No process, no connection, no worker's row but of those that are gone."""
    connections.close_all()
    for pid in fleet.left():
        yield f"process {pid} still lives"
    sessions: list[tuple[Any, ...]] = postgres.execute(
        "SELECT pid, state, query FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    for session in sessions:
        yield f"a connection to the database is left: {session}"
    locks = postgres.execute("SELECT * FROM pg_locks WHERE locktype = 'advisory'")
    if locks:
        yield f"advisory locks are left: {locks}"
    running = Worker.objects.exclude(state="gone")
    for worker in running:
        yield f"the row of worker {worker} is left as {worker.state}"
    connection.close()
