"""A plan is the seed's, and whatever it names can be done."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest

from tests.chaos import killpoints, tasks
from tests.chaos.enqueuer import KINDS
from tests.chaos.faults import ProcessFaults, ServerFaults
from tests.chaos.plan import (
    FOCUSES,
    PROCESS_FAULTS,
    REDIS_FAULTS,
    SERVER_FAULTS,
    draw,
)


@pytest.mark.parametrize("focus", ["", *FOCUSES])
def test_a_seed_has_one_plan(focus: str) -> None:
    assert draw(7, 60, focus, redis=True) == draw(7, 60, focus, redis=True)


def test_another_seed_has_another_plan() -> None:
    one, other = draw(7, 60, "", redis=True), draw(8, 60, "", redis=True)
    assert one.processes != other.processes
    assert one.servers != other.servers


def test_every_kind_of_fault_comes() -> None:
    plan = draw(7, 600, "", redis=True)
    assert {act.name for act in plan.processes} == set(PROCESS_FAULTS)
    assert {act.name for act in plan.servers} == {*SERVER_FAULTS, *REDIS_FAULTS}
    assert {act.words[0] for act in plan.processes if act.words} == set(killpoints.POINTS)


def test_every_fault_can_be_done() -> None:
    for name in PROCESS_FAULTS:
        assert hasattr(ProcessFaults, f"_{name}")
    source = inspect.getsource(ServerFaults)
    for name in (*SERVER_FAULTS, *REDIS_FAULTS):
        assert f'"{name}"' in source


def test_every_place_is_passed() -> None:
    source = inspect.getsource(killpoints.install) + inspect.getsource(tasks)
    for point in killpoints.POINTS:
        assert f'"{point}"' in source


def test_every_task_has_its_jobs() -> None:
    names = {task.name for task in vars(tasks).values() if hasattr(task, "enqueue")}
    assert names <= set(KINDS)


def test_who_passes_an_armed_place_finds_what_to_do(tmp_path: Path) -> None:
    """Were the file there before its text is, a worker would end by an error of the run's own."""
    killpoints.armed(tmp_path).mkdir()
    over = threading.Event()

    def arm_again_and_again() -> None:
        while not over.is_set():
            killpoints.arm(tmp_path, "body", "kill")

    armer = threading.Thread(target=arm_again_and_again)
    armer.start()
    found: set[str] = set()
    passed = 0
    taken = killpoints.armed(tmp_path) / "body.taken"
    try:
        while passed < 500:
            try:
                (killpoints.armed(tmp_path) / "body").rename(taken)
            except FileNotFoundError:
                continue
            found.add(taken.read_text())
            passed += 1
    finally:
        over.set()
        armer.join()
    assert found == {"kill"}
