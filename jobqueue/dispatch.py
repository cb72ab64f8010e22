"""How workers learn that there is something to claim: by Redis, by NOTIFY, or by a look at SQLite's file.

A wake-up is a hint and never a promise: whoever misses one looks again at the next tick.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db import connections, transaction

from jobqueue import conf, postgres
from jobqueue.ready import Ready, push
from jobqueue.ready import cancelled as tell_cancelled

logger = logging.getLogger("jobqueue")

CHANNEL = "jobqueue"

#: One NOTIFY a queue and process in this many seconds: each costs a third of an enqueue.
NOTIFY_EVERY = 0.010
#: So a worker that was woken looks again for this long: the next job may have sent no word.
LOOK_AGAIN = 2 * NOTIFY_EVERY
#: How long a worker waits for the word that it sends itself, to know that it hears.
PROOF = 1.0
#: Seconds between two looks of a worker that cannot hear (behind PgBouncer, say).
DEAF_POLL = 0.1
#: Seconds between two looks at SQLite's change counter: it costs microseconds.
SQLITE_POLL = 0.02

_last_notify: dict[tuple[str, str], float] = {}


def wake(using: str, jobs: Iterable[Ready]) -> None:
    """Tell workers, once the current transaction has committed, that these jobs can be claimed."""
    ready = list(jobs)
    connection = connections[using]
    if ready and (connection.vendor == "postgresql" or conf.options().redis is not None):
        # Functions, here and below: of a partial that fails Django 5.2 wants to say the name, and raises.
        connection.on_commit(lambda: _tell(using, ready), robust=True)


def _tell(using: str, jobs: Collection[Ready]) -> None:
    # Workers that Redis does not tell look at the database when they hear a queue's name.
    if not push(jobs):
        _notify(using, {job.queue for job in jobs})


def look(using: str, queues: Iterable[str]) -> None:
    """Have workers look, once the current transaction has committed, at what is in these queues."""
    names = frozenset(queues)
    if names:
        transaction.on_commit(lambda: _notify(using, names), using=using, robust=True)


def cancelled(using: str, job_ids: Sequence[UUID]) -> None:
    """Tell who runs these jobs, once the current transaction has committed, that they are cancelled."""
    if job_ids and conf.options().redis is not None:
        told = list(job_ids)
        transaction.on_commit(lambda: tell_cancelled(told), using=using, robust=True)


def _notify(using: str, queues: Collection[str]) -> None:
    if connections[using].vendor != "postgresql":
        return
    now = time.monotonic()
    due = [name for name in queues if now - _last_notify.get((using, name), 0.0) >= NOTIFY_EVERY]
    if not due:
        return
    for name in due:
        postgres.notify(using, CHANNEL, name)
        _last_notify[using, name] = now


class Ear:
    """What a worker listens with, on the queue's own connection.

    `look_every` is how many seconds may pass between two looks at the queues when nothing was
    heard. Word comes on `fileno`; where that is None, `heard` is to be asked every `ask_every`.
    """

    def __init__(self, using: str, tick: float) -> None:
        self._connection = connections[using]
        self._tick = tick
        self._heard: set[str] = set()
        self._raw: Any = None
        self._deaf = False
        self._version: int | None = None

    @property
    def look_every(self) -> float:
        """Seconds between two looks at the queues, whatever was heard."""
        return min(DEAF_POLL, self._tick) if self._deaf else self._tick

    @property
    def ask_every(self) -> float:
        """Seconds between two questions whether there is word, where nothing can be waited on."""
        return SQLITE_POLL if self._connection.vendor == "sqlite" else self.look_every

    def fileno(self) -> int | None:
        """The socket on which word comes, while there is a connection that hears."""
        if self._raw is None or self._raw.closed or self._deaf:
            return None
        return int(self._raw.fileno())

    def attend(self) -> None:
        """Start to listen, or again after a new connection. Raises the database's errors."""
        if self._connection.vendor != "postgresql":
            return
        self._connection.ensure_connection()
        raw = self._connection.connection
        if raw is self._raw:
            return
        first = self._raw is None
        self._raw = raw
        raw.add_notify_handler(lambda notice: self._heard.add(notice.payload))
        with self._connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._deaf = not self._proven()
        if self._deaf:
            logger.warning(
                "LISTEN does not work on this connection (is it behind a pooler?): "
                "looking for jobs every %s s instead.",
                self.look_every,
            )
        elif not first:
            logger.info("Listening for new jobs again.")

    @property
    def has_word(self) -> bool:
        """Whether word has come with the answer to some statement. Then it is not on `fileno` any more."""
        if self._raw is not None and not self._raw.closed:
            self._take_words()
        return bool(self._heard)

    def heard(self) -> set[str] | None:
        """The queues that have been named since the last call; None if any may have changed."""
        if self._connection.vendor == "sqlite":
            return None if self._file_changed() else set()
        if self._raw is not None and not self._raw.closed:
            self._consume()
        names, self._heard = self._heard, set()
        return names

    def _proven(self) -> bool:
        """Whether the worker hears itself, on a channel that nobody else listens on.

        A pooler passes on what comes with an answer, and may pass on nothing else. It is known by this, that
        the process that answers is not the one that introduced itself at the connection's start.
        """
        channel = f"{CHANNEL}_{uuid4().hex}"
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            if cursor.fetchone() != (self._raw.info.backend_pid,):
                return False
            cursor.execute(f"LISTEN {channel}")
            cursor.execute("SELECT pg_notify(%s, %s)", (channel, channel))
            self._wait_for(channel)
            cursor.execute(f"UNLISTEN {channel}")
        proven = channel in self._heard
        self._heard.discard(channel)
        return proven

    def _wait_for(self, word: str) -> None:
        deadline = time.monotonic() + PROOF
        with selectors.DefaultSelector() as selector:
            selector.register(self._raw.fileno(), selectors.EVENT_READ)
            while word not in self._heard and (remaining := deadline - time.monotonic()) > 0:
                selector.select(remaining)
                self._consume()

    def _consume(self) -> None:
        pgconn = self._raw.pgconn
        # The driver's own errors are not the ones that Django's callers catch.
        with self._connection.wrap_database_errors:
            pgconn.consume_input()
        self._take_words()

    def _take_words(self) -> None:
        """Those that have been read from the socket already."""
        while (notice := self._raw.pgconn.notifies()) is not None:
            self._heard.add(notice.extra.decode())

    def _file_changed(self) -> bool:
        with self._connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            (version,) = cursor.fetchone()
        changed, self._version = bool(version != self._version), version
        return changed
