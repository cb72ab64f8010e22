"""What must hold in every state, and of every step: the guarantees, in words of their own and not of the table."""

from __future__ import annotations

from jobqueue.lifecycle.states import Event, allows, transition
from jobqueue.models import FINAL, WAITING, Status
from tests.model.steps import Step
from tests.model.world import DEAD, NOBODY, NOT_ACCEPTED, RUNNING, Bounds, Row, World


def breach(world: World, bounds: Bounds) -> str | None:
    """What is wrong with a state; None if nothing is."""
    for row, limit in zip(world.rows, bounds.limits, strict=True):
        if wrong := _of_row(row, limit, bounds.faults.requeues - world.left.requeues):
            return wrong
    runs = [(number, run) for number in (0, 1) for run in world.workers[number].runs]
    if len({run[:2] for _, run in runs}) < len(runs):
        return "one attempt is run twice"
    for number, run in runs:
        row = world.rows[run.job]
        if not 1 <= run.attempt <= row.attempt:
            return "an attempt is run that nobody has claimed"
        if run.stage == RUNNING and run.healthy and _leased(row) != (number, run.attempt):
            return "code runs under a lease that never ran out, and the job is not its worker's"
    return None


def _leased(row: Row) -> tuple[int, int]:
    return (row.owner, row.attempt)


def _of_row(row: Row, limit: int, requeues: int) -> str | None:
    """The CHECK constraints, and how many attempts there may be."""
    leased = row.owner != NOBODY
    if row.status == Status.PROCESSING and not leased:
        return "it is processing, and nobody's"
    if leased and row.status not in (Status.PROCESSING, Status.CANCELLED):
        return f"it is {row.status}, and somebody's"
    if row.status in WAITING and row.attempt >= row.limit:
        return "it waits, and has no attempt left"
    if row.attempt > row.limit:
        return "it has had more attempts than it may"
    if row.limit > limit + row.back + requeues:
        return "it may have more attempts than were asked for"
    return None


def wrong_step(before: World, step: Step) -> str | None:
    """What is wrong with a step; None if nothing is."""
    moved = 0
    for job, (was, now) in enumerate(zip(before.rows, step.world.rows, strict=True)):
        if was == now:
            continue
        moved += was.status != now.status
        if wrong := _of_move(was, now, step.event) or _of_writer(was, now, job, step):
            return wrong
    return "one act moved two jobs" if moved > 1 else None


def _moved(was: Row, now: Row) -> bool:
    return was.status != now.status


def _of_move(was: Row, now: Row, event: Event | None) -> str | None:
    moved = _moved(was, now)
    claimed = moved and now.status == Status.PROCESSING
    if now.attempt != was.attempt + claimed:
        return "attempts are not claims"
    if moved and was.status in FINAL and event is not Event.REQUEUED:
        return f"it was {was.status}, and is {now.status}"
    if not moved:
        if (now.back, now.limit) != (was.back, was.limit):
            return "an attempt was given back by what moved nothing"
        return None
    if event is None:
        return f"it moved from {was.status} to {now.status} without an event"
    table = transition(event)
    if was.status != NOT_ACCEPTED and not allows(event, was.status):
        return f"{event} moved a job that was {was.status}"
    if now.status not in table.targets:
        return f"{event} led to {now.status}"
    back = int(table.gives_back and now.status in WAITING)
    if now.back != was.back + back:
        return f"{event} counted what is given back wrongly"
    if event is not Event.REQUEUED and now.limit != was.limit + back:
        return f"{event} changed how many attempts there may be"
    return None


def _of_writer(was: Row, now: Row, job: int, step: Step) -> str | None:
    if step.by is not None and step.by != (job, was.owner, was.attempt):
        return "somebody who no longer owns the job changed it"
    if step.event is Event.LOST and not was.expired and was.owner != DEAD:
        return "a lease was taken that had not run out"
    return None


def is_settled(world: World) -> bool:
    """Whether every accepted job has ended, and nobody holds it."""
    return all(
        row.status == NOT_ACCEPTED or (row.status in FINAL and row.owner == NOBODY)
        for row in world.rows
    )
