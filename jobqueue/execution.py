"""What one attempt is: function in, outcome out. Knows nothing of the database."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from jobqueue import backoff, conf, signals
from jobqueue.attempts import Attempt, Ending, Outcome
from jobqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, task_started
from jobqueue.compat import Task as AnyTask
from jobqueue.context import JobContext
from jobqueue.exceptions import (
    LeaseLost,
    PermanentError,
    Retry,
    Snooze,
    Stopped,
    TaskNotFound,
    TimedOut,
)
from jobqueue.interrupt import Gate
from jobqueue.lifecycle import Note
from jobqueue.paths import resolve
from jobqueue.results import running_result
from jobqueue.task import Policy, policy
from jobqueue.texts import describe_exception, storable_text
from jobqueue.values import Unreadable, normalize

#: Seconds between two calls to stop, to a job that has not let go.
INSIST_EVERY = 0.5
#: Seconds after which to try again where it could not be told without doing harm.
AGAIN_SOON = 0.01

#: How an atomic task's transaction is opened and its job completed in it (see lifecycle).
Atomically = Callable[[Attempt], AbstractContextManager[Callable[[Any], None]]]


class Run:
    """One attempt while it runs: what its slot, its context and those who stop it share.

    `stopped` is why it was told to stop, None while it was not, and `told_at` when it last was. `wanted` is why it
    is to be told so now, `deadline` the moment (of time.monotonic) at which it will be anyway; it `began` when it was
    claimed.
    """

    __slots__ = (
        "_asyncio_task",
        "_gate",
        "_loop",
        "_take_note",
        "atomically",
        "attempt",
        "began",
        "deadline",
        "stopped",
        "told_at",
        "wanted",
    )

    def __init__(
        self,
        attempt: Attempt,
        take_note: Callable[[Note], None],
        atomically: Atomically,
    ) -> None:
        self.attempt = attempt
        self.atomically = atomically
        self.stopped: type[Stopped] | None = None
        self.wanted: type[Stopped] | None = None
        self.told_at = 0.0
        self.began = time.monotonic()
        self.deadline = float("inf") if attempt.timeout is None else self.began + attempt.timeout
        self._take_note = take_note
        self._gate: Gate | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asyncio_task: asyncio.Task[Any] | None = None

    def note(self, note: Note) -> None:
        """Pass on what the task says of itself."""
        self._take_note(note)

    def stop(self, why: type[Stopped]) -> None:
        """Tell the task's code to stop. The first reason stays; telling again insists."""
        self.told_at = time.monotonic()
        self.stopped = self.stopped or why
        gate, loop = self._gate, self._loop
        if gate is not None:
            if not gate.raise_in_thread(self.stopped):
                self.told_at += AGAIN_SOON - INSIST_EVERY
        elif loop is not None:
            # A loop that was made for this run alone is closed when the run has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # On the loop's own thread, like the end of the body: so it cannot hit what comes after.
        if self._asyncio_task is not None:
            self._asyncio_task.cancel()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a sync body in this thread; it can be interrupted until it has ended."""
        gate = self._gate = Gate()

        def body() -> Any:
            if self.stopped is not None:  # before the gate was open
                raise self.stopped
            return function()

        return gate.run(body)

    @property
    def insist_at(self) -> float:
        """When (time.monotonic) to tell a task again that was told to stop and has not."""
        return self.told_at + INSIST_EVERY

    async def wait_for(self, function: Callable[[], Any]) -> Any:
        """Await an async body; it can be cancelled until it has ended."""
        self._asyncio_task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        try:
            if self.stopped is not None:
                raise self.stopped
            return await function()
        finally:
            self._asyncio_task = self._loop = None


async def execute(run: Run) -> Outcome:
    """Run one attempt in its slot and say how it ended. Raises nothing, whatever the task does.

    A coroutine that never waits when the task's function is sync, so that a thread without an
    event loop can run it too: see `run_to_end`.
    """
    attempt = run.attempt
    try:
        task = resolve(attempt.task_path)
    except TaskNotFound as error:
        return _failure(Ending.NOT_FOUND, run, error)
    try:
        return await _run_body(run, task)
    except BaseException as error:
        # GeneratorExit, SystemExit and the like included: nothing a task raises ends its worker.
        try:
            return _judge(run, policy(task), error)
        except BaseException as mistake:  # made by the exception's own code
            outcome = broken(run, error)
            outcome.data["judging"] = describe_exception(mistake).short
            return outcome


def broken(run: Run, error: BaseException) -> Outcome:
    """The outcome of an attempt that failed beyond the rules of its task: it is tried again."""
    outcome = _failure(Ending.ERRORED, run, error)
    outcome.delay = backoff.by_settings(run.attempt.spent)
    return outcome


def run_to_end(run: Run) -> Outcome:
    """`execute` for a thread without an event loop."""
    if is_async(run.attempt.task_path):
        return async_to_sync(execute)(run)
    coroutine = execute(run)
    try:
        coroutine.send(None)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    coroutine.close()
    raise RuntimeError(f"{run.attempt.task_path} is not async, but waited")


def is_async(task_path: str) -> bool:
    """Whether the task's function is async. Imports it; False if it is not found."""
    try:
        return iscoroutinefunction(resolve(task_path).func)
    except TaskNotFound:
        return False


