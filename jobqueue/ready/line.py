"""A line to Redis that holds nobody up: every wait on it is bounded, and after a failure it is left alone for a while.

It is a connection of its own, made as django-redis would make it for the cache (address, TLS, Sentinel, passwords), but
with short time-outs and no retries: whoever asks has a database to turn to.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from typing import Any, NoReturn

logger = logging.getLogger("jobqueue")

#: Seconds that connecting, or an answer, may take. A call waits for each once at most.
TIMEOUT = 0.25
#: Seconds without use after which a server may have hung up.
IDLE = 1.0
#: Seconds for which nobody asks after a failure; then one call finds out whether Redis is back.
PAUSE = 1.0

#: Seconds without a failure after which it is said that Redis works again.
SETTLED = 3.0

Command = Sequence[str | bytes | int | float]


class Unreachable(Exception):
    """Redis cannot be reached, or does not do as it is told."""


class Misused(Unreachable):
    """A key holds something of another type, that is, somebody else's."""


class Breaker:
    """Keeps calls from a Redis that fails, for all lines of a process; says so once, and once when
    it is over."""

    def __init__(self) -> None:
        self._open_until = 0.0
        self._failed_at = 0.0
        self._has_said_so = False
        self.failing = False

    def allows(self) -> bool:
        """Whether to ask Redis now. After a failure one call at a time may try."""
        if not self.failing:
            return True
        now = time.monotonic()
        if now < self._open_until:
            return False
        self._open_until = now + PAUSE
        return True

    def note_failure(self, error: Exception) -> None:
        """Redis has failed: no calls for a while."""
        has_said_so, self._has_said_so = self._has_said_so, True
        self.failing = True
        self._failed_at = time.monotonic()
        self._open_until = self._failed_at + PAUSE
        # Last: a handler takes its time, in which other threads fail as well.
        if not has_said_so:
            logger.warning("Redis does not work, so jobs go by the database alone: %s", error)

    def note_success(self) -> None:
        """Redis has answered."""
        self.failing = False
        # One that only takes no writes answers every other question.
        if self._has_said_so and time.monotonic() - self._failed_at >= SETTLED:
            self._has_said_so = False
            logger.info("Redis works again.")


