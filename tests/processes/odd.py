"""Tasks that end in every odd way, and tasks that leave something behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone, translation

from jobqueue import Cancelled, PermanentError, Retry, Snooze, Stopped, TimedOut, task
from jobqueue.context import JobContext
from tests.app.models import Effect
from tests.processes.tasks import record, wait_for_file

# What a task may return.

RETURNS: dict[str, Any] = {
    "nan": lambda: float("nan"),
    "nul": lambda: "a\0b",
    "surrogate": lambda: "a\ud800b",
    "set": lambda: {1, 2},
    "object": object,
    "deep": lambda: _deep(),
    "keys": lambda: {1: "a"},
    "circular": lambda: _circular(),
}


def _deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


def _circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@task(takes_context=True)
def returning(context: JobContext, kind: str) -> Any:
    record("begin", context)
    return RETURNS[kind]()


@task
def returning_much(size: int) -> str:
    return "x" * size


@task
def asking(times: int) -> int:
    """Ask the database a few times, and leave no word of it."""
    return sum(Effect.objects.count() for _ in range(times))


@task(max_attempts=1)
def failing_deep_down(depth: int) -> None:
    """Fail, with a traceback of that many frames, each of which holds something."""
    kept = [depth] * 100
    if not depth:
        raise ValueError(f"deep down with {len(kept)} numbers")
    failing_deep_down.func(depth - 1)


@task
async def nothing_async() -> None:
    """End at once."""


@task(takes_context=True)
def taking(context: JobContext, number: Any) -> None:
    record("begin", context)


# What a task may raise.


class NeedsArguments(Exception):
    """One that pickle cannot make again, and that holds what cannot be stored."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.lock = threading.Lock()


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Base(BaseException):
    """Not an Exception."""


class Evil(BaseException):
    """One that does not let itself be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit("looked at")


class SnoozeWithoutDelay(Snooze):
    def __init__(self) -> None:
        Exception.__init__(self, "forgot to say for how long")


def _recursion() -> None:
    _recursion()


def _raise(error: BaseException) -> None:
    raise error


RAISES: dict[str, Any] = {
    "plain": lambda: _raise(ValueError("glāžš 🐟")),
    "nul": lambda: _raise(ValueError("bad byte \0 here")),
    "surrogate": lambda: _raise(ValueError("bad \ud800 here")),
    "bytes": lambda: _raise(ValueError(b"\xff\x00")),
    "broken_text": lambda: _raise(BrokenText()),
    "long": lambda: _raise(ValueError("x" * 10_000_000)),
    "system_exit": lambda: sys.exit(),
    "system_exit_3": lambda: sys.exit(3),
    "keyboard_interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator_exit": lambda: _raise(GeneratorExit()),
    "cancelled_error": lambda: _raise(asyncio.CancelledError()),
    "stop_iteration": lambda: _raise(StopIteration(1)),
    "stop_async_iteration": lambda: _raise(StopAsyncIteration()),
    "timed_out": lambda: _raise(TimedOut("by itself")),
    "cancelled": lambda: _raise(Cancelled("by itself")),
    "stopped": lambda: _raise(Stopped()),
    "recursion": _recursion,
    "memory": lambda: _raise(MemoryError()),
    "unpicklable": lambda: _raise(NeedsArguments(1, detail="x")),
    "base": lambda: _raise(Base("base")),
    "evil": lambda: _raise(Evil()),
    "snooze_without_delay": lambda: _raise(SnoozeWithoutDelay()),
    "group": lambda: _raise(BaseExceptionGroup("two", [ValueError("a"), SystemExit(1)])),
    "integrity": lambda: _raise(IntegrityError("not the database's own")),
}


@task(max_attempts=1, takes_context=True)
def raising(context: JobContext, kind: str) -> None:
    record("begin", context)
    RAISES[kind]()


@task(max_attempts=1, takes_context=True)
async def raising_async(context: JobContext, kind: str) -> None:
    record("begin", context)
    await asyncio.sleep(0)
    RAISES[kind]()


async def _exit() -> None:
    sys.exit(5)


async def _cancel_later(victim: asyncio.Task[Any] | None) -> None:
    if victim is not None:
        victim.cancel()


#: What an async task may do to the loop that it shares with others.
LOOP_BREAKERS: dict[str, Any] = {}


def _loop_breaker(function: Any) -> Any:
    LOOP_BREAKERS[function.__name__] = function
    return function


@_loop_breaker
async def exit_in_a_task() -> None:
    """SystemExit in a task of one's own goes through the event loop."""
    await asyncio.create_task(_exit())


