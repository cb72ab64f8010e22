"""What one attempt is, without a database: function in, outcome out."""

from __future__ import annotations

import datetime
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jobqueue import (
    Cancelled,
    LeaseLost,
    PermanentError,
    Retry,
    Snooze,
    Stopped,
    TimedOut,
    backoff,
    ids,
    task,
)
from jobqueue.attempts import Attempt, Ending, Outcome
from jobqueue.compat import TASKS_MODULE, task_started
from jobqueue.execution import Run, is_async, run_to_end
from jobqueue.slots import Slots
from tests.processes import odd

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def attempt(path: str, *args: Any, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": ids.uuid7(),
        "task_path": path,
        "args": list(args),
        "kwargs": {},
        "queue_name": "default",
        "priority": 0,
        "attempt": 1,
        "given_back": 0,
        "max_attempts": 5,
        "timeout": None,
        "idempotency_key": None,
        "run_after": NOW,
        "enqueued_at": NOW,
        "started_at": NOW,
        "attempted_at": NOW,
        "owner": uuid4(),
        "worker": "host:1:00000000",
    }
    return Attempt(**(values | changes))


def no_transaction(_: Attempt) -> Any:
    raise AssertionError("only atomic tasks have a transaction")


def run(path: str, *args: Any, atomically: Any = no_transaction, **changes: Any) -> Outcome:
    return run_to_end(Run(attempt(path, *args, **changes), notes.append, atomically))


notes: list[Any] = []


@pytest.fixture(autouse=True)
def _options(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_TEST_EVENTS", str(tmp_path / "events"))
    options = {"backoff_base": 2.0, "backoff_max": 3600.0}
    settings.TASKS = {"default": settings.TASKS["default"] | {"OPTIONS": options}}


# Tasks of this module.

ERROR: list[Any] = []
HERE = __name__


def backoff_of(attempt: int, error: BaseException) -> Any:
    answer = ERROR[0]
    return answer(attempt, error) if callable(answer) else answer


@task(backoff=backoff_of)
def with_backoff() -> None:
    raise ValueError("its error")


@task(backoff=backoff_of)
def retrying_with_backoff() -> None:
    raise Retry("its wish")


@task
def raising_it() -> None:
    raise ERROR[0]


@task
async def raising_it_async() -> None:
    raise ERROR[0]


@task(give_up_on=[TimedOut])
def impatient() -> None:
    while True:
        sum(range(10))


@task
def spinning(seconds: float) -> float:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10))
    return seconds


@task
def adding(a: int, b: int) -> int:
    return a + b


@task(atomic=True)
def all_or_nothing(value: Any = 1) -> Any:
    if isinstance(value, str):
        raise PermanentError(value)
    return {1, 2} if value is None else value


def spent_delay(spent: int) -> tuple[float, float]:
    middle = min(2.0 * 2.0 ** min(spent - 1, 60), 3600.0)
    return middle * 0.9, min(middle * 1.1, 3600.0)


# Success.


def test_success() -> None:
    outcome = run(f"{HERE}.adding", 2, 3)
    assert (outcome.ending, outcome.return_value, outcome.error) == (Ending.COMPLETED, 5, "")


@pytest.mark.parametrize("path", [f"{HERE}.adding", "tests.tasks_sample.async_add"])
def test_arguments_that_do_not_fit(path: str) -> None:
    """An argument was removed since the job was enqueued: its name is in the error."""
    outcome = run(path, 1, kwargs={"colour": "red"})
    assert outcome.ending is Ending.ERRORED
    assert "colour" in outcome.error
    assert not outcome.final


# Return values that cannot be stored.


@pytest.mark.parametrize("kind", odd.RETURNS)
def test_a_return_value_that_cannot_be_stored(kind: str) -> None:
    outcome = run("tests.processes.odd.returning", kind)

    assert outcome.ending is Ending.ERRORED
    assert outcome.final, "to run it again would do the work twice"
    assert "what it returned cannot be stored" in outcome.error
    assert "\0" not in outcome.error
    outcome.data["return_value"].encode()


