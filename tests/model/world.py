"""What a state of the model is: the jobs' rows, two workers, Redis, and what those who repair have in hand."""

from __future__ import annotations

from typing import NamedTuple

from jobqueue.models import Status

#: Owners of a lease: a living worker is 0 or 1.
NOBODY, DEAD = -1, -2

NOT_ACCEPTED = ""

#: How far a worker is with an attempt. One that has been handed in may be handed in again, as its ending.
CLAIMED, RUNNING, ENDED = "claimed", "running", "ended"


class Row(NamedTuple):
    """A job, as far as its moves depend on it."""

    limit: int  # max_attempts
    status: str = NOT_ACCEPTED
    attempt: int = 0
    back: int = 0  # given_back
    owner: int = NOBODY
    expired: bool = False
    due: bool = False  # of a scheduled one: whether its time has come


class Run(NamedTuple):
    """An attempt in the eyes of the process that claimed it."""

    job: int
    attempt: int
    stage: str
    #: Its code runs, and its lease has never run out: nobody may run beside it.
    healthy: bool = False


class Worker(NamedTuple):
    """A living process: what it runs, and which ids it has taken out of Redis."""

    runs: tuple[Run, ...] = ()
    hand: tuple[int, ...] = ()


class Found(NamedTuple):
    """How many have found a row to be repaired, and have not come to repair it yet."""

    lost: int = 0
    due: int = 0


class Faults(NamedTuple):
    """How often something may still go wrong, or be asked for by people."""

    crashes: int = 0
    cancels: int = 0
    requeues: int = 0
    run_nows: int = 0
    give_backs: int = 0
    answers: int = 0  # answers to a COMMIT that get lost: a claim's, or an outcome's


class World(NamedTuple):
    """Everything. Redis is a hint: `line` are the ids in it, `unpushed` those that a commit has yet to push."""

    rows: tuple[Row, ...]
    left: Faults
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    found: tuple[Found, ...] = ()
    #: Outcomes that a dead process had sent: they may still be committed.
    flying: tuple[tuple[int, int], ...] = ()
    line: tuple[int, ...] = ()
    unpushed: tuple[int, ...] = ()
    up: bool = False  # Redis answers


class Bounds(NamedTuple):
    """How large a world is explored."""

    name: str
    limits: tuple[int, ...]
    faults: Faults
    redis: bool = False
    repairers: int = 2
    slots: int = 2
    stalls: bool = True  # a living worker may be stopped or cut off for longer than its lease
    first: int = 1  # of so many claimable jobs a worker's tick knows whether they are in line


def start(bounds: Bounds) -> World:
    """Nothing has been accepted yet."""
    rows = tuple(Row(limit) for limit in bounds.limits)
    return World(rows, bounds.faults, found=tuple(Found() for _ in rows), up=bounds.redis)


def canonical(world: World) -> World:
    """One of the two that differ only in which worker is which."""
    one, two = world.workers
    if one == two and all(row.owner < 0 for row in world.rows):
        return world
    rows = tuple(row._replace(owner=1 - row.owner) if row.owner >= 0 else row for row in world.rows)
    return min(world, world._replace(rows=rows, workers=(two, one)))


def with_row(world: World, job: int, row: Row) -> World:
    """The world in which only this row is another."""
    return world._replace(rows=put(world.rows, job, row))


def with_worker(world: World, number: int, worker: Worker) -> World:
    """The world in which only this worker is another."""
    one, two = world.workers
    return world._replace(workers=(worker, two) if number == 0 else (one, worker))


def put(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    """The tuple with another item at a place."""
    return (*items[:at], item, *items[at + 1 :])


def spend(world: World, fault: str) -> World:
    """One fault of this kind less is left."""
    return world._replace(left=world.left._replace(**{fault: getattr(world.left, fault) - 1}))


def told(row: Row) -> str:
    """A row in words, for a trace."""
    if row.status == NOT_ACCEPTED:
        return "(not accepted)"
    words = f"{row.status}, attempt {row.attempt} of {row.limit}"
    if row.back:
        words += f", {row.back} given back"
    if row.owner != NOBODY:
        words += f", leased to {who(row.owner)}"
        words += " (expired)" if row.expired else ""
    if row.status == Status.SCHEDULED and row.due:
        words += ", due"
    return words


def who(owner: int) -> str:
    """The name of an owner."""
    return {DEAD: "a dead worker", NOBODY: "nobody"}.get(owner) or "AB"[owner]
