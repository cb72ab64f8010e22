"""What is done to a site and when: drawn from the seed alone, so that the same seed does the same things."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.killpoints import POINTS

#: The backend's OPTIONS in a run: so short that minutes are enough, so long that a busy machine keeps them.
OPTIONS: dict[str, Any] = {
    "lease": 3.0,
    "heartbeat": 0.5,
    "tick": 0.2,
    "backoff_base": 0.05,
    "backoff_max": 0.5,
    "grace": 2.0,
    "kill_after": 1.0,
    "timeout": 60.0,
}

#: Faults of processes, and how often each comes beside the others.
PROCESS_FAULTS = {
    "kill_worker": 5,
    "kill_supervisor": 2,
    "kill_group": 2,
    "kill_enqueuer": 1,
    "stop_worker": 2,
    "stop_supervisor": 1,
    "stop_group": 1,
    "terminate": 2,
    "reconcile": 3,
    "point": 8,
}
SERVER_FAULTS = {"cut_all": 2, "cut_some": 3, "restart_fast": 2, "restart_immediate": 2}
REDIS_FAULTS = {
    "redis_stop": 2,
    "redis_restart": 2,
    "redis_flush": 2,
    "redis_fill": 2,
    "redis_lie": 2,
}


@dataclass(frozen=True)
class Act:
    """One thing to do, so many seconds after the start. `choice`, from 0 to 1, says to which of those there are."""

    at: float
    name: str
    choice: float
    seconds: float = 0.0
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All of a run that is decided beforehand.

    `rate`: jobs a second of each enqueuer. `groups`: of each `runworker` its processes, its slots, and by how many
    seconds its clock is wrong. `kinds`: the only kinds of jobs, with their weights; empty: all.
    """

    seed: int
    seconds: float
    focus: str
    processes: tuple[Act, ...]
    servers: tuple[Act, ...]
    rate: float = 110.0
    enqueuers: int = 3
    groups: tuple[tuple[int, int, int], ...] = ((2, 8, 0), (2, 8, 0), (2, 8, 3600))
    options: dict[str, Any] = field(default_factory=lambda: dict(OPTIONS))
    kinds: dict[str, float] = field(default_factory=dict)
    has_canaries: bool = True


@dataclass(frozen=True)
class Focus:
    """A narrow run: which faults, how many seconds apart, which jobs, how many of them a second."""

    faults: dict[str, float]
    every: float
    kinds: dict[str, float]
    rate: float
    words: tuple[tuple[str, str], ...] = ()
    options: dict[str, Any] = field(default_factory=lambda: {"lease": 1.5, "heartbeat": 0.25})
    has_canaries: bool = False
    seconds: float = 4.0
    stopped_for: tuple[float, float] | None = None
    """With it faults come at fixed times, so that never all are stopped."""


#: Narrow runs of some seconds, each for one promise.
FOCUSES = {
    # Stopped until others have taken their jobs, then let on to end them.
    "zombie": Focus(
        {"stop_group": 1},
        3.6,
        {"short": 3, "slowly_failing": 2},
        rate=14,
        seconds=11,
        stopped_for=(2.6, 3.2),
    ),
    # Jobs cancelled in the middle, which then fail.
    "cancel": Focus({}, 1.0, {"slowly_failing": 1, "cancel": 1}, rate=16),
    # Workers dead, and their supervisors stopped between what they read of their jobs and what they
    # write, until others have done it and the jobs run again.
    "recovery": Focus(
        {"late_repair": 1},
        2.0,
        {"steady": 1, "quick": 4},
        rate=16,
        seconds=6,
        stopped_for=(2.0, 2.0),
    ),
    # Stopped at leisure and in haste, while jobs run that take longer than they are given.
    "release": Focus({"terminate": 1}, 1.0, {"long": 1}, rate=8),
    # Killed between what a task wrote and what is known of it.
    "atomic": Focus(
        {"kill_worker": 1, "point": 4},
        0.3,
        {"writing": 4, "requeue": 1},
        rate=80,
        words=(("settle.before", "kill"), ("settle.inside", "kill"), ("body", "kill")),
    ),
    # Jobs that kill their process, and their neighbours with it.
    "poison": Focus({}, 1.0, {"crashing": 1, "quick": 40}, rate=80),
    # Nothing goes wrong: whoever does not run in time has been forgotten.
    "calm": Focus({}, 1.0, {"quick": 30, "long": 1}, rate=120, options={}, has_canaries=True),
}


def draw(seed: int, seconds: float, focus: str, *, redis: bool) -> Plan:
    """The plan of a run."""
    if focus:
        narrow = FOCUSES[focus]
        return Plan(
            seed,
            seconds,
            focus,
            processes=tuple(
                _processes(
                    seed, seconds, narrow.faults, narrow.every, narrow.words, narrow.stopped_for
                )
            ),
            servers=(),
            rate=narrow.rate,
            kinds=narrow.kinds,
            options=OPTIONS | narrow.options,
            has_canaries=narrow.has_canaries,
            enqueuers=1,
            groups=((1, 6, 0), (1, 6, 0)),
        )
    points = tuple((point, action) for point, actions in POINTS.items() for action in actions)
    return Plan(
        seed,
        seconds,
        focus,
        processes=tuple(_processes(seed, seconds, PROCESS_FAULTS, 1.3, points)),
        servers=tuple(_servers(seed, seconds, SERVER_FAULTS | (REDIS_FAULTS if redis else {}))),
    )


def _processes(
    seed: int,
    seconds: float,
    faults: dict[str, float],
    every: float,
    points: tuple[tuple[str, str], ...],
    stopped_for: tuple[float, float] | None = None,
) -> Iterator[Act]:
    rng = random.Random(f"{seed} processes")
    at = every
    while faults and at < seconds:
        name = rng.choices(list(faults), list(faults.values()))[0]
        # Mostly beyond the lease, so that others take over.
        stop = stopped_for or (1.0, 6.0)
        duration = rng.uniform(*stop) if "stop" in name else rng.uniform(0.5, 3.0)
        words = rng.choice(points) if name == "point" else ()
        yield Act(at, name, rng.random(), duration, words)
        at += every if stopped_for else rng.expovariate(1 / every)


def _servers(seed: int, seconds: float, faults: dict[str, float]) -> Iterator[Act]:
    rng = random.Random(f"{seed} servers")
    at = 4.0
    while at < seconds - 2:
        name = rng.choices(list(faults), list(faults.values()))[0]
        # Now and then longer than a lease.
        yield Act(at, name, rng.random(), rng.choice([0.0, 0.3, 1.0, 2.0, 4.5]))
        at += rng.uniform(5.0, 15.0)