@_loop_breaker
async def exit_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_exit())


@_loop_breaker
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    raise PermanentError("stopped it")


@_loop_breaker
async def cancel_itself() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(5)


@_loop_breaker
async def cancel_itself_too_late() -> None:
    """The cancellation arrives when the body is over: in our own code, were it not kept off."""
    await sync_to_async(Effect.objects.count)()
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    raise PermanentError("cancelled myself")


@task(max_attempts=1, takes_context=True)
async def breaking_the_loop(context: JobContext, how: str) -> None:
    record("begin", context)
    await LOOP_BREAKERS[how]()


@task(max_attempts=1, takes_context=True)
def exiting_at_once(context: JobContext) -> None:
    """End the process without a word."""
    record("begin", context)
    os._exit(3)


# Deadlines.


@task(takes_context=True)
def stubborn(context: JobContext) -> None:
    """A loop that swallows every error."""
    record("begin", context)
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            record("swallowed", context)


@task(takes_context=True)
def deaf_once(context: JobContext) -> None:
    """Swallow what it is told the first time."""
    record("begin", context)
    try:
        while True:
            time.sleep(0.001)
    except Stopped:
        record("swallowed", context)
    while True:
        time.sleep(0.001)


@task(takes_context=True)
async def deaf_once_async(context: JobContext) -> None:
    """The same on the event loop."""
    record("begin", context)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        record("swallowed", context)
    await asyncio.sleep(60)


@task(takes_context=True)
async def stubborn_async(context: JobContext) -> None:
    """Async code that swallows its cancellation."""
    record("begin", context)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            record("swallowed", context)


@task(takes_context=True)
async def blocking_the_loop(context: JobContext, seconds: float) -> None:
    """Async code that lets nobody else run."""
    record("begin", context)
    time.sleep(seconds)


@task(takes_context=True)
async def blocking_beside_the_loop(context: JobContext, seconds: float) -> None:
    """Async code whose sync part goes on although it was cancelled."""
    record("begin", context)
    await sync_to_async(time.sleep)(seconds)


@task(takes_context=True)
def beating(context: JobContext) -> None:
    """Tell all the time that it still runs, and swallow whatever it is told."""
    record("begin", context)
    while True:
        try:
            while True:
                record("beat", context)
                time.sleep(0.02)
        except BaseException:
            record("swallowed", context)


@task(takes_context=True)
async def until_async(context: JobContext, name: str) -> str:
    """`until` on the event loop."""
    record("begin", context)
    path = Path(os.environ["JOBQUEUE_TEST_EVENTS"]).with_name(name)
    while not path.exists():
        await asyncio.sleep(0.01)
    record("end", context)
    return name


@task(takes_context=True)
def in_c_code(context: JobContext) -> None:
    """A call into C that lets others run, and never returns."""
    record("begin", context)
    ctypes.CDLL(None).pause()


@task(takes_context=True)
def chatty(context: JobContext, lines: int, how: str) -> None:
    """Say some lines, then end as told."""
    record("begin", context)
    with transaction.atomic():
        for number in range(1, lines + 1):
            context.log(f"line {number}")
            Effect.objects.create(key=f"line {number}")
        if how == "raise":
            raise PermanentError("after its lines")
    if how == "hang":
        time.sleep(60)


# Cancellation.


@task(takes_context=True)
def ending_as(context: JobContext, name: str, how: str) -> str:
    """Wait for the file `name`, then end as told."""
    record("begin", context)
    wait_for_file(name)
    record("end", context)
    if how == "exception":
        raise ValueError("after it was cancelled")
    if how == "retry":
        raise Retry("after it was cancelled", after=0)
    if how == "snooze":
        raise Snooze(after=0)
    if how == "crash":
        os.kill(os.getpid(), 9)
    return how