def test_five_megabytes_are_returned() -> None:
    outcome = run("tests.processes.odd.returning_much", 5_000_000)
    assert outcome.return_value == "x" * 5_000_000


# Exceptions.


@pytest.mark.parametrize("kind", odd.RAISES)
@pytest.mark.parametrize("name", ["raising", "raising_async"])
def test_whatever_a_task_raises_is_recorded(name: str, kind: str) -> None:
    outcome = run(f"tests.processes.odd.{name}", kind)

    assert outcome.ending is Ending.ERRORED
    assert outcome.error
    assert len(outcome.error) <= 300
    assert len(outcome.data["traceback"]) <= 50_000
    for text in (outcome.error, outcome.data["traceback"], outcome.data["exception"]):
        assert "\0" not in text
        text.encode()  # no lone surrogates


def test_the_traceback_begins_with_the_task() -> None:
    outcome = run("tests.processes.odd.raising", "plain")
    frames = [line for line in outcome.data["traceback"].splitlines() if "File" in line]
    assert frames[0].endswith("in raising")


# What an error means.


@pytest.mark.parametrize("path", [f"{HERE}.raising_it", f"{HERE}.raising_it_async"])
def test_permanent_error_retry_and_snooze(path: str) -> None:
    ERROR[:] = [PermanentError("no")]
    assert run(path).final
    ERROR[:] = [Retry("later", after=17)]
    outcome = run(path)
    assert (outcome.ending, outcome.delay, outcome.final) == (Ending.ERRORED, 17.0, False)
    ERROR[:] = [Retry("later", after=datetime.timedelta(minutes=2))]
    assert run(path).delay == 120.0
    ERROR[:] = [Snooze("not now", after=5)]
    outcome = run(path)
    assert (outcome.ending, outcome.delay, outcome.error) == (Ending.SNOOZED, 5.0, "")


@pytest.mark.parametrize(
    ("error", "final"),
    [
        ("Flaky", False),
        ("VeryFlaky", False),
        ("Hopeless", True),
        ("QuiteHopeless", True),
        ("ValueError", True),
    ],
)
def test_retry_on_and_give_up_on_hold_for_subclasses(error: str, final: bool) -> None:
    assert run("tests.processes.odd.choosy", error).final is final


@pytest.mark.parametrize("spent", [1, 2, 20, 60, 1_100, 30_000])
def test_the_delay_is_bounded_however_often_it_failed(spent: int) -> None:
    outcome = run("tests.processes.odd.raising", "plain", attempt=spent, max_attempts=32_767)
    low, high = spent_delay(spent)
    assert low <= outcome.delay <= high


def test_snoozes_do_not_count_for_the_delay() -> None:
    outcome = run("tests.processes.odd.raising", "plain", attempt=21, given_back=20)
    low, high = spent_delay(1)
    assert low <= outcome.delay <= high


@pytest.mark.parametrize(
    ("answer", "delay"),
    [
        (7, 7.0),
        (0, 0.0),
        (-3, 0.0),
        (math.inf, backoff.MAX_DELAY),
        (-math.inf, 0.0),
        (5**600, backoff.MAX_DELAY),
        (lambda attempt, error: attempt + len(str(error)), 2 + len("its error")),
    ],
    ids=["whole", "zero", "negative", "endless", "minus endless", "huge", "by attempt and error"],
)
def test_a_backoff_of_the_tasks_own(answer: Any, delay: float) -> None:
    ERROR[:] = [answer]
    outcome = run(f"{HERE}.with_backoff", attempt=5, given_back=3)
    assert outcome.delay == delay
    assert not outcome.final


def test_a_backoff_that_gives_up() -> None:
    ERROR[:] = [None]
    assert run(f"{HERE}.with_backoff").final
    assert run(f"{HERE}.retrying_with_backoff").final


def _fails(attempt: int, error: BaseException) -> float:
    raise SystemExit("a mistake")