class Line:
    """One connection to the Redis of the cache `alias`, for one thread, made when first used."""

    def __init__(self, alias: str, breaker: Breaker) -> None:
        self._alias = alias
        self._breaker = breaker
        self._connection: Any = None
        self._owed = 0
        self._used_at = 0.0

    def ask(self, *commands: Command) -> list[Any]:
        """Send the commands together and return their answers.

        Raises Misused for a key of another type, and Unreachable for everything else: no
        connection, no answer in time, a refusal (out of memory, read-only, moved, no rights), or
        settings from which there is no connection to be had.
        """
        self._send(commands)
        return self._receive()

    def post(self, *commands: Command) -> None:
        """Send the commands and leave their answers for the next call, which raises what they say."""
        self._send(commands)

    def start(self, command: Command) -> None:
        """Send a command whose answer comes on `fileno`, in its own time; then call `finish`."""
        self._send([command])

    def finish(self) -> Any:
        """The answer to what was started, which has begun to come in."""
        return self._receive()[0]

    def listen(self) -> list[Any]:
        """What the server has sent of its own accord, to a line that has subscribed to something.

        All of it: what has been read from the socket makes that readable no more.
        """
        said: list[Any] = []
        while not said or self._has_more():
            self._owed = 1
            said += self._receive()
        return said

    def fileno(self) -> int | None:
        """The socket, while there is a connection."""
        sock = getattr(self._connection, "_sock", None)
        return None if sock is None else int(sock.fileno())

    def close(self) -> None:
        """Hang up. The next call connects anew."""
        connection, self._connection, self._owed = self._connection, None, 0
        if connection is not None:
            connection.disconnect()

    def _send(self, commands: Sequence[Command]) -> None:
        if not self._breaker.allows():
            raise Unreachable("Redis has just failed and is left alone for a moment")
        if self._owed:
            self._receive()  # what was posted; it is not for who asks now
        if self._has_been_left():
            self.close()
        try:
            if self._connection is None:
                self._connection = connect(self._alias)
                self._connection.connect()  # as Sentinel's would not when it sends
            packed = self._connection.pack_commands(commands)
            self._connection.send_packed_command(packed, check_health=False)
            self._owed += len(commands)
            self._used_at = time.monotonic()
        except BaseException as error:
            self._give_up(error)

    def _has_been_left(self) -> bool:
        """Whether the server has hung up while nobody used the line, as some do after a while."""
        if self._connection is None or time.monotonic() - self._used_at < IDLE:
            return False
        try:
            # Nothing is owed, so what there is to read is the end.
            return bool(self._connection.can_read(0))
        except (_redis().RedisError, OSError):
            return True

    def _receive(self) -> list[Any]:
        answers = []
        refusals: list[Exception] = []
        try:
            while self._owed:
                self._owed -= 1
                try:
                    answers.append(self._connection.read_response())
                except _redis().ResponseError as error:
                    refusals.append(error)
        except BaseException as error:
            self._give_up(error)
        for refusal in refusals:
            if not str(refusal).startswith("WRONGTYPE"):
                self._give_up(refusal)
        self._breaker.note_success()
        if refusals:
            raise Misused(str(refusals[0]))
        return answers

    def _has_more(self) -> bool:
        try:
            return bool(self._connection.can_read(0))
        except BaseException as error:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> NoReturn:
        # Whatever it was, also an exception raised into this thread from outside: an answer may be
        # on its way, which must not be taken for that to the next question.
        self.close()
        if not isinstance(error, Exception):
            raise error
        self._breaker.note_failure(error)
        raise Unreachable(f"{type(error).__name__}: {error}") from error


def connect(alias: str) -> Any:
    """A connection for the cache `alias`, not connected yet. Raises ImproperlyConfigured, or
    NotImplementedError if the cache is not django-redis's."""
    from django_redis import get_redis_connection

    pool = _pool(get_redis_connection(alias))
    settings = _bounded(pool)
    if hasattr(pool, "sentinel_manager"):
        settings["connection_pool"] = _guide(pool)
    return pool.connection_class(**settings)


def _bounded(pool: Any) -> dict[str, Any]:
    """What a pool makes its connections from, with our time-outs and no retries."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    given = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith(_OF_THE_POOL)
    }
    timeouts = {
        name: min(given.get(name) or TIMEOUT, TIMEOUT)
        for name in ("socket_timeout", "socket_connect_timeout")
    }
    ours = {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "health_check_interval": 0,
        "decode_responses": False,
        "encoding": "utf-8",
        "protocol": 2,
    }
    return given | timeouts | ours


def _guide(pool: Any) -> Any:
    """What tells a connection where Sentinel's master is: the pool's, but that it asks like us."""
    from redis import ConnectionPool, Redis

    guide = copy.copy(pool.connection_kwargs["connection_pool"])
    guide.sentinel_manager = copy.copy(pool.sentinel_manager)
    pools = [each.connection_pool for each in pool.sentinel_manager.sentinels]
    guide.sentinel_manager.sentinels = [
        Redis(
            connection_pool=ConnectionPool(connection_class=each.connection_class, **_bounded(each))
        )
        for each in pools
    ]
    return guide


#: What a pool tells its connections about itself.
_OF_THE_POOL = ("maint_", "maintenance_", "orig_", "oss_")


def _pool(client: Any) -> Any:
    """The pool of a client; a cluster's has one for each node, and all keys of ours are on one."""
    if hasattr(client, "get_node_from_key"):
        from jobqueue.ready.shelf import marker_key

        node = client.get_node_from_key(marker_key())
        return client.get_redis_connection(node).connection_pool
    return client.connection_pool


def _redis() -> Any:
    import redis.exceptions

    return redis.exceptions
