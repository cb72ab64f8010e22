"""Everything that can happen next in a world, one atomic act a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jobqueue.lifecycle.states import Event
from jobqueue.models import WAITING, Status
from tests.model.rules import ENDINGS, Rules
from tests.model.world import (
    CLAIMED,
    DEAD,
    ENDED,
    NOBODY,
    NOT_ACCEPTED,
    RUNNING,
    Bounds,
    Run,
    Worker,
    World,
    put,
    spend,
    who,
    with_row,
    with_worker,
)


class Step(NamedTuple):
    """One act. A `fair` one happens sooner or later where it can; the others are faults and wishes."""

    words: str
    world: World
    fair: bool = True
    event: Event | None = None
    #: Whose outcome or heartbeat it is: job, owner, attempt.
    by: tuple[int, int, int] | None = None


def steps(world: World, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """Every step from here."""
    for job in range(len(world.rows)):
        yield from _accepting(world, job, bounds)
        yield from _time(world, job, rules, bounds)
        yield from _repairs(world, job, rules, bounds)
        yield from _people(world, job, rules)
    for number in (0, 1):
        yield from _working(world, number, rules, bounds)
    yield from _late(world, rules)
    if bounds.redis:
        yield from _redis(world, rules, bounds)


def _queued(world: World, job: int, was: str) -> World:
    """A job that has just become claimable is to be pushed, after the commit."""
    row = world.rows[job]
    if row.status != Status.QUEUED or was == Status.QUEUED or job in world.unpushed:
        return world
    return world._replace(unpushed=tuple(sorted((*world.unpushed, job))))


def _changed(world: World, job: int, row: object) -> World:
    was = world.rows[job].status
    return _queued(with_row(world, job, row), job, was)  # type: ignore[arg-type]


def _accepting(world: World, job: int, bounds: Bounds) -> Iterator[Step]:
    row = world.rows[job]
    if row.status == NOT_ACCEPTED:
        for status in sorted(WAITING):
            accepted = _changed(world, job, row._replace(status=status.value))
            yield Step(f"job {job} is accepted", accepted, False, Event.ENQUEUED)


def _time(world: World, job: int, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    row = world.rows[job]
    if row.status == Status.SCHEDULED and not row.due:
        yield Step("its time comes", with_row(world, job, row._replace(due=True)))
    if row.owner != NOBODY and not row.expired:
        # That of a living worker that runs the job runs out if it is stopped or cut off: no need.
        unnamed = row.owner == DEAD or (rules.names_what_it_runs and _is_stray(world, job))
        if not (unnamed or bounds.stalls):
            return
        one, two = (_late_with(worker, job) for worker in world.workers)
        late = with_row(world, job, row._replace(expired=True))._replace(workers=(one, two))
        yield Step(f"the lease of {who(row.owner)} runs out", late, unnamed)


def _late_with(worker: Worker, job: int) -> Worker:
    runs = (run._replace(healthy=run.healthy and run.job != job) for run in worker.runs)
    return worker._replace(runs=tuple(runs))


def _repairs(world: World, job: int, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    row, found = world.rows[job], world.found[job]

    def having(**counts: int) -> World:
        return world._replace(found=put(world.found, job, found._replace(**counts)))

    if rules.looks_for_leases and found.lost < bounds.repairers and rules.is_lost(row):
        yield Step("a repairer finds its lease to be over", having(lost=found.lost + 1))
    if found.lost:
        after = _changed(having(lost=found.lost - 1), job, rules.recover(row))
        yield Step("a repairer takes what it has found", after, event=Event.LOST)
    if not found.due and row.status == Status.SCHEDULED and row.due:
        yield Step("a repairer finds it due", having(due=1))
    if found.due:
        after = _changed(having(due=0), job, rules.promote(row))
        yield Step("a repairer queues what it found due", after, event=Event.DUE)
    if rules.is_dead(row):
        # The supervisor may have died with its worker: then it is up to the repairers.
        for event in (Event.LOST, Event.TIMED_OUT, Event.RELEASED):
            after = _changed(world, job, rules.take(row, event))
            yield Step(f"the supervisor writes {event}", after, False, event)


def _people(world: World, job: int, rules: Rules) -> Iterator[Step]:
    row, left = world.rows[job], world.left
    if row.status == NOT_ACCEPTED:
        return
    if left.cancels and (after := rules.cancel(row)) != row:
        done = spend(_changed(world, job, after), "cancels")
        yield Step("it is cancelled", done, False, Event.CANCELLED)
    if left.requeues and (after := rules.requeue(row)) != row:
        done = spend(_changed(world, job, after), "requeues")
        yield Step("it is requeued", done, False, Event.REQUEUED)
    if left.run_nows and (after := rules.run_now(row)) != row:
        done = spend(_changed(world, job, after), "run_nows")
        yield Step("it is to run now", done, False, Event.RUN_NOW)


def _working(world: World, number: int, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    worker, name = world.workers[number], who(number)
    if len(worker.runs) < bounds.slots:
        if not bounds.redis or not world.up:
            for job, row in enumerate(world.rows):
                if row.status == Status.QUEUED:
                    yield from _claims(world, number, job, rules)
        for job in worker.hand:
            rest = tuple(each for each in worker.hand if each != job)
            emptied = with_worker(world, number, worker._replace(hand=rest))
            if rules.claim(world.rows[job], number) is None:
                yield Step(f"{name} drops an id that it may not claim", emptied)
            else:
                yield from _claims(emptied, number, job, rules)
    for run in worker.runs:
        yield from _running(world, number, run, rules)
    yield from _strays(world, number, rules)
    if world.left.crashes:
        yield from _crashes(world, number)


def _claims(world: World, number: int, job: int, rules: Rules) -> Iterator[Step]:
    row, name = rules.claim(world.rows[job], number), who(number)
    if row is None:
        return
    worker = world.workers[number]
    claimed = with_row(world, job, row)
    runs = tuple(sorted((*worker.runs, Run(job, row.attempt, CLAIMED))))
    yield Step(
        f"{name} claims job {job}",
        with_worker(claimed, number, worker._replace(runs=runs)),
        event=Event.CLAIMED,
    )
    if world.left.answers:
        lost = spend(claimed, "answers")
        yield Step(f"{name} claims job {job}, and never hears of it", lost, False, Event.CLAIMED)


def _running(world: World, number: int, run: Run, rules: Rules) -> Iterator[Step]:
    worker, row, name = world.workers[number], world.rows[run.job], who(number)
    runs_on = run.stage in (CLAIMED, RUNNING)

    def becomes(other: Run | None, at: World = world) -> World:
        rest = [each for each in at.workers[number].runs if each != run]
        runs = tuple(sorted((*rest, other) if other else rest))
        return with_worker(at, number, worker._replace(runs=runs))

    if run.stage == CLAIMED:
        healthy = row.owner == number and row.attempt == run.attempt and not row.expired
        begun = run._replace(stage=RUNNING, healthy=healthy)
        yield Step(f"{name} begins attempt {run.attempt}", becomes(begun))
    if run.stage == RUNNING:
        ended = run._replace(stage=ENDED, healthy=False)
        yield Step(f"the code of attempt {run.attempt} ends at {name}", becomes(ended))
    if runs_on and row.expired:
        after = rules.beat(row, number, run.attempt)
        if after != row:
            healthy = run._replace(healthy=run.stage == RUNNING)
            beaten = with_row(becomes(healthy), run.job, after)
            by = (run.job, number, run.attempt)
            yield Step(f"{name} sends a heartbeat for attempt {run.attempt}", beaten, False, by=by)
    for event, final in ENDINGS:
        if run.stage not in (ENDED, event.value) and not (
            event is Event.RELEASED and rules.may_hand_in(run.stage)
        ):
            continue
        yield from _handing_in(world, number, run, event, final, rules)


def _handing_in(
    world: World, number: int, run: Run, event: Event, final: bool, rules: Rules
) -> Iterator[Step]:
    worker, row, name = world.workers[number], world.rows[run.job], who(number)
    after = rules.write(row, number, run.attempt, event, final)
    gives_back = after.back > row.back
    if gives_back:
        if not world.left.give_backs:
            return
        world = spend(world, "give_backs")
    written = _changed(world, run.job, after)
    by = (run.job, number, run.attempt)
    rest = tuple(each for each in worker.runs if each != run)
    kept = rest if run.stage != RUNNING else worker.runs
    yield Step(
        f"{name} writes that attempt {run.attempt} {event}{' for good' * final}",
        with_worker(written, number, worker._replace(runs=kept)),
        event=event,
        by=by,
    )
    if world.left.answers and run.stage == ENDED and after != row:
        again = tuple(sorted((*rest, run._replace(stage=event.value))))
        unheard = with_worker(spend(written, "answers"), number, worker._replace(runs=again))
        words = f"{name} writes that attempt {run.attempt} {event}, and never hears of it"
        yield Step(words, unheard, False, event, by)


def _is_stray(world: World, job: int) -> bool:
    """Whether a living worker owns the row and does not run it: it never heard of its claim."""
    row = world.rows[job]
    return row.owner >= 0 and all(
        run[:2] != (job, row.attempt) for run in world.workers[row.owner].runs
    )


def _strays(world: World, number: int, rules: Rules) -> Iterator[Step]:
    for job, row in enumerate(world.rows):
        if rules.hands_strays_back and row.owner == number and _is_stray(world, job):
            after = _changed(world, job, rules.take(row, Event.RELEASED))
            words = f"{who(number)} gives back what it holds and does not run"
            yield Step(words, after, event=Event.RELEASED)


def _crashes(world: World, number: int) -> Iterator[Step]:
    worker = world.workers[number]
    rows = tuple(row._replace(owner=DEAD) if row.owner == number else row for row in world.rows)
    dead = spend(with_worker(world._replace(rows=rows), number, Worker()), "crashes")
    yield Step(f"{who(number)} dies; another takes its place", dead, False)
    sent = tuple((run.job, run.attempt) for run in worker.runs if run.stage == ENDED)
    if sent:
        flying = tuple(sorted((*dead.flying, *sent)))
        words = f"{who(number)} dies; what it had sent is still under way"
        yield Step(words, dead._replace(flying=flying), False)


def _late(world: World, rules: Rules) -> Iterator[Step]:
    """The statements of a dead process: they may be committed, or never."""
    for sent in world.flying:
        job, attempt = sent
        rest = tuple(each for each in world.flying if each != sent)
        for event, final in ENDINGS:
            after = rules.write(world.rows[job], DEAD, attempt, event, final)
            landed = _changed(world._replace(flying=rest), job, after)
            words = f"a dead worker's statement is committed: attempt {attempt} {event}"
            yield Step(words, landed, False, event, (job, DEAD, attempt))


def _redis(world: World, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    if not world.up:
        yield Step("Redis is back", world._replace(up=True))
    else:
        yield Step("Redis is away", world._replace(up=False), False)
        if world.line:
            yield Step("Redis is flushed", world._replace(line=()), False)
    for job in world.unpushed:
        rest = tuple(each for each in world.unpushed if each != job)
        if world.up and rules.pushes:
            line = tuple(sorted({*world.line, job}))
            yield Step(f"job {job} is pushed", world._replace(unpushed=rest, line=line))
        yield Step(f"the push of job {job} is lost", world._replace(unpushed=rest), False)
    for job in range(len(world.rows)):
        if job not in world.line:
            line = tuple(sorted((*world.line, job)))
            yield Step(f"Redis invents or repeats job {job}", world._replace(line=line), False)
    if not world.up:
        return
    if rules.looks_into_the_line:
        claimable = [job for job, row in enumerate(world.rows) if row.status == Status.QUEUED]
        missing = [job for job in claimable[: bounds.first] if job not in world.line]
        if missing:
            line = tuple(sorted((*world.line, *missing)))
            yield Step("a tick pushes what Redis lacks", world._replace(line=line))
    for number in (0, 1):
        worker = world.workers[number]
        if world.line and not worker.hand and len(worker.runs) < bounds.slots:
            taken = world._replace(line=world.line[1:])
            hand = worker._replace(hand=(world.line[0],))
            words = f"{who(number)} pops job {world.line[0]}"
            yield Step(words, with_worker(taken, number, hand))