@pytest.mark.parametrize("answer", [math.nan, "soon", b"1", [], object(), 1j, _fails])
@pytest.mark.parametrize("name", ["with_backoff", "retrying_with_backoff"])
def test_a_backoff_with_a_mistake(name: str, answer: Any) -> None:
    """The settings' backoff is used, and the task's own error stays the error."""
    ERROR[:] = [answer]
    outcome = run(f"{HERE}.{name}", attempt=4, given_back=1)
    low, high = spent_delay(3)
    assert low <= outcome.delay <= high
    assert not outcome.final
    assert "its " in outcome.error
    assert outcome.data["backoff_error"]


# Not found.


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tests.no_such_module.f", "no module tests.no_such_module"),
        ("tests.processes.odd.no_such_task", "has no no_such_task"),
        ("os.system", "not a task"),
        ("builtins.eval", "not a task"),
        ("__main__.f", "script"),
        ("odd_syntax.f", "SyntaxError"),
        ("odd_exits.f", "SystemExit"),
        ("odd_raises.f", "RuntimeError"),
        ("odd_evasive.f", "not here"),
        ("odd_imports.f", "no_such_library"),
        ("nowhere", "not the path"),
        ("", "not the path"),
        (".", "not the path"),
        ("..f", "import"),
        ("a b.c", "module"),
        ("\0.f", ""),
    ],
)
def test_what_is_not_found_says_what(
    path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd.write_modules(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run(path)
    assert outcome.ending is Ending.NOT_FOUND
    assert words in outcome.error
    assert outcome.data["exception"] == "jobqueue.TaskNotFound"


# Told to stop.


def stopped_while_running(path: str, why: type[Stopped], *args: Any, **changes: Any) -> Outcome:
    a_run = Run(attempt(path, *args, **changes), notes.append, no_transaction)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run_to_end(a_run)), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < deadline:
        a_run.stop(why)
        thread.join(0.02)
    return outcomes[0]


@pytest.mark.parametrize(
    ("path", "arguments"),
    [(f"{HERE}.spinning", [60]), ("tests.processes.odd.stubborn", []), (f"{HERE}.impatient", [])],
)
@pytest.mark.parametrize(
    ("why", "ending"),
    [
        (TimedOut, Ending.TIMED_OUT),
        (Cancelled, Ending.RELEASED),
        (LeaseLost, Ending.RELEASED),
        (Stopped, Ending.RELEASED),
    ],
)
def test_told_to_stop(path: str, arguments: list[Any], why: type[Stopped], ending: Ending) -> None:
    outcome = stopped_while_running(path, why, *arguments, timeout=2.5)
    assert outcome.ending is ending
    if ending is Ending.TIMED_OUT:
        assert "2.5 s" in outcome.error
        assert outcome.final is path.endswith("impatient")
        low, high = spent_delay(1)
        assert outcome.final or low <= outcome.delay <= high


def test_an_async_task_is_told_to_stop() -> None:
    outcome = stopped_while_running("tests.processes.tasks.waiting", TimedOut, 60, timeout=1)
    assert outcome.ending is Ending.TIMED_OUT


@pytest.mark.parametrize("path", [f"{HERE}.spinning", "tests.processes.tasks.waiting"])
def test_told_before_it_began(path: str) -> None:
    a_run = Run(attempt(path, 60), notes.append, no_transaction)
    a_run.stop(Cancelled)
    assert run_to_end(a_run).ending is Ending.RELEASED


@pytest.mark.parametrize("path", [f"{HERE}.where", f"{HERE}.where_async"])
def test_told_after_its_end(path: str) -> None:
    a_run = Run(attempt(path), notes.append, no_transaction)
    assert run_to_end(a_run).ending is Ending.COMPLETED
    a_run.stop(TimedOut)  # by a clock that has not heard of the end


def test_the_first_reason_stays() -> None:
    a_run = Run(attempt(f"{HERE}.spinning", 60, timeout=1), notes.append, no_transaction)
    a_run.stop(TimedOut)
    a_run.stop(Stopped)
    assert a_run.stopped is TimedOut
    assert run_to_end(a_run).ending is Ending.TIMED_OUT


# Deadlines that come as the job ends.


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns more often than usual: the races are run more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def test_jobs_that_end_at_their_deadline_hit_no_other(hasty: None) -> None:
    """Each job is told to stop at its deadline, which is about when it ends. Every one has an
    outcome of its own, and neither its thread nor the jobs without a deadline notice."""
    count, size = 3_000, 4
    ended = threading.Semaphore(0)
    slots = Slots(size, ended.release)
    outcomes: list[tuple[Run, Outcome]] = []
    waiting = [
        Run(
            attempt(f"{HERE}.spinning", 0.001, timeout=None if number % 10 == 0 else 0.001),
            notes.append,
            no_transaction,
        )
        for number in range(count)
    ]
    until = time.monotonic() + 50
    while len(outcomes) < count and time.monotonic() < until:
        while waiting and slots.free:
            a_run = waiting.pop()
            if a_run.attempt.timeout is not None:
                a_run.deadline = time.monotonic() + 0.001 + (len(waiting) % 12) * 0.001
            slots.start(a_run)
        now = time.monotonic()
        for a_run in list(slots.running.values()):
            if now >= a_run.deadline and now >= a_run.insist_at:
                a_run.stop(TimedOut)
        outcomes += slots.take_ended()
    slots.close()

    assert len(outcomes) == count, f"{len(slots.running)} never ended"
    endings = {True: 0, False: 0}
    for a_run, outcome in outcomes:
        assert outcome.attempt is a_run.attempt
        if a_run.attempt.timeout is None:
            assert outcome.ending is Ending.COMPLETED
        else:
            assert outcome.ending in (Ending.COMPLETED, Ending.TIMED_OUT), outcome.error
            endings[outcome.ending is Ending.COMPLETED] += 1
    assert min(endings.values()) > 50, f"the race was not run: {endings}"


meeting = threading.Barrier(8, timeout=20)


@task
def meeting_others() -> str:
    """Ends only if seven others run at the same time."""
    meeting.wait()
    return threading.current_thread().name


def test_as_many_run_side_by_side_as_there_are_slots() -> None:
    """Also after a row of short ones that one thread has run."""
    ended = threading.Semaphore(0)
    slots = Slots(8, ended.release)

    def outcomes(path: str, count: int) -> list[Outcome]:
        for _ in range(count):
            slots.start(Run(attempt(path), notes.append, no_transaction))
        found: list[tuple[Run, Outcome]] = []
        while len(found) < count and ended.acquire(timeout=20):
            found += slots.take_ended()
        return [outcome for _, outcome in found]

    for _ in range(20):
        short = outcomes(f"{HERE}.where", 8)
        assert {each.ending for each in short} == {Ending.COMPLETED}
        together = outcomes(f"{HERE}.meeting_others", 8)
        assert len({each.return_value for each in together}) == 8
    threads = [each.name for each in threading.enumerate() if each.name.startswith("jobqueue-slot")]
    assert len(threads) >= 8
    slots.close()


@task
def where() -> str:
    return threading.current_thread().name


@task
async def where_async() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("others", [False, True], ids=["Django's log alone", "a receiver"])
def test_a_line_about_an_async_job_costs_no_thread(
    others: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Receivers may ask the database, which no code on the loop may; Django's own only writes its line."""
    heard_in: list[str] = []

    def hear(**_: Any) -> None:
        heard_in.append(threading.current_thread().name)

    if others:
        task_started.connect(hear)
    slots = Slots(1, (ended := threading.Semaphore(0)).release)
    try:
        with caplog.at_level("INFO", TASKS_MODULE):
            slots.start(Run(attempt(f"{HERE}.where_async"), notes.append, no_transaction))
            assert ended.acquire(timeout=20)
    finally:
        task_started.disconnect(hear)
        slots.close()
    (line,) = [each for each in caplog.records if "where_async" in each.getMessage()]
    assert (line.threadName == "jobqueue-loop") is not others
    assert [each == "jobqueue-loop" for each in heard_in] == [False] * others


def loops() -> set[threading.Thread]:
    """The threads of event loops that there are."""
    return {each for each in threading.enumerate() if each.name == "jobqueue-loop"}


def test_async_jobs_of_a_new_task_all_run_on_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were started before anyone knew that the task is async."""
    before, ended, path = loops(), threading.Semaphore(0), f"{HERE}.where_async"
    slots = Slots(9, ended.release)
    all_look = threading.Barrier(8, timeout=20)

    def looked_at_together(path: str) -> bool:
        all_look.wait()
        return is_async(path)

    with monkeypatch.context() as patch:
        patch.setattr("jobqueue.slots.is_async", looked_at_together)
        for _ in range(8):
            slots.start(Run(attempt(path), notes.append, no_transaction))
        for _ in range(8):
            assert ended.acquire(timeout=20)
    # One that had been put to the threads before, and is looked at only now.
    late = Run(attempt(path), notes.append, no_transaction)
    slots.running[late.attempt.pair] = late
    slots._pool.start(late)
    assert ended.acquire(timeout=20)
    assert {each.return_value for _, each in slots.take_ended()} == {"jobqueue-loop"}
    (loop,) = loops() - before
    slots.close()
    loop.join(20)


def test_a_slot_outlives_whatever_happens_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Semaphore(0)
    slots = Slots(1, ended.release)

    def next_outcome(path: str, *args: Any) -> Outcome:
        slots.start(Run(attempt(path, *args), notes.append, no_transaction))
        assert ended.acquire(timeout=20)
        [(_, outcome)] = slots.take_ended()
        assert slots.free == 1
        return outcome

    with monkeypatch.context() as patch:

        def interrupted() -> None:
            raise SystemExit("from a connection's backend")

        patch.setattr("jobqueue.slots.close_old_connections", interrupted)
        outcome = next_outcome(f"{HERE}.adding", 1, 2)
        assert (outcome.ending, outcome.final) == (Ending.ERRORED, False)
    assert next_outcome(f"{HERE}.adding", 1, 2).return_value == 3
    slots.close()


# All or nothing.


def handed(fails: BaseException | None, happened: list[str]) -> Callable[[Attempt], Any]:
    """The step that an atomic task is handed; `fails` is what its completion raises."""

    @contextmanager
    def atomically(_: Attempt) -> Iterator[Callable[[Any], None]]:
        def complete(value: Any) -> None:
            happened.append(f"complete {value}")
            if fails is not None:
                raise fails

        try:
            yield complete
        except BaseException:
            happened.append("rollback")
            raise
        happened.append("commit")

    return atomically


def test_an_atomic_task_completes_its_job_itself() -> None:
    happened: list[str] = []
    outcome = run(f"{HERE}.all_or_nothing", 7, atomically=handed(None, happened))
    assert happened == ["complete 7", "commit"]
    assert outcome.written
    assert outcome.ending is Ending.COMPLETED


@pytest.mark.parametrize(("value", "words"), [("its own", "its own"), (None, "cannot be stored")])
def test_an_atomic_task_that_fails_is_rolled_back(value: Any, words: str) -> None:
    happened: list[str] = []
    outcome = run(f"{HERE}.all_or_nothing", value, atomically=handed(None, happened))
    assert happened == ["rollback"]
    assert not outcome.written
    assert outcome.ending is Ending.ERRORED
    assert words in outcome.error


def test_an_atomic_task_whose_lease_is_gone() -> None:
    happened: list[str] = []
    outcome = run(f"{HERE}.all_or_nothing", atomically=handed(LeaseLost("gone"), happened))
    assert happened == ["complete 1", "rollback"]
    assert not outcome.written
    assert outcome.ending is Ending.RELEASED


def test_an_atomic_task_whose_commit_has_no_answer() -> None:
    happened: list[str] = []
    outcome = run(f"{HERE}.all_or_nothing", atomically=handed(OSError("cut"), happened))
    assert not outcome.written
    assert outcome.may_be_completed
    assert outcome.ending is Ending.ERRORED
