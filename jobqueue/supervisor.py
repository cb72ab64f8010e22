"""The parent of workers: starts them, keeps their leases, and puts right what a dead one leaves.

It runs no jobs and has no threads. It holds a connection to the database for heartbeats and repairs, and closes it
before each fork. Between two events it sleeps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from jobqueue import clock, conf, lifecycle, reconcile, tallies
from jobqueue.attempts import Pair
from jobqueue.board import Farewell
from jobqueue.child import SIGNALS, Child, freeze, warm_up
from jobqueue.models import Worker
from jobqueue.plan import Plan

logger = logging.getLogger("jobqueue")

#: Seconds between two looks at what the workers run: when something runs, and when nothing did.
WATCH_EVERY, IDLE_WATCH_EVERY = 0.1, 0.25
#: Seconds after the grace time that jobs which were told to stop have to do so.
LAST_CALL = 0.75
#: Seconds for which the repair of a dead worker is repeated, and between two times.
REPAIR_FOR, REPAIR_EVERY = 5.0, 0.5
#: Seconds between two tries to reach the database.
RETRY_EVERY = 0.5
#: A worker that dies sooner than this, in seconds, was not well from the start: the pause before the
#: next one grows.
INFANCY, LONGEST_PAUSE = 2.0, 10.0


@dataclass(slots=True)
class Repair:
    """What is to be done about a dead worker's jobs: `culprits` timed out, and the rest is lost,
    or given back if the process was ended on purpose."""

    child: Child
    reason: str
    lost: bool
    culprits: set[Pair] = field(default_factory=set)
    next_at: float = 0.0
    until: float = 0.0
    done_once: bool = False


class Supervisor:
    """`run` returns the exit code when the last worker has gone."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: list[Child] = []
        self._repairs: list[Repair] = []
        self._signals: list[int] = []
        self._stops = 0
        self._quiet = False
        self._counter = tallies.Counter()
        self._next_beat = 0.0
        self._start_at = 0.0
        self._pause = 0.0
        # Processes that have left for good: in a burst, and as staff wanted.
        self._drained = 0
        self._dismissed = 0
        self._news: list[UUID] = []
        self._reachable = True
        self._using = conf.options().database

    def run(self) -> int:
        """Keep the workers going until told to stop, or until a burst is over.

        It takes the process's signals for itself: afterwards those that ask for a stop are ignored.
        """
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, self._notice)
        self._warn_of_threads()
        warm_up(self._using)
        freeze()
        # What receivers of task_finished do is not for this process: a worker tells them.
        previous = lifecycle.listen(self._news.extend)
        logger.info("Supervisor %s starts %s workers.", os.getpid(), self._plan.processes)
        while not self._is_over():
            self._act_on_signals()
            self._reap()
            self._start_missing()
            self._watch_over()
            self._beat()
            self._repair()
            self._pass_on_news()
            self._rest(reader)
        lifecycle.listen(previous)
        if self._news and previous is not None:
            with contextlib.suppress(DatabaseError, InterfaceError):
                previous(self._news)
        # Who asks for a stop now has it already. A handler of Python's would not do: the interpreter
        # gives those back before its end, and the next signal would end it with a status of failure.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)
        logger.info("Supervisor %s has stopped.", os.getpid())
        return 1 if any(not repair.done_once for repair in self._repairs) else 0

    def _is_over(self) -> bool:
        if self._children:
            return False
        if self._stops:
            # A statement the dead had sent is over by now or never comes; once is enough to hand
            # over what is known, and leases see to the rest.
            return all(repair.done_once for repair in self._repairs) or self._past_hope()
        return self._wanted <= 0 and not self._repairs

    @property
    def _wanted(self) -> int:
        """How many worker processes there are to be."""
        return self._plan.processes - self._drained - self._dismissed

    def _past_hope(self) -> bool:
        now = time.monotonic()
        return all(repair.done_once or now > repair.until for repair in self._repairs)

    # Signals

    def _notice(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _act_on_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGUSR1:
                self._quiet = True
                logger.info("Quiet: no new jobs are claimed; running ones go on.")
                for child in self._children:
                    child.order("quiet")
                continue
            self._stops += 2 if number == signal.SIGQUIT else 1
            grace = self._plan.grace_time if self._stops == 1 else 0.0
            logger.info(
                "%s: %s",
                signal.Signals(number).name,
                f"running jobs have {grace:g} s to finish." if grace else "handing back all jobs.",
            )
            kill_at = time.monotonic() + grace + LAST_CALL
            for child in self._children:
                child.order("stop", grace)
                child.kill_at = min(child.kill_at, kill_at)

    # Processes

    def _warn_of_threads(self) -> None:
        others = [
            each.name for each in threading.enumerate() if each is not threading.main_thread()
        ]
        if others:
            logger.warning(
                "Threads were started before the workers (in AppConfig.ready()?): %s. They do not "
                "run in workers, and a lock that one holds stays locked there.",
                ", ".join(others),
            )

    def _start_missing(self) -> None:
        now = time.monotonic()
        if self._stops or now < self._start_at:
            return
        staying = [child for child in self._children if not child.replaced]
        for _ in range(self._wanted - len(staying)):
            try:
                child = Child(self._plan, self._children)
            except OSError as error:  # no more processes, memory or files at the moment
                logger.error("Cannot start a worker process and will try again: %s", error)
                self._pause = min(max(0.1, 2 * self._pause), LONGEST_PAUSE)
                self._start_at = now + self._pause
                return
            self._children.append(child)
            if self._quiet:
                child.order("quiet")
            logger.info("Worker process %s started.", child.pid)
            self._next_beat = min(self._next_beat, now)

    def _reap(self) -> None:
        for child in list(self._children):
            end = child.reap()
            if end is None:
                continue
            self._children.remove(child)
            self._dismissed += child.dismissed and not child.replaced
            farewell = child.board.farewell
            if farewell != Farewell.UNEXPECTED:
                logger.info("Worker process %s has left (%s).", child.pid, farewell.name.lower())
                self._drained += farewell == Farewell.IDLE
                child.close()
                continue
            logger.warning("Worker process %s is gone: %s.", child.pid, end)
            if not child.dismissed:
                self._slow_down(child)
            now = time.monotonic()
            reason = f"handed back: {end}" if child.killed else end
            self._repairs.append(
                Repair(child, reason, not child.killed, child.culprits, now, now + REPAIR_FOR)
            )

    def _slow_down(self, child: Child) -> None:
        """A worker that dies as soon as it is born is not replaced at once for ever."""
        infant = not child.board.ready and time.monotonic() - child.started_at < INFANCY
        self._pause = min(max(0.1, 2 * self._pause), LONGEST_PAUSE) if infant else 0.0
        self._start_at = time.monotonic() + self._pause

    # Jobs

    def _watch_over(self) -> None:
        """Replace a worker whose jobs do not let go; end it when nothing else runs in it."""
        now = time.monotonic()
        kill_after = conf.options().kill_after
        for child in self._children:
            leave_by = child.board.leave_by
            if leave_by is not None:
                child.kill_at = min(child.kill_at, leave_by + LAST_CALL)
            overdue = child.overdue(now, kill_after)
            if overdue - child.culprits:
                logger.warning(
                    "Worker process %s is %s: %s do not let go.",
                    child.pid,
                    "ended" if child.dismissed else "replaced",
                    ", ".join(f"job {pair.id} (attempt {pair.attempt})" for pair in overdue),
                )
                if not child.culprits:
                    child.order("retire")
                    child.kill_at = min(child.kill_at, now + self._plan.grace_time)
                    child.replaced = not child.dismissed
                child.culprits |= overdue
            if child.is_due_to_be_killed(now) and not child.killed:
                child.kill()

    def _beat(self) -> None:
        """Extend the leases of what the workers run, except of one that is stopped itself."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + conf.options().heartbeat
        for child in self._children:
            if not child.paused and not self._reach(lambda child=child: self._beat_for(child)):
                self._next_beat = now + min(RETRY_EVERY, conf.options().heartbeat / 2)
                return

    def _beat_for(self, child: Child) -> None:
        claims = child.board.claims
        running = {entry.pair for entry in child.board.entries()}
        beat = lifecycle.heartbeat(child.owner, running)
        child.board.mark_beaten()
        reasons = [(pair, "cancelled") for pair in beat.cancelled]
        child.tell(reasons + [(pair, "lost") for pair in beat.lost])
        if beat.locked:
            child.order("beat_alone", list(beat.locked))
        # Rows it owns and does not run: the answer to a claim was lost. While a claim is under
        # way, or has been since the board was read, that cannot be told.
        if beat.strays and claims % 2 == 0 and claims == child.board.claims:
            reason = "its worker did not know of it: the answer to its claim was lost"
            lifecycle.hand_back(child.owner, beat.strays, reason)

    def _repair(self) -> None:
        """Put right what the dead held, now and again for some seconds: a statement that a dead
        process had sent may still commit."""
        now = time.monotonic()
        for repair in list(self._repairs):
            if now < repair.next_at:
                continue
            repair.next_at = now + REPAIR_EVERY
            if self._reach(lambda repair=repair: self._repair_one(repair)):
                if not repair.done_once:
                    repair.done_once, repair.until = True, now + REPAIR_FOR
                elif now >= repair.until:
                    self._repairs.remove(repair)
                    repair.child.close()

    def _repair_one(self, repair: Repair) -> None:
        owner = repair.child.owner
        if repair.culprits:
            lifecycle.time_out(owner, repair.culprits, tell=self._counter.lost)
        if repair.lost:
            taken = lifecycle.lose(owner, repair.reason, tell=self._counter.lost)
        else:
            taken = lifecycle.hand_back(owner, reason=repair.reason)
        reconcile.mark_gone(Worker.objects.using(self._using).filter(pk=owner))
        self._counter.write(clock.now(self._using))
        if taken:
            logger.info(
                "%s jobs of worker process %s are %s.",
                len(taken),
                repair.child.pid,
                "scheduled again or failed" if repair.lost else "queued again",
            )

    def _pass_on_news(self) -> None:
        """Have a worker tell of the jobs that ended here."""
        well = [each for each in self._children if not each.paused and not each.killed]
        if self._news and well:
            well[0].order("announce", list(self._news))
            self._news.clear()

    # The database

    def _reach(self, work: object) -> bool:
        """Do `work`, which uses the database; False if that cannot be reached."""
        try:
            work()  # type: ignore[operator]
        except (DatabaseError, InterfaceError, OSError) as error:
            if self._reachable:
                logger.warning(
                    "Supervisor %s cannot use the database and will try again: %s",
                    os.getpid(),
                    str(error).strip() or type(error).__name__,
                )
            self._reachable = False
            with contextlib.suppress(DatabaseError, InterfaceError):
                connections[self._using].close()
            return False
        self._reachable = True
        return True

    def _rest(self, reader: int) -> None:
        """Sleep until a signal comes or the next look is due."""
        now = time.monotonic()
        until = [self._next_beat]
        busy = any(child.board.entries() for child in self._children)
        until.append(now + (WATCH_EVERY if busy else IDLE_WATCH_EVERY))
        until += [child.kill_at for child in self._children if not child.killed]
        until += [repair.next_at for repair in self._repairs]
        if self._start_at > now:
            until.append(self._start_at)
        if self._signals or not self._children:
            until.append(now + (0 if self._signals else WATCH_EVERY))
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            selector.select(max(0.0, min(until) - now))
        with contextlib.suppress(BlockingIOError):
            while os.read(reader, 512):
                pass
