"""How fast other queues are: each peer in an environment of its own, measured as we measure ourselves.

    measure(["pgqueuer", "huey"], postgres_url, redis_url, rounds=3)

The process that calls this only drives: whatever belongs to a peer runs in the peer's environment, by
`benchmarks.peers.roles` and the adapter named like the peer. A peer that cannot be installed or started
is skipped with its reason, and a figure that cannot be had is an error instead of a number.

- *enqueue*: ordinary calls, one after the other, in one process.
- *bulk*: the peer's own call for many, 5,000 jobs a call.
- *drain*: everything queued beforehand, then workers on two cores; (N - 1) / (last start - first start),
  with an N that takes the peer some seconds. Each job must have run exactly once.
- *pick-up*: workers idle, a job every 50 ms; from the start of the enqueue call to the start of the function.

On PostgreSQL each figure has a database of its own, which is dropped again. The Redis must be an empty
one, and is emptied.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers.trial import Trial

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Peer:
    """One peer: what it needs, how many jobs to drain, and the words that go with its figures."""

    name: str
    package: str
    requirements: tuple[str, ...]
    server: str  # postgres or redis
    settings: str
    durable: str
    drained: int
    workers: int = 2  # that we start; 1 where its command starts two itself
    bulk: bool = False  # whether it has a bulk call


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "pgqueuer",
            "pgqueuer",
            ("pgqueuer[asyncpg]>=1.6",),
            "postgres",
            "asyncpg, batch 100, 2 processes",
            "yes; row deleted, completion unfenced",
            100_000,
            bulk=True,
        ),
        Peer(
            "django_vtasks",
            "django-vtasks",
            ("django-vtasks[valkey]>=3.2", "psycopg[binary]>=3.2"),
            "redis",
            "Redis, 2 x concurrency 20",
            "no",
            30_000,
            bulk=True,
        ),
        Peer(
            "huey",
            "huey",
            ("huey>=3.5", "redis>=5.0"),
            "redis",
            "Redis, 2 processes",
            "no",
            20_000,
            workers=1,
        ),
        Peer(
            "dramatiq",
            "dramatiq",
            ("dramatiq[redis]>=2.2",),
            "redis",
            "Redis, 2 processes x 8 threads",
            "no; acknowledged",
            20_000,
            workers=1,
        ),
        Peer(
            "procrastinate",
            "procrastinate",
            ("procrastinate>=3.10", "psycopg[binary]>=3.2"),
            "postgres",
            "2 x concurrency 20",
            "yes; completion unfenced",
            4_000,
            bulk=True,
        ),
        Peer(
            "chancy",
            "chancy",
            ("chancy>=0.26", "psycopg[binary]>=3.2"),
            "postgres",
            "async, eager polling, 2 x concurrency 20",
            "yes; outcomes written once a second",
            10_000,
            bulk=True,
        ),
        Peer(
            "oban",
            "oban",
            ("oban>=0.7",),
            "postgres",
            "2 x limit 100",
            "yes",
            12_000,
            bulk=True,
        ),
        Peer(
            "django_ox",
            "django-ox",
            ("django-ox>=1.9", "psycopg[binary]>=3.2"),
            "postgres",
            "2 processes",
            "yes",
            3_000,
            bulk=True,
        ),
        Peer(
            "celery",
            "celery",
            ("celery[redis]>=5.7",),
            "redis",
            "Redis, default, 2 processes",
            "no",
            5_000,
            workers=1,
        ),
        Peer(
            "django_tasks_db",
            "django-tasks-db",
            ("django-tasks-db>=0.13", "psycopg[binary]>=3.2"),
            "postgres",
            "2 processes",
            "yes; no lease",
            1_500,
        ),
    )
}


@dataclass
class PeerFigures:
    """What was measured of one peer: medians, or the reason why there are none."""

    name: str
    settings: str
    durable: str
    version: str = ""
    enqueue: float | None = None
    bulk: float | None = None
    drain: float | None = None
    p50: float | None = None
    p99: float | None = None
    reason: str = ""
    errors: dict[str, str] = field(default_factory=dict)


def measure(
    names: Sequence[str],
    postgres_url: str,
    redis_url: str,
    rounds: int,
    cache: Path = PROJECT,
    quick: bool = False,
) -> list[PeerFigures]:
    """The figures of these peers, each round a turn of every peer. `quick` is for a smoke test.

    The environments are made in the folder `cache`, as `.venv-bench-PEER`, and used again.
    """
    from benchmarks.peers import environments, trial

    urls = {"postgres": postgres_url, "redis": redis_url}
    found: list[PeerFigures] = []
    values: dict[str, dict[str, list[float]]] = {}
    ready: list[tuple[PeerFigures, Trial]] = []
    for name in names:
        peer = PEERS[name]
        figures = PeerFigures(name, peer.settings, peer.durable)
        found.append(figures)
        try:
            if not urls[peer.server]:
                raise environments.Unavailable(f"there is no {peer.server}")
            _say(f"{name}: environment")
            python = environments.make(peer, cache)
            figures.version = environments.version(peer, python)
        except environments.Unavailable as error:
            figures.reason = str(error)
            continue
        values[name] = {}
        ready.append((figures, trial.Trial(peer, python, postgres_url, redis_url, quick)))
    for number in range(1, rounds + 1):
        for figures, turn in ready:
            if not figures.reason:
                _round(f"round {number} of {rounds}", figures, turn, values[figures.name])
    for figures, _ in ready:
        for key, measured in values[figures.name].items():
            setattr(figures, key, statistics.median(measured))
    return found


def _round(title: str, figures: PeerFigures, turn: Trial, values: dict[str, list[float]]) -> None:
    from benchmarks.peers.trial import Failed

    try:
        turn.prepare()
    except Failed as error:
        figures.reason = str(error)
        return
    for key, measured in turn.measures().items():
        if key in figures.errors:
            continue
        _say(f"{figures.name}: {title}, {key}")
        try:
            for name, value in measured().items():
                values.setdefault(name, []).append(value)
        except Failed as error:
            figures.errors[key] = str(error)


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)
