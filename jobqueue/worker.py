"""One worker process: its own loop moves jobs, its slots run them.

The loop obeys its supervisor, stops what overruns, writes what has ended, claims for the slots that are free,
does the clock's work once a tick, and rests until something happens. Nothing else in the process writes to the
queue, so outcomes form batches by themselves; no timer holds back a lone one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import deque
from multiprocessing.connection import Connection
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from jobqueue import clock, conf, lifecycle, queues, signals, tallies
from jobqueue.announcer import Announcer
from jobqueue.attempts import Outcome, Pair
from jobqueue.board import Board, Farewell
from jobqueue.chores import Chores
from jobqueue.exceptions import Cancelled, LeaseLost, Stopped
from jobqueue.execution import Run
from jobqueue.lifecycle import Note
from jobqueue.link import Link
from jobqueue.memory import resident_bytes
from jobqueue.models import FINAL, Status
from jobqueue.models import Worker as WorkerRow
from jobqueue.outbox import Outbox
from jobqueue.plan import Plan
from jobqueue.presence import Presence
from jobqueue.slots import Slots
from jobqueue.supply import Offer, Supply

logger = logging.getLogger("jobqueue")

#: Seconds between two looks at whether anything comes out of what Django's log would say of jobs.
LOOK_AT_LOG = 1.0
#: Seconds after the end of the grace time at which a worker without a supervisor just exits.
LAST_CALL = 1.0


class Worker:
    """The process behind one row of Worker, from its first claim to its last outcome."""

    def __init__(self, plan: Plan, owner: UUID, board: Board, orders: Connection) -> None:
        self._plan = plan
        self._owner = owner
        self._board = board
        self._orders = orders
        self._using = conf.options().database
        self._presence = Presence(plan, owner)
        self.name = self._presence.name
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._woken = False
        self._slots = Slots(plan.concurrency, self._wake)
        self._outbox = Outbox(owner, board, self._done, self._wake)
        self._announcer = Announcer()
        self._notes: deque[Note] = deque()
        self._late_notes: list[Note] = []
        self._state = WorkerRow.State.RUNNING
        self._farewell = Farewell.STOPPED
        self._orphaned = False
        self._leave_by = float("inf")
        self._started = 0
        self._counter = tallies.Counter()
        self._chores = Chores(self.name)
        self._supply = Supply(plan.queues, self._using)
        self._served: set[str] = set()
        self._link = Link(self._using, self.name, self._come_back)
        now = time.monotonic()
        self._next_tick = now
        self._next_own_beat = now + 1.5 * conf.options().heartbeat

    def run(self) -> None:
        """Work until told to stop, or until nothing is left to do in a burst."""
        previous = lifecycle.listen(self._announcer.tell)
        signals.look_every(LOOK_AT_LOG)
        try:
            while not self._is_done():
                self._obey()
                self._leave_in_time()
                self._move()
                self._tick()
                self._rest()
        finally:
            lifecycle.listen(previous)
        self._leave()

    # Orders

    def _obey(self) -> None:
        try:
            while not self._orphaned and self._orders.poll():
                order, argument = self._orders.recv()
                getattr(self, f"_on_{order}")(argument)
        except (EOFError, OSError):
            logger.warning("Worker %s has lost its supervisor and hands over.", self.name)
            self._orphaned = True
            self._next_own_beat = 0.0
            self._on_stop(self._plan.grace_time)

    def _on_stop(self, grace: float) -> None:
        self._state = WorkerRow.State.STOPPING
        self._leave_by = min(self._leave_by, time.monotonic() + grace)
        self._slots.deadlines.leave_by(self._leave_by)

    def _on_quiet(self, _: None) -> None:
        if self._state == WorkerRow.State.RUNNING:
            self._state = WorkerRow.State.QUIET

    def _on_retire(self, _: None) -> None:
        """Claim nothing more: some job does not let go, and this process will be ended."""
        self._state = WorkerRow.State.STOPPING

    def _hear_staff(self, asked: str) -> WorkerRow.State:
        """Do what staff have asked for in this worker's row, if anything; asking for it twice is asking
        once. Returns the state that this leads to."""
        if asked == WorkerRow.Order.QUIET:
            self._on_quiet(None)
        elif asked == WorkerRow.Order.STOP and self._farewell != Farewell.DISMISSED:
            logger.info("Worker %s was asked to stop.", self.name)
            self._farewell = Farewell.DISMISSED
            self._on_stop(self._plan.grace_time)
            self._board.mark_dismissed(self._leave_by)
        return self._state

    def _on_tell(self, told: list[tuple[Pair, str]]) -> None:
        reasons: dict[str, type[Stopped]] = {"cancelled": Cancelled, "lost": LeaseLost}
        for pair, reason in told:
            self._slots.deadlines.stop(pair, reasons[reason])

    def _on_beat_alone(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            self._outbox.beat_alone(pair)

    def _on_announce(self, job_ids: list[UUID]) -> None:
        """Tell of jobs that the supervisor has ended, which runs no code but its own."""
        self._announcer.tell(job_ids)

    # Jobs

    def _move(self) -> None:
        for run, outcome in self._slots.take_ended():
            self._outbox.put(outcome)
            del run
        self._outbox.read_answers()
        self._hear()
        if self._notes or self._outbox.has_any or self._wants_jobs():
            self._link.reach(self._exchange)
        if time.monotonic() >= self._supply.give_back_at:
            self._link.reach(self._supply.give_back)
        elif self._link.broken:
            self._link.reach(self._introduce)

    def _exchange(self) -> None:
        """Write what there is to write, and claim for the free slots: at once, where both are to be done."""
        if not self._presence.is_known:
            self._introduce()
        if self._notes:
            self._write_notes()
        if self._outbox.is_uncertain:
            self._outbox.settle()
        if self._wants_jobs():
            self._claim()
        if self._outbox.has_any:
            self._outbox.settle()

    def _write_notes(self) -> None:
        """Write what tasks say; what is said of a job whose row is locked waits for the tick."""
        notes = list(self._notes)
        behind = {note.attempt.pair for note in self._late_notes}
        late = lifecycle.take_notes([each for each in notes if each.attempt.pair not in behind])
        # Dropped from the queue only when they are written.
        for _ in notes:
            self._notes.popleft()
        self._late_notes += [each for each in notes if each.attempt.pair in behind] + late

    def _done(self, outcome: Outcome, status: Status) -> None:
        attempt = outcome.attempt
        self._counter.count(outcome, status)
        if status == Status.FAILED:
            logger.error(
                "Job %s (%s) failed in attempt %s: %s",
                attempt.id,
                attempt.task_path,
                attempt.attempt,
                outcome.error,
            )
        if status in FINAL and signals.finished_wanted(status):
            exceptions = {attempt.id: outcome.exception} if outcome.exception else {}
            self._announcer.tell([attempt.id], exceptions)

    def _wants_jobs(self) -> bool:
        return (
            self._state == WorkerRow.State.RUNNING and not self._supply.is_dry and self._room() > 0
        )

    def _room(self) -> int:
        """How many jobs may be claimed now."""
        room = min(self._slots.free, self._board.room)
        if self._plan.max_jobs is not None:
            room = min(room, self._plan.max_jobs - self._started)
        return room

    def _worked_enough(self) -> bool:
        return self._plan.max_jobs is not None and self._started >= self._plan.max_jobs

    def _claim(self) -> None:
        """Let the queues take turns until the slots are full or all queues are dry."""
        for offer in self._supply.offers(self._room):
            self._claim_from(offer)

    def _claim_from(self, offer: Offer) -> None:
        self._board.begin_claim()
        try:
            attempts = self._outbox.settle_and_claim(offer, self.name)
            runs = [Run(attempt, self._take_note, lifecycle.atomically) for attempt in attempts]
            for run in runs:
                self._board.put(run.attempt.pair, run.deadline)
        finally:
            self._board.end_claim()
        for run in runs:
            self._slots.start(run)
            self._served.add(offer.queue)
        self._started += len(runs)
        offer.note(attempts)

    def _take_note(self, note: Note) -> None:
        """Called in a slot: what a task says of itself waits here for the queue's connection."""
        self._notes.append(note)
        self._wake()

    # Wake-ups

    def _hear(self) -> None:
        """Which queues may hold something to claim, by word or because it is time to look."""
        if self._link.broken and self._presence.is_known:
            return
        try:
            self._supply.hear()
        except (DatabaseError, InterfaceError, OSError) as error:
            self._link.lose(error)

    def _wake(self) -> None:
        """Make the loop look: called from any thread, and cheap when it is awake already."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it is being woken
                os.write(self._wake_writer, b"!")

    def _rest(self) -> None:
        """Wait until something ends, is ordered or heard, or the clock asks for something."""
        now = time.monotonic()
        until = self._next_tick
        work = bool(self._notes or self._outbox.has_any or self._wants_jobs())
        if self._link.broken:
            until = min(until, self._link.retry_at)
        elif work or self._slots.has_ended:
            return
        else:
            until = min(until, self._supply.turns.next_moment(now), self._supply.give_back_at)
            if self._state == WorkerRow.State.RUNNING and self._room() > 0:
                self._supply.wait()
        watched = select.poll()
        for each in (self._wake_reader, *self._supply.filenos()):
            watched.register(each, select.POLLIN)
        if not self._orphaned:
            watched.register(self._orders, select.POLLIN)
        ear = None if self._link.broken else self._supply.database_fileno()
        if ear is not None:
            watched.register(ear, select.POLLIN)
        readable = {each for each, _ in watched.poll(max(0.0, until - now) * 1000)}
        for job_id in self._supply.read(readable):
            self._check_on(job_id)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 512):
                pass
        # Last: a byte that is written from here on is not swallowed.
        self._woken = False

    def _check_on(self, job_id: UUID) -> None:
        """Somebody says that the job was cancelled: if it runs here, ask the database at once."""
        if any(pair.id == job_id for pair in list(self._slots.running)):
            self._link.reach(self._beat)

    # The database

    def _come_back(self) -> None:
        """The database may be reached again: listen anew, and let owners come first."""
        self._supply.attend()
        self._let_owners_come_first()

    def _let_owners_come_first(self) -> None:
        """After a time in which leases may have run out unseen: extend this worker's own now, and
        take nobody's before all have had the time to do so."""
        self._beat()
        self._chores.let_owners_come_first()

    def _introduce(self) -> None:
        """Write this worker's row, or say what it does now."""
        now = self._presence.say(self._hear_staff)
        if self._presence.has_missed_time(now):
            self._let_owners_come_first()
        self._presence.written_at = now

    # The clock

    def _tick(self) -> None:
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + conf.options().tick
        self._keep_own_leases(now)
        self._link.reach(self._do_the_clocks_work)
        over = self._plan.max_rss is not None and resident_bytes() > self._plan.max_rss
        if self._state == WorkerRow.State.RUNNING and (self._worked_enough() or over):
            if over:
                logger.info("Worker %s is beyond --max-rss and will be replaced.", self.name)
            self._recycle()

    def _recycle(self) -> None:
        """Claim nothing more, and make room for a fresh process when all that runs has ended."""
        self._state = WorkerRow.State.STOPPING
        self._farewell = Farewell.RECYCLED

    def _do_the_clocks_work(self) -> None:
        self._introduce()
        self._notes.extendleft(reversed(self._late_notes))
        self._late_notes.clear()
        self._board.mark_ready()
        if self._state == WorkerRow.State.RUNNING:
            queues.discover(self._served)
            if not self._plan.queues:
                self._supply.turns.add(queues.known())
            self._supply.tend()
            if self._supply.has_missed_words() and self._slots.running:
                self._beat()
        written_at = self._presence.written_at  # a few statements ago
        for finding in self._chores.sweep(written_at):
            self._counter.lost(finding.taken)
            if finding.repaired:
                # On SQLite nobody hears of what was written on the own connection.
                self._supply.turns.look_soon()
        if written_at is not None:
            self._counter.write(written_at)
        self._chores.prune()
        connections[self._using].queries_log.clear()

    def _keep_own_leases(self, now: float) -> None:
        """Extend this worker's leases itself while no supervisor does."""
        heartbeat = conf.options().heartbeat
        beaten_at = self._board.beaten_at
        if not self._orphaned and now - beaten_at < 1.5 * heartbeat:
            return
        if now < self._next_own_beat or not self._presence.is_known:
            return
        self._next_own_beat = now + heartbeat
        self._link.reach(self._beat)

    def _beat(self) -> None:
        beat = lifecycle.heartbeat(self._owner, [entry.pair for entry in self._board.entries()])
        told = [(pair, "cancelled") for pair in beat.cancelled]
        self._on_tell(told + [(pair, "lost") for pair in beat.lost])
        self._on_beat_alone(list(beat.locked))

    # The end

    def _leave_in_time(self) -> None:
        """Without a supervisor nobody else ends this process when its jobs outstay the grace."""
        if self._orphaned and time.monotonic() >= self._leave_by + LAST_CALL:
            # What has not let go will be recovered when its lease ends, after this process has.
            logger.error("Worker %s exits with jobs that did not let go.", self.name)
            os._exit(1)

    def _is_done(self) -> bool:
        if self._slots.running or self._slots.has_ended or not self._outbox.is_empty:
            return False
        if self._worked_enough() and self._state == WorkerRow.State.RUNNING:
            self._recycle()
        if self._state == WorkerRow.State.STOPPING:
            return True
        if (
            self._plan.burst
            and self._presence.is_known
            and not self._link.broken
            and self._burst_is_over()
        ):
            self._farewell = Farewell.IDLE
            return True
        return False

    def _burst_is_over(self) -> bool:
        """Whether nothing can be claimed: looked for afresh, whatever was heard or missed."""
        started = self._started
        done = self._link.reach(self._look_everywhere)
        return done and self._started == started

    def _look_everywhere(self) -> None:
        if not self._plan.queues:
            queues.discover()
            self._supply.turns.add(queues.known())
        self._supply.turns.look_at_all()
        self._exchange()

    def _leave(self) -> None:
        self._link.reach(self._supply.give_back)
        self._supply.close()
        self._slots.close()
        self._announcer.close(timeout=5.0)
        with contextlib.suppress(DatabaseError, InterfaceError):
            lifecycle.take_notes([*self._late_notes, *self._notes])
            # Nothing runs here any more: if it owns anything, the answer to a claim was lost.
            lifecycle.hand_back(self._owner, reason="its worker left and did not know of it")
            self._counter.close(clock.now(self._using))
            self._chores.close()
            self._presence.withdraw()
        connections.close_all()
        self._board.say_farewell(self._farewell)
