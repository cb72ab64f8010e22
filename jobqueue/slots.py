"""The rooms in which user code runs: a thread each for sync jobs, one event loop for all async ones.

Nothing here writes to the queue. What ends is put where the worker's own loop picks it up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from jobqueue.attempts import Outcome, Pair
from jobqueue.cleaning import Watch, close_if_dead
from jobqueue.deadlines import Deadlines
from jobqueue.execution import Run, broken, execute, is_async, run_to_end

logger = logging.getLogger("jobqueue")


class Slots:
    """Room for `size` running jobs.

    `wake` is called, from any thread, when something has ended; what has is in `take_ended`.
    """

    def __init__(self, size: int, wake: Callable[[], None]) -> None:
        self.size = size
        self.running: dict[Pair, Run] = {}
        self.deadlines = Deadlines(self.running)
        self._wake = wake
        self._ended: deque[tuple[Run, Outcome]] = deque()
        self._pool = _Pool(self._run_in_thread)
        self._loop: _Loop | None = None
        self._making_loop = threading.Lock()
        self._is_async: dict[str, bool] = {}

    @property
    def free(self) -> int:
        """How many more jobs can be started."""
        return self.size - len(self.running)

    @property
    def has_ended(self) -> bool:
        """Whether `take_ended` has something to give."""
        return bool(self._ended)

    def start(self, run: Run) -> None:
        """Start a run in a free slot."""
        self.running[run.attempt.pair] = run
        self.deadlines.added(run)
        if self._is_async.get(run.attempt.task_path):
            self._start_on_loop(run)
            return
        # A path not seen yet goes to a thread: the import may take its time, and may be async.
        self._pool.start(run)

    def take_ended(self) -> list[tuple[Run, Outcome]]:
        """The runs that have ended since the last call, whose slots are free again."""
        ended = []
        while self._ended:
            run, outcome = self._ended.popleft()
            self.running.pop(run.attempt.pair, None)
            ended.append((run, outcome))
        return ended

    def close(self) -> None:
        """Let idle threads go. Those that still run user code end with the process."""
        self.deadlines.close()
        self._pool.close()
        if self._loop is not None:
            self._loop.close()

    def _run_in_thread(self, run: Run) -> Callable[[], None] | None:
        """In a slot's thread: run the job, or find that it belongs on the event loop. Returns how
        to say that it has ended."""
        path = run.attempt.task_path
        try:
            # Others of the same path may have been put here before the first of them was looked at.
            if is_async(path):
                self._is_async[path] = True
                self._start_on_loop(run)
                return None
            # In a context of its own, so that a language or time zone that the task activates
            # does not meet the next job.
            outcome = contextvars.copy_context().run(_run_cleanly, run)
        except BaseException as error:  # whatever it was, the slot must be free again
            logger.exception("Job %s could not be run.", run.attempt.id)
            outcome = broken(run, error)
        return functools.partial(self._end, run, outcome)

    def _start_on_loop(self, run: Run) -> None:
        with self._making_loop:
            if self._loop is None:
                self._loop = _Loop()
        self._loop.submit(run, self._end)

    def _end(self, run: Run, outcome: Outcome) -> None:
        outcome.ran = time.monotonic() - run.began
        self._ended.append((run, outcome))
        self._wake()


class _Pool:
    """The slots' threads; each is made when a sync job first needs it, and kept for the next.

    A job that is started wakes one thread, and that one, before it begins, the next if more jobs
    wait. So jobs run side by side as soon as one of them waits for something; but a row of short
    ones is run by the thread that is there, and costs no change of threads each.
    """

    def __init__(self, work: Callable[[Run], Callable[[], None] | None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._waiting: deque[Run] = deque()
        self._idle: list[_Thread] = []
        self._threads: list[_Thread] = []
        self._waking = False  # a thread has been woken and has not looked yet

    def start(self, run: Run) -> None:
        """Have a run begin in a thread."""
        with self._lock:
            self._waiting.append(run)
            thread = self._next()
        if thread is not None:
            thread.wake()

    def close(self) -> None:
        """Let idle threads go."""
        for thread in self._threads:
            thread.inbox.put(False)

    def _next(self) -> _Thread | None:
        """The thread to wake, if one has to be. To be called with the lock held."""
        if self._waking or not self._waiting:
            return None
        self._waking = True
        if self._idle:
            return self._idle.pop()
        thread = _Thread(self._turn, len(self._threads) + 1)
        self._threads.append(thread)
        return thread

    def _turn(self, thread: _Thread) -> None:
        """In a thread that has been woken: run what waits."""
        with self._lock:
            self._waking = False
        say_ended: Callable[[], None] | None = None
        while True:
            run = following = None
            with self._lock:
                if self._waiting:
                    run = self._waiting.popleft()
                    following = self._next()
                else:
                    self._idle.append(thread)
            # Only now: who hears of it, and starts another job, finds this thread idle.
            if say_ended is not None:
                say_ended()
            if run is None:
                return
            if following is not None:
                following.wake()
            say_ended = self._work(run)


class _Thread(threading.Thread):
    """One slot's thread."""

    def __init__(self, turn: Callable[[_Thread], None], number: int) -> None:
        super().__init__(name=f"jobqueue-slot-{number}", daemon=True)
        self.inbox: SimpleQueue[bool] = SimpleQueue()
        self._turn = turn

    def wake(self) -> None:
        """Have it look for work."""
        self.inbox.put(True)
        if self.ident is None:
            self.start()

    def run(self) -> None:
        while self.inbox.get():
            self._turn(self)
        connections.close_all()


