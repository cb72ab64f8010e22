"""Tells receivers of task_finished that jobs have ended, in a thread that holds up nobody."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from uuid import UUID

from django.db import InterfaceError, OperationalError, close_old_connections, connections

from jobqueue import signals

logger = logging.getLogger("jobqueue")

#: How many jobs are told of at once.
BATCH = 200
#: Seconds between two tries while the database cannot be reached, and after which it tries no more.
PAUSE, PATIENCE = 0.5, 300.0

_News = tuple[Sequence[UUID], Mapping[UUID, BaseException]]


class Announcer:
    """A queue of ended jobs and the thread that tells of them; made when there is first something to tell."""

    def __init__(self) -> None:
        self._news: SimpleQueue[_News | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._until = float("inf")

    def tell(
        self, job_ids: Sequence[UUID], exceptions: Mapping[UUID, BaseException] | None = None
    ) -> None:
        """Have these jobs announced, soon, in the order of the calls."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="jobqueue-announcer", daemon=True
            )
            self._thread.start()
        self._news.put((job_ids, exceptions or {}))

    def close(self, timeout: float) -> None:
        """Tell what is left, for at most `timeout` seconds."""
        if self._thread is not None:
            self._until = time.monotonic() + timeout
            self._news.put(None)
            self._thread.join(timeout)

    def _run(self) -> None:
        while (news := self._news.get()) is not None:
            job_ids, exceptions = list(news[0]), dict(news[1])
            # What has come meanwhile goes along: the rows of many jobs are read as fast as one.
            while len(job_ids) < BATCH and not self._news.empty():
                more = self._news.get()
                if more is None:
                    self._news.put(None)  # the end, for the next round
                    break
                job_ids += more[0]
                exceptions.update(more[1])
            try:
                self._announce(job_ids, exceptions)
            except BaseException:  # the jobs have ended all the same, and the next ones will
                logger.exception("Could not announce the end of %s jobs.", len(job_ids))
                connections.close_all()
            close_old_connections()
        connections.close_all()

    def _announce(self, job_ids: Sequence[UUID], exceptions: Mapping[UUID, BaseException]) -> None:
        """Tell of them; while the database is away, wait for it: it was there a moment ago."""
        give_up_at = time.monotonic() + PATIENCE
        pause = 0.0  # the connection may only have died since the last time
        while True:
            close_old_connections()
            try:
                signals.finished(job_ids, exceptions)
                return
            except (OperationalError, InterfaceError):
                # Nothing has been told: rows come first.
                connections.close_all()
                if time.monotonic() + pause > min(give_up_at, self._until):
                    raise
            time.sleep(pause)
            pause = PAUSE