async def _run_body(run: Run, task: AnyTask[..., Any]) -> Outcome:
    attempt = run.attempt
    _check_arguments(attempt)
    args = attempt.args
    if task.takes_context:
        result = running_result(attempt, task, conf.alias() or DEFAULT_TASK_BACKEND_ALIAS)
        args = [JobContext(task_result=result, run=run), *args]
    body = functools.partial(task.func, *args, **attempt.kwargs)
    if iscoroutinefunction(task.func):
        if signals.has_others(task_started):
            await sync_to_async(signals.started)(attempt, task)
        else:  # a line in the log, at most, is not worth a thread
            signals.started(attempt, task)
        return _success(run, await run.wait_for(body))
    signals.started(attempt, task)
    if not policy(task).atomic:
        return _success(run, run.call(body))
    outcome = Outcome(attempt, Ending.COMPLETED)
    completing = False
    try:
        with run.atomically(attempt) as complete:
            outcome = _success(run, run.call(body))
            if outcome.ending is not Ending.COMPLETED:
                raise _Unstorable
            completing = True
            complete(outcome.return_value)
        outcome.written = True
    except _Unstorable:
        pass
    except LeaseLost as error:
        if not completing:
            raise
        run.stop(LeaseLost)
        return _judge(run, policy(task), error)
    except BaseException as error:
        if not completing:
            raise
        # The COMMIT failed, or only its answer was lost: whoever writes the outcome will see.
        outcome = _judge(run, policy(task), error)
        outcome.may_be_completed = True
    return outcome


def _check_arguments(attempt: Attempt) -> None:
    """Raise what ends an attempt whose arguments this process cannot read."""
    for name, value, kind in (("args", attempt.args, list), ("kwargs", attempt.kwargs, dict)):
        if not isinstance(value, kind):
            reason = value.reason if isinstance(value, Unreadable) else f"not a {kind.__name__}"
            raise ValueError(f"The job's {name} cannot be read: {reason}")


class _Unstorable(Exception):
    """Rolls back the transaction of an atomic task whose return value cannot be kept."""


def _success(run: Run, value: Any) -> Outcome:
    try:
        return Outcome(run.attempt, Ending.COMPLETED, return_value=normalize(value, "return value"))
    except (TypeError, ValueError) as error:
        # To run it again would do the work again and end in the same way.
        outcome = _failure(Ending.ERRORED, run, error)
        outcome.final = True
        outcome.error = f"The task ran, but what it returned cannot be stored. {error}"
        outcome.data["return_value"] = _shown(value)
        return outcome
    except BaseException as error:
        outcome = _failure(Ending.ERRORED, run, error)
        outcome.final = True
        return outcome


def _shown(value: Any) -> str:
    try:
        return storable_text(repr(value), 2_000)
    except BaseException:  # a repr may do anything; the outcome must be recorded
        return f"<{type(value).__name__} whose repr failed>"


def _failure(ending: Ending, run: Run, error: BaseException) -> Outcome:
    described = describe_exception(error)
    return Outcome(
        run.attempt,
        ending,
        error=described.short,
        exception=error,
        data={"exception": described.class_path, "traceback": described.traceback},
    )


def _judge(run: Run, rules: Policy, error: BaseException) -> Outcome:
    """What an exception means: told to stop, asked to be run later, or an error."""
    if run.stopped is TimedOut:
        outcome = _failure(Ending.TIMED_OUT, run, error)
        limit = run.attempt.timeout
        outcome.error = f"TimedOut: the attempt ran longer than its timeout of {limit:g} s"
        outcome.data["exception"] = "jobqueue.TimedOut"
        outcome.final = any(issubclass(TimedOut, each) for each in rules.give_up_on)
        outcome.delay = backoff.by_settings(run.attempt.spent)
        return outcome
    if run.stopped is not None:
        return Outcome(run.attempt, Ending.RELEASED, data={"reason": run.stopped.__name__})
    if isinstance(error, Snooze):
        delay, reason = backoff.clamped(error.after), describe_exception(error).short
        return Outcome(run.attempt, Ending.SNOOZED, delay=delay, data={"reason": reason})
    outcome = _failure(Ending.ERRORED, run, error)
    if isinstance(error, Retry):
        after = error.after
        outcome.delay = _delay(outcome, rules, error) if after is None else backoff.clamped(after)
        return outcome
    outcome.final = isinstance(error, (PermanentError, *rules.give_up_on)) or (
        bool(rules.retry_on) and not isinstance(error, rules.retry_on)
    )
    if not outcome.final:
        outcome.delay = _delay(outcome, rules, error)
    return outcome


def _delay(outcome: Outcome, rules: Policy, error: BaseException) -> float:
    """Seconds until the next attempt, by the task's own function where it has one."""
    spent = outcome.attempt.spent
    if rules.backoff is None:
        return backoff.by_settings(spent)
    try:
        delay = rules.backoff(spent, error)
        if delay is None:
            outcome.final = True
            return 0.0
        return backoff.clamped(delay)
    except BaseException as mistake:  # the task's own code; its error must not hide the first one
        outcome.data["backoff_error"] = describe_exception(mistake).short
        return backoff.by_settings(spent)