def _run_cleanly(run: Run) -> Outcome:
    """A run between two cleanings of this thread's connections, as Django does around requests."""
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        close_if_dead(connection)
    watches = [Watch(connection) for connection in connections.all()]
    outcome = run_to_end(run)
    try:
        for watch in watches:
            watch.clean()
        if run.stopped is not None:
            # The exception may have arrived in the middle of a query, which the connection would
            # still be busy with.
            connections.close_all()
    except Exception:  # the outcome counts more, and the connections are made anew
        logger.exception("Cleaning a connection after job %s failed.", run.attempt.id)
        connections.close_all()
    return outcome


class _Loop:
    """The event loop of a worker's async jobs, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inbox: deque[tuple[Run, Callable[[Run, Outcome], None]]] = deque()
        self._woken = False
        self._closed = False
        self._thread = threading.Thread(target=self._turn, name="jobqueue-loop", daemon=True)
        self._thread.start()

    def submit(self, run: Run, end: Callable[[Run, Outcome], None]) -> None:
        """Start a run; `end` is called on the loop when it has ended."""
        # One call wakes the loop for all that are there by the time it looks.
        self._inbox.append((run, end))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._start_all)

    def close(self) -> None:
        """Stop the loop."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _turn(self) -> None:
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:
                # SystemExit in an asyncio task that a job has made goes through the loop. The job
                # that waits for that task gets it, too; the others must not notice.
                logger.exception("The event loop was left, and goes on.")
        self._loop.close()

    def _start_all(self) -> None:
        self._woken = False  # before the look: who finds it set has put theirs in before
        while self._inbox:
            run, end = self._inbox.popleft()
            task = self._loop.create_task(self._live(run, end))
            # The loop itself keeps only weak references.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self, run: Run, end: Callable[[Run, Outcome], None]) -> None:
        outcome: Outcome | None = None
        try:
            # Sync code that the job calls gets a thread, and so connections, that no other job has.
            async with ThreadSensitiveContext() as context:
                outcome = await execute(run)
                await _leave_thread(context)
        except BaseException as error:
            logger.exception("The end of job %s was disturbed.", run.attempt.id)
            outcome = outcome or broken(run, error)
        end(run, outcome)


async def _leave_thread(context: ThreadSensitiveContext) -> None:
    """Wait until the thread of a job's sync code is idle, and close its connections.

    That code goes on when its coroutine is cancelled, and a lease ends only with its code.
    """
    while context in SyncToAsync.context_to_thread_executor:
        try:
            await sync_to_async(connections.close_all)()
        except asyncio.CancelledError:
            continue  # asked for by the job itself, too late to matter
        return
