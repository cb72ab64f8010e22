"""An exception raised into a thread meets the body that it is meant for, or nothing."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobqueue import Cancelled, Stopped, TimedOut
from jobqueue.interrupt import Gate


def work(seconds: float) -> str:
    """Python code that can be interrupted anywhere."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10))
    return "done"


class Thread(threading.Thread):
    """Makes a gate and calls `function` with it; what it returned or raised is in `result`."""

    def __init__(self, function: Callable[[Gate], Any]) -> None:
        super().__init__(daemon=True)
        self.gate: Gate | None = None
        self.made = threading.Event()
        self.result: Any = None
        self._function = function

    def run(self) -> None:
        self.gate = Gate()
        self.made.set()
        try:
            self.result = self._function(self.gate)
        except BaseException as error:
            self.result = error

    @contextmanager
    def running(self) -> Iterator[Gate]:
        self.start()
        self.made.wait(10)
        assert self.gate is not None
        yield self.gate
        self.join(10)
        assert not self.is_alive()


def insist(gate: Gate, exception: type[Stopped], thread: threading.Thread) -> None:
    deadline = time.monotonic() + 10
    while thread.is_alive() and time.monotonic() < deadline:
        gate.raise_in_thread(exception)
        thread.join(0.005)


@pytest.fixture(autouse=True)
def _hasty() -> Iterator[None]:
    """Threads take turns five hundred times as often as usual: the races are run more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("exception", [TimedOut, Cancelled, Stopped])
def test_it_arrives_in_a_loop_that_swallows_errors(exception: type[Stopped]) -> None:
    def stubborn() -> None:
        while True:
            try:
                work(0.001)
            except Exception:
                logging.getLogger("tests").debug("swallowed")

    thread = Thread(lambda gate: gate.run(stubborn))
    with thread.running() as gate:
        insist(gate, exception, thread)

    assert type(thread.result) is exception


def test_a_body_that_swallows_it_is_told_again() -> None:
    heard = 0

    def deaf() -> int:
        nonlocal heard
        while heard < 3:
            try:
                while True:
                    work(0.001)
            except Stopped:
                heard += 1
        return heard

    thread = Thread(lambda gate: gate.run(deaf))
    with thread.running() as gate:
        for number in range(3):
            while not gate.raise_in_thread(Cancelled):
                time.sleep(0.001)
            while heard == number and thread.is_alive():
                time.sleep(0.001)

    assert thread.result == 3


def test_what_the_body_returns_and_raises_comes_through() -> None:
    assert Gate().run(lambda: 42) == 42

    def missing() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        Gate().run(missing)


def test_nothing_is_raised_before_the_body_and_after_it() -> None:
    gate = Gate()
    assert not gate.raise_in_thread(TimedOut)
    assert gate.run(lambda: work(0.001)) == "done"
    assert not gate.raise_in_thread(TimedOut)
    assert work(0.01) == "done"


def test_ten_thousand_bodies_that_end_when_they_are_to_stop() -> None:
    """The exception is raised as each body ends, and meanwhile again and again: it hits that body,
    or nothing. The next body and the code between two are never hit."""
    rounds = 10_000
    current: list[Gate | None] = [None]
    ends = [0.0]
    over = threading.Event()

    def raise_at_the_end() -> None:
        while not over.is_set():
            gate = current[0]
            if gate is not None and time.monotonic() >= ends[0]:
                gate.raise_in_thread(TimedOut)

    def bodies() -> tuple[int, int, int]:
        completed = stopped = strays = 0
        for number in range(rounds):
            gate = Gate()
            # Around the end: some are over just before it, some run on just after it.
            length = 0.0002 + (number % 20 - 10) * 0.00001
            ends[0] = time.monotonic() + 0.0002
            current[0] = gate
            try:
                gate.run(lambda length=length: work(length))
                completed += 1
            except TimedOut:
                stopped += 1
            # Our own code: an exception here would go through to the thread's end.
            gate = None
            strays += sum(range(20)) != 190
        return completed, stopped, strays

    raiser = threading.Thread(target=raise_at_the_end, daemon=True)
    thread = Thread(lambda _: bodies())
    raiser.start()
    thread.start()
    thread.join(55)
    over.set()
    raiser.join(5)

    assert isinstance(thread.result, tuple), repr(thread.result)
    completed, stopped, strays = thread.result
    assert completed + stopped == rounds
    assert strays == 0
    assert min(completed, stopped) > 100, "the race was not run"


# What arrives in a callback of the garbage collector is swallowed there, and insisting repairs it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_lock_is_left_behind() -> None:
    """logging takes its handlers' locks in Python code: an exception that arrives there would leave
    one locked, and the whole worker silent for good."""
    logger = logging.Logger("tests.interrupt")
    handler = logging.StreamHandler(io.StringIO())
    logger.addHandler(handler)
    over = threading.Event()

    def chatter() -> None:
        while True:
            logger.info("step")

    def neighbour() -> None:
        while not over.is_set():
            logger.info("me, too")
            time.sleep(0)

    neighbours = [threading.Thread(target=neighbour, daemon=True) for _ in range(2)]
    for each in neighbours:
        each.start()
    try:
        for _ in range(60):
            thread = Thread(lambda gate: gate.run(chatter))
            with thread.running() as gate:
                time.sleep(0.001)
                insist(gate, TimedOut, thread)
            assert isinstance(thread.result, TimedOut)
            assert handler.lock is not None
            assert handler.lock.acquire(timeout=5), "the lock was left locked"
            handler.lock.release()
    finally:
        over.set()


COLLECTED_WHILE_LOOKING = """
import gc, threading, time
from jobqueue import TimedOut
from jobqueue.interrupt import Gate

gates, made, over = [], threading.Barrier(2), threading.Event()

def body():
    gate = Gate()
    gates.append(gate)
    made.wait()
    gate.run(over.wait)

threading.Thread(target=body, daemon=True).start()
made.wait()

def start_threads():
    # Who starts a thread needs the same lock of the interpreter's.
    while not over.is_set():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

starter = threading.Thread(target=start_threads)
starter.start()
# A collection at every other object, each of which lets other threads run.
gc.callbacks.append(lambda phase, info: time.sleep(0))
gc.set_threshold(1, 1, 1)
for _ in range(2_000):
    assert not gates[0].raise_in_thread(TimedOut)  # it waits in threading's own code
assert gc.isenabled()
over.set()
starter.join()
print("done")
"""


def test_a_collection_in_the_midst_of_it_stops_nothing() -> None:
    """In a process of its own: where it goes wrong, not even a signal ends that."""
    ran = subprocess.run(
        [sys.executable, "-c", COLLECTED_WHILE_LOOKING],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.stdout == "done\n", ran.stderr
