"""Breadth-first search through all worlds, and the way to what is wrong, in words."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jobqueue.lifecycle.states import Event
from tests.model.invariants import breach, is_settled, wrong_step
from tests.model.rules import Rules
from tests.model.steps import Step, steps
from tests.model.world import Bounds, World, canonical, start, told

#: A move that was made: the event, from which status, to which.
Move = tuple[Event, str, str]


@dataclass
class Explored:
    """What a search has seen. `trace` leads to what is `wrong`, shortest first; both are empty if nothing is."""

    states: int = 0
    steps: int = 0
    moves: set[Move] = field(default_factory=set)
    wrong: str = ""
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.trace, f"-> {self.wrong}"])


def explore(rules: Rules, bounds: Bounds) -> Explored:
    """Look at every state that can be reached, until something is wrong."""
    seen = Explored()
    first = canonical(start(bounds))
    numbers: dict[World, int] = {first: 0}
    worlds, parents = [first], [0]
    fair_into: list[list[int]] = [[]]
    todo = deque([0])
    while todo:
        here = todo.popleft()
        world = worlds[here]
        for step in steps(world, rules, bounds):
            seen.steps += 1
            _note(seen.moves, world, step)
            there = canonical(step.world)
            number = numbers.get(there)
            is_new = number is None
            if number is None:
                number = numbers[there] = len(worlds)
                worlds.append(there)
                parents.append(here)
                fair_into.append([])
                todo.append(number)
            if step.fair:
                fair_into[number].append(here)
            wrong = wrong_step(world, step) or (breach(there, bounds) if is_new else None)
            if wrong:
                path = _path(worlds, parents, here)
                return _told(seen, len(worlds), wrong, [*path, there], rules, bounds)
    stuck = _stuck(worlds, fair_into)
    if stuck is not None:
        wrong = "stuck: whatever everyone does now, the job does not end"
        return _told(seen, len(worlds), wrong, _path(worlds, parents, stuck), rules, bounds)
    seen.states = len(worlds)
    return seen


def _note(moves: set[Move], world: World, step: Step) -> None:
    if step.event is None:
        return
    for was, now in zip(world.rows, step.world.rows, strict=True):
        if was.status != now.status:
            moves.add((step.event, was.status, now.status))


def _stuck(worlds: list[World], fair_into: list[list[int]]) -> int | None:
    """The first state from which no end can be reached by what happens sooner or later."""
    fine = {number for number, world in enumerate(worlds) if is_settled(world)}
    todo = list(fine)
    while todo:
        for before in fair_into[todo.pop()]:
            if before not in fine:
                fine.add(before)
                todo.append(before)
    return next((number for number in range(len(worlds)) if number not in fine), None)


def _path(worlds: list[World], parents: list[int], number: int) -> list[World]:
    path = [worlds[number]]
    while number:
        number = parents[number]
        path.append(worlds[number])
    return path[::-1]


def _told(
    seen: Explored, states: int, wrong: str, path: list[World], rules: Rules, bounds: Bounds
) -> Explored:
    """The steps along a path. The search does not tell the workers apart; whoever reads it does."""
    world = start(bounds)
    for number, target in enumerate(path[1:], 1):
        step = next(step for step in steps(world, rules, bounds) if canonical(step.world) == target)
        world = step.world
        rows = "; ".join(map(told, world.rows))
        seen.trace.append(f"{number:2}. {step.words:<58} {rows}")
    seen.states, seen.wrong = states, wrong
    return seen