@task(takes_context=True)
def looking(context: JobContext) -> None:
    """Say how one hears of a cancellation, and only then give in."""
    record("begin", context)
    while True:
        try:
            while not context.cancelled:
                time.sleep(0.01)
        except Cancelled:
            record("raised", context)
        if context.cancelled:
            break
    try:
        context.check()
    except Cancelled as error:
        record("told", context, words=str(error))
    while True:
        try:
            wait_for_file("give in")
        except Cancelled:
            continue
        return


# Connections.

#: What shows that somebody has used a connection before.
QUESTIONS = {
    "postgresql": {
        "variable": "SHOW statement_timeout",
        "tables": "SELECT count(*) FROM pg_class WHERE relname = 'leftover'",
        "locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    },
    "sqlite": {
        "variable": "PRAGMA cache_size",
        "tables": "SELECT count(*) FROM sqlite_temp_master WHERE name = 'leftover'",
    },
}


@task(takes_context=True)
def using_the_database(context: JobContext) -> None:
    """Use a connection, and say what it finds there."""
    record("begin", context)
    Effect.objects.count()
    found = {"autocommit": connection.get_autocommit(), "in_block": connection.in_atomic_block}
    found["queries"] = len(connection.queries_log)
    with connection.cursor() as cursor:
        for name, question in QUESTIONS[connection.vendor].items():
            cursor.execute(question)
            found[name] = cursor.fetchone()[0]
    Effect.objects.create(key=context.job_id)
    language, zone = translation.get_language(), timezone.get_current_timezone_name()
    record("end", context, found=found, language=language, zone=zone)


@task(takes_context=True)
def querying(context: JobContext) -> None:
    """Nothing but queries, one after the other."""
    record("begin", context)
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT generate_series(1, 3)")
            cursor.fetchall()


LEAVES: dict[str, Any] = {}


def _leaves(function: Any) -> Any:
    LEAVES[function.__name__] = function
    return function


@_leaves
def broken_transaction() -> None:
    transaction.atomic().__enter__()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'a')")
        cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'b')")


@_leaves
def open_transaction() -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(key="never committed")


@_leaves
def marked_for_rollback() -> None:
    transaction.atomic().__enter__()
    transaction.set_rollback(True)


@_leaves
def no_autocommit() -> None:
    connection.set_autocommit(False)
    Effect.objects.create(key="never committed")


@_leaves
def session_variable() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET statement_timeout = '12345s'")
        else:
            cursor.execute("PRAGMA cache_size = 123")


@_leaves
def session_variable_by_function() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT set_config('statement_timeout', '12345s', false)")


@_leaves
def session_variable_second() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1; SET statement_timeout = '12345s'")


@_leaves
def session_variable_composed() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            from psycopg import sql

            cursor.execute(sql.SQL("SET statement_timeout = '12345s'"))


@_leaves
def session_lock() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_advisory_lock(4711)")


@_leaves
def temporary_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE leftover (id integer)")


@_leaves
def closed() -> None:
    Effect.objects.count()
    connection.close()


@_leaves
def closed_raw() -> None:
    connection.ensure_connection()
    connection.connection.close()


@_leaves
def closed_in_a_transaction() -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(key="never committed")
    connection.close()


@_leaves
def another_language() -> None:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")


@task(max_attempts=1, takes_context=True)
def leaving(context: JobContext, what: str) -> None:
    record("begin", context)
    LEAVES[what]()


@task(takes_context=True)
async def breaking_its_transaction(context: JobContext, name: str) -> int:
    """On the event loop: stay in a transaction of its own, which is broken, until told to end."""

    def in_a_transaction() -> int:
        with transaction.atomic():
            try:
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'a')")
                    cursor.execute("INSERT INTO tests_app_effect (id, key) VALUES (1, 'b')")
            except IntegrityError:
                record("broken", context, connection=_identity())
            wait_for_file(name)
            transaction.set_rollback(True)
        return 0

    return await sync_to_async(in_a_transaction)()


