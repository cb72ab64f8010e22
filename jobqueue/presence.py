"""A worker's row: how others know that it is there, what it does, and how staff reach it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from jobqueue import __version__, clock, conf
from jobqueue.memory import resident_bytes
from jobqueue.models import Worker, worker_name
from jobqueue.plan import Plan


class Presence:
    """The row of one worker process; see the model for what stands in it."""

    def __init__(self, plan: Plan, owner: UUID) -> None:
        self._plan = plan
        self._owner = owner
        self._host, self._pid = socket.gethostname(), os.getpid()
        self.name = worker_name(self._host, self._pid, owner)
        #: Whether the row has been written at all.
        self.is_known = False
        #: The database's time when it was written last, and all went well that follows from that.
        self.written_at: datetime | None = None

    def say(self, state: Callable[[str], str]) -> datetime:
        """Write the row; returns the database's time. `state` is given what staff have asked for, or nothing,
        and returns the worker's state. Raises the database's errors."""
        using = conf.options().database
        now = clock.now(using)
        rows = Worker.objects.using(using)
        mine = rows.filter(pk=self._owner)
        with transaction.atomic(using):
            # Nobody who holds this row keeps the worker from its work.
            free = mine.select_for_update(skip_locked=True, no_key=True)
            memory = resident_bytes()
            asked = list(free.values_list("asked", flat=True))
            if asked:
                mine.update(state=state(asked[0]), heartbeat_at=now, memory=memory)
            elif not mine.exists():
                rows.create(
                    pk=self._owner,
                    host=self._host,
                    pid=self._pid,
                    queues=list(self._plan.queues),
                    slots=self._plan.concurrency,
                    version=__version__,
                    started_at=now,
                    heartbeat_at=now,
                    state=state(""),
                    memory=memory,
                )
        self.is_known = True
        return clock.now(using)  # once more: the write may have waited

    def has_missed_time(self, now: datetime) -> bool:
        """Whether this worker was kept from writing for so long that others may have been too, by
        the clock that leases end by: it was blocked or stopped, its machine slept, or that clock
        was set."""
        if self.written_at is None:
            return False
        options = conf.options()
        return (now - self.written_at).total_seconds() > options.tick + options.heartbeat

    def withdraw(self) -> None:
        """Remove the row: this worker has left, and owns nothing any more. Raises the database's errors."""
        Worker.objects.using(conf.options().database).filter(pk=self._owner).delete()
