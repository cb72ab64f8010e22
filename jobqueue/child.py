"""A worker process as its supervisor sees it: forked, given orders, watched, and in the end reaped."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID, uuid4

from django.db import DatabaseError, InterfaceError, connections, transaction

from jobqueue import clock, lifecycle, queues, reconcile
from jobqueue.attempts import Pair
from jobqueue.board import Board
from jobqueue.models import Worker as WorkerRow
from jobqueue.plan import Plan
from jobqueue.postgres import patiently
from jobqueue.worker import Worker

#: What the supervisor acts on. Workers are deaf to them: a terminal and systemd signal every
#: process, and only one may count.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
#: Seconds for which `warm_up` waits for a lock, at most: it can be done without.
WARM_UP_PATIENCE = 1.0


class Child:
    """One worker process: `paused` while it is stopped by a signal, `culprits` once it is to be
    ended because of jobs that do not let go, `replaced` if another one is started in its place."""

    def __init__(self, plan: Plan, siblings: Iterable[Child]) -> None:
        self.owner: UUID = uuid4()
        self.board = Board(plan.board_size)
        self.started_at = time.monotonic()
        self.paused = False
        self.told: dict[Pair, float] = {}
        self.suspects: set[Pair] = set()
        self.culprits: set[Pair] = set()
        self.replaced = False
        self.kill_at = float("inf")
        self.killed = False
        self._orders, theirs = Pipe()
        # No connection may be shared by two processes.
        connections.close_all()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_worker(plan, theirs, siblings)
        theirs.close()

    def _become_worker(self, plan: Plan, orders: Connection, siblings: Iterable[Child]) -> None:
        """In the new process: work, and never return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in SIGNALS:
                # A handler that does nothing, and not SIG_IGN, which programs started by tasks
                # would inherit.
                signal.signal(number, lambda *_: None)
            # An open copy of the supervisor's end would hide its death.
            self._orders.close()
            for sibling in siblings:
                sibling._orders.close()
            Worker(plan, self.owner, self.board, orders).run()
            code = 0
        except BaseException:  # reported here, since nothing above this process's first frame is
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    @property
    def dismissed(self) -> bool:
        """Whether staff want it to leave for good."""
        return self.board.leave_by is not None

    def order(self, order: str, argument: Any = None) -> None:
        """Send an order. A worker that is gone gets none; a paused one reads it when it goes on.

        One that has read nothing for so long that no more fits gets none either: its supervisor
        waits for nobody.
        """
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            selector.register(self._orders, selectors.EVENT_WRITE)
            if selector.select(0):
                self._orders.send((order, argument))

    def tell(self, reasons: Iterable[tuple[Pair, str]]) -> None:
        """Tell the worker that these attempts are to stop, once each."""
        now = time.monotonic()
        new = [(pair, reason) for pair, reason in reasons if pair not in self.told]
        if new:
            self.told.update({pair: now for pair, _ in new})
            self.order("tell", new)

    def overdue(self, now: float, kill_after: float) -> set[Pair]:
        """The attempts that should have let go by now; judged by two looks, never by one."""
        entries = self.board.entries()
        present = {entry.pair for entry in entries}
        self.told = {pair: at for pair, at in self.told.items() if pair in present}
        late = {entry.pair for entry in entries if now > entry.deadline + kill_after}
        late |= {pair for pair, at in self.told.items() if now > at + kill_after}
        certain = late & self.suspects
        self.suspects = late
        return certain

    def is_due_to_be_killed(self, now: float) -> bool:
        """Whether it has had its time, or only what it is to be killed for is left."""
        if now >= self.kill_at:
            return True
        if not self.culprits:
            return False
        return all(entry.pair in self.culprits for entry in self.board.entries())

    def kill(self) -> None:
        """End the process at once; `reap` will tell when it is dead."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> str | None:
        """How the process ended, in words; None while it lives. Notes when it is paused."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return None
            if os.WIFSTOPPED(status):
                self.paused = True
            elif os.WIFCONTINUED(status):
                self.paused = False
            elif os.WIFSIGNALED(status):
                return f"its process was killed by {_signal_name(os.WTERMSIG(status))}"
            else:
                return f"its process exited with status {os.WEXITSTATUS(status)}"

    def close(self) -> None:
        """Give back what the supervisor held for it."""
        self._orders.close()
        self.board.close()


def _signal_name(number: int) -> str:
    """Its name; most of the real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def warm_up(using: str) -> None:
    """Do once what every worker does when it begins, and undo it: what that leaves in memory (modules,
    compiled queries, the driver's own) is shared by all that are forked afterwards."""
    nobody = uuid4()
    with (
        contextlib.suppress(DatabaseError, InterfaceError, OSError),
        patiently(using, WARM_UP_PATIENCE),
    ):
        now = clock.now(using)
        row = WorkerRow(pk=nobody, host="", pid=0, slots=0, started_at=now, heartbeat_at=now)
        row.save(using=using, force_insert=True)
        lifecycle.heartbeat(nobody, [])
        queues.discover()
        lifecycle.claim("", nobody, "", 1)
        reconcile.sweep(limit=1, take_leases=False)
        transaction.set_rollback(True, using)
    connections.close_all()


def freeze() -> None:
    """Keep the garbage collector off what exists now, so that children share its memory."""
    gc.collect()
    gc.freeze()
