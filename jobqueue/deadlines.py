"""Tells running jobs to stop when their time is up, in a thread that waits for nothing else.

The worker's own loop waits for the database now and then, and on SQLite perhaps for the very job that overruns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from jobqueue.attempts import Pair
from jobqueue.exceptions import Stopped, TimedOut
from jobqueue.execution import Run


class Deadlines:
    """Watches the runs in `running`, which others fill and empty; each that is put in is to be `added`."""

    def __init__(self, running: Mapping[Pair, Run]) -> None:
        self._running = running
        self._leave_by = float("inf")
        # When the thread looks next. Infinite while it looks: so what comes meanwhile wakes it.
        self._next_look = float("inf")
        self._look = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def added(self, run: Run) -> None:
        """A run has begun."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, name="jobqueue-deadlines", daemon=True
            )
            self._thread.start()
        if run.deadline < self._next_look:
            self._look.set()

    def stop(self, pair: Pair, why: type[Stopped]) -> None:
        """Tell a run to stop now, if it still runs."""
        run = self._running.get(pair)
        if run is not None:
            run.wanted = run.wanted or why
            self._look.set()

    def leave_by(self, moment: float) -> None:
        """Tell every run to stop at `moment` (of time.monotonic), or earlier if told so before."""
        self._leave_by = min(self._leave_by, moment)
        self._look.set()

    def close(self) -> None:
        """Let the thread go."""
        self._closed = True
        self._look.set()

    def _watch(self) -> None:
        while not self._closed:
            self._look.clear()
            self._next_look = float("inf")
            now = time.monotonic()
            moments = [self._see_to(run, now) for run in list(self._running.values())]
            self._next_look = next_look = min(moments, default=float("inf"))
            self._look.wait(None if next_look == float("inf") else max(0.0, next_look - now))

    def _see_to(self, run: Run, now: float) -> float:
        """Stop a run that is to stop, and again while it has not; returns when to look again."""
        why = run.stopped or run.wanted
        if why is None and now >= run.deadline:
            why = TimedOut
        if why is None and now >= self._leave_by:
            why = Stopped
        if why is None:
            return min(run.deadline, self._leave_by)
        if run.stopped is None or now >= run.insist_at:
            run.stop(why)
        return run.insist_at