@task(takes_context=True)
async def using_the_database_async(context: JobContext) -> str:
    await Effect.objects.acreate(key=context.job_id)
    count = await Effect.objects.filter(key=context.job_id).acount()
    record("end", context, count=count, connection=await sync_to_async(_identity)())
    return context.job_id


def _identity() -> str:
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        return str(connection.connection.info.backend_pid)
    return str(id(connections["default"]))


@task(takes_context=True)
def mixed_sync(context: JobContext) -> list[int]:
    """A sync task that runs loops of its own and enqueues others."""

    async def two() -> int:
        await asyncio.sleep(0)
        return 2

    async def three() -> int:
        return await sync_to_async(lambda: 3)()

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(two())))
    thread.start()
    thread.join()
    answers = [*found, asyncio.run(two()), async_to_sync(three)()]
    using_the_database.enqueue()
    return answers


@task(takes_context=True)
async def mixed_async(context: JobContext) -> int:
    """An async task that enqueues others, in both ways."""
    await using_the_database.aenqueue()
    await sync_to_async(using_the_database.enqueue)()
    return await asyncio.to_thread(lambda: 4)


@task(takes_context=True)
def signals_of_a_program(context: JobContext) -> str:
    """What a program that a task starts does about signals, as the system shows it."""
    wanted = ("SigBlk", "SigIgn", "SigCgt")
    shown = subprocess.run(
        ["cat", "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    return "\n".join(line for line in shown.splitlines() if line.split(":")[0] in wanted)


_hoard: list[bytes] = []


@task(takes_context=True)
def hoarding(context: JobContext, megabytes: int) -> None:
    """Take memory, and never give it back."""
    record("begin", context)
    _hoard.append(os.urandom(1024) * 1024 * megabytes)
    record("end", context)


# Retries.


class Flaky(Exception):
    """Worth another try."""


class VeryFlaky(Flaky):
    """A kind of it."""


class Hopeless(Exception):
    """Not worth one."""


class QuiteHopeless(Hopeless):
    """A kind of it."""


ERRORS = {each.__name__: each for each in (Flaky, VeryFlaky, Hopeless, QuiteHopeless, ValueError)}


@task(max_attempts=3, takes_context=True, retry_on=[Flaky], give_up_on=[Hopeless])
def choosy(context: JobContext, error: str) -> None:
    record("begin", context)
    raise ERRORS[error](error)


@task(max_attempts=3, takes_context=True)
def failing(context: JobContext) -> None:
    record("begin", context)
    raise ValueError(f"attempt {context.attempt}")


@task(takes_context=True)
def snoozing(context: JobContext, times: int) -> int:
    record("begin", context)
    if context.attempt <= times:
        raise Snooze("not yet", after=0)
    if context.attempt == times + 1:
        raise ValueError("an error at last")
    return context.attempt


# All or nothing.


@task(atomic=True, takes_context=True)
def writing(context: JobContext, name: str, how: str = "") -> str:
    """Write a row, and wait for the file `name` before the end."""
    record("begin", context)
    Effect.objects.create(key=context.job_id)
    record("written", context)
    if name:
        wait_for_file(name)
    if how == "raise":
        raise PermanentError("after it wrote")
    if how == "unstorable":
        return {1, 2}  # type: ignore[return-value]
    record("end", context)
    return "written"


@task(atomic=True, takes_context=True)
def writing_slowly(context: JobContext, seconds: float) -> None:
    """Write a row, and take a while before and after."""
    record("begin", context)
    time.sleep(seconds)
    Effect.objects.create(key=context.job_id)
    time.sleep(seconds)


#: Modules that cannot be imported, or do not give what is asked for; a test puts them into a folder.
MODULES = {
    "odd_syntax": "def f(:\n",
    "odd_raises": "raise RuntimeError('not today')\n",
    "odd_exits": "import sys\n\nsys.exit('at import')\n",
    "odd_evasive": "def __getattr__(name):\n    raise RuntimeError(f'{name} is not here')\n",
    "odd_imports": "import no_such_library\n",
}


def write_modules(folder: Path) -> None:
    """Put the odd modules into a folder."""
    folder.mkdir(exist_ok=True)
    for name, code in MODULES.items():
        (folder / f"{name}.py").write_text(code)
