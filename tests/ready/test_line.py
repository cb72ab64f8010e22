"""The line to Redis: its answers are in order, its waits are short, its failures cost a moment and one word in the log.

Whatever goes wrong with Redis, its answers or the settings is Unreachable, after which it is left alone for a while.
"""

from __future__ import annotations

import logging
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django_redis.pool import ConnectionFactory
from redis.cluster import RedisCluster
from redis.sentinel import SentinelManagedConnection

from jobqueue.ready import Breaker, Line, Misused, Ready, Shelf, Unreachable, line
from jobqueue.ready.line import Command, connect
from jobqueue.ready.shelf import prefix
from tests.servers import PrivateRedis, ServerUnavailable

HOST = "127.0.0.1"
SetCache = Callable[..., None]
NewLine = Callable[..., Line]


@pytest.fixture
def set_cache(settings: Any, monkeypatch: pytest.MonkeyPatch) -> SetCache:
    """Sets the cache `queue`: `set_cache(location, PASSWORD="x")`, where names are its OPTIONS."""

    def set_cache(
        location: str, backend: str = "django_redis.cache.RedisCache", **options: Any
    ) -> None:
        # django-redis keeps a pool for each URL as long as the process lives, whatever the options.
        monkeypatch.setattr(ConnectionFactory, "_pools", {})
        settings.CACHES = {
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "queue": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options},
        }

    return set_cache


@pytest.fixture
def new_line() -> Iterator[NewLine]:
    """Makes lines, `new_line()` or `new_line(breaker, alias)`, and hangs them up in the end."""
    made: list[Line] = []

    def new_line(breaker: Breaker | None = None, alias: str = "queue") -> Line:
        made.append(Line(alias, breaker or Breaker()))
        return made[-1]

    yield new_line
    for each in made:
        each.close()


@pytest.fixture
def always_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is not left alone after a failure, so that a test need not wait."""
    monkeypatch.setattr(line, "PAUSE", 0.0)


@pytest.fixture(autouse=True)
def _says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "SETTLED", 0.0)


class Log:
    """What was said about Redis, since it was last asked."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="jobqueue")
        self._caplog = caplog

    def taken(self) -> list[str]:
        said = [each.getMessage() for each in self._caplog.records if each.name == "jobqueue"]
        self._caplog.clear()
        return ["down" if "does not work" in each else "up" for each in said]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


@contextmanager
def redis_with(**directives: object) -> Iterator[PrivateRedis]:
    try:
        server = PrivateRedis(**directives)
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with server:
        yield server


class Listener:
    """A listening socket that is no Redis: it counts who comes, and is silent or hangs up."""

    def __init__(self, *, hangs_up: bool) -> None:
        self.hangs_up = hangs_up
        self.came: list[socket.socket] = []
        self.first_came = threading.Event()
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        self.url = f"redis://{HOST}:{self.port}/0"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.came.append(connection)
            self.first_came.set()
            if self.hangs_up:
                connection.close()

    def close(self) -> None:
        # Closing alone would not wake who is in accept().
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for each in self.came:
            each.close()


@contextmanager
def listener(*, hangs_up: bool) -> Iterator[Listener]:
    found = Listener(hangs_up=hangs_up)
    try:
        yield found
    finally:
        found.close()


def refused(asked: Line, *commands: Command) -> str:
    """Why the line is Unreachable, and not merely misused."""
    with pytest.raises(Unreachable) as caught:
        asked.ask(*(commands or [("PING",)]))
    assert not isinstance(caught.value, Misused)
    return str(caught.value)


# Answers


def test_the_answers_are_in_the_order_of_the_commands(on_redis: Shelf) -> None:
    commands = [("SET", "a", 1), ("GET", "a"), ("GET", "none"), ("APPEND", "a", b"\xff\r\n")]
    assert on_redis.line.ask(*commands) == [b"OK", b"1", None, 4]
    assert on_redis.line.ask(*[("ECHO", n) for n in range(2_000)]) == [
        str(n).encode() for n in range(2_000)
    ]
    large = "x" * 3_000_000
    assert on_redis.line.ask(("ECHO", large), ("PING",)) == [large.encode(), b"PONG"]


def test_a_key_of_another_type_is_no_failure_of_redis(
    on_redis: Shelf, new_line: NewLine, log: Log
) -> None:
    breaker = Breaker()
    asked = new_line(breaker)
    asked.ask(("SET", "text", "x"))
    ours = asked.fileno()
    with pytest.raises(Misused, match="WRONGTYPE"):
        asked.ask(("ZADD", "text", 1, "a"), ("SET", "b", 2), ("ZADD", "text", 1, "c"), ("GET", "b"))
    assert asked.ask(("GET", "b"), ("GET", "text")) == [b"2", b"x"]
    assert asked.fileno() == ours
    assert not breaker.failing
    assert log.taken() == []


def test_what_is_posted_is_answered_to_nobody(on_redis: Shelf) -> None:
    asked = on_redis.line
    asked.post(("SET", "a", 1), ("GET", "a"))
    assert asked.ask(("GET", "a"), ("PING",)) == [b"1", b"PONG"]
    asked.post(("INCR", "a"))
    asked.post(("INCR", "a"))
    asked.start(("GET", "a"))
    assert asked.finish() == b"3"


def test_the_next_call_says_what_became_of_the_post(on_redis: Shelf) -> None:
    asked = on_redis.line
    asked.ask(("SET", "text", "x"))
    asked.post(("ZADD", "text", 1, "a"))
    with pytest.raises(Misused):
        asked.ask(("PING",))
    assert asked.ask(("GET", "text")) == [b"x"]
    asked.post(("ZADD", "text", 1, "a"))
    with pytest.raises(Misused):
        asked.post(("SET", "text", "y"))
    asked.post(("NO-SUCH-COMMAND",))
    assert "unknown command" in refused(asked)


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_middle_of_an_answer_hangs_up(
    on_redis: Shelf, monkeypatch: pytest.MonkeyPatch, exception: type[BaseException]
) -> None:
    asked = on_redis.line
    asked.ask(("PING",))
    connection = asked._connection
    read = connection.read_response
    calls: list[None] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == 2:
            raise exception
        return read(*args, **kwargs)

    monkeypatch.setattr(connection, "read_response", interrupted)
    with pytest.raises(exception):
        asked.ask(("ECHO", "first"), ("ECHO", "second"), ("ECHO", "third"))
    assert asked.fileno() is None
    assert asked.ask(("ECHO", "next")) == [b"next"]


def test_an_exception_between_question_and_answer_spoils_no_answer(
    on_redis: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(on_redis.line, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            on_redis.line.ask(("ECHO", "first"))
    assert on_redis.line.ask(("ECHO", "next")) == [b"next"]


@pytest.mark.usefixtures("always_tries")
def test_an_answer_that_comes_late_is_not_that_to_the_next_question(
    on_redis: Shelf, private_redis: PrivateRedis
) -> None:
    on_redis.line.ask(("PING",))
    assert private_redis.process is not None
    private_redis.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert "Timeout" in refused(on_redis.line, ("ECHO", "late"))
        assert time.monotonic() - began < 2
    finally:
        private_redis.process.send_signal(signal.SIGCONT)
    # The process may still be waking up, and then it takes more than one try.
    deadline = time.monotonic() + 30
    while True:
        try:
            assert on_redis.line.ask(("ECHO", "next")) == [b"next"]
            break
        except Unreachable:
            assert time.monotonic() < deadline


# Failures


@pytest.mark.usefixtures("always_tries")
def test_a_server_that_is_down_and_comes_back(
    on_redis: Shelf, private_redis: PrivateRedis, new_line: NewLine, log: Log
) -> None:
    breaker = Breaker()
    asked, other = new_line(breaker), new_line(breaker)
    asked.ask(("PING",))
    other.ask(("PING",))
    private_redis.stop()
    for _ in range(3):
        refused(asked)
        refused(other)
    assert "refused" in refused(new_line(breaker))
    assert breaker.failing
    assert log.taken() == ["down"]
    private_redis.start()
    for _ in range(3):
        assert asked.ask(("PING",)) == other.ask(("PING",)) == [b"PONG"]
    assert not breaker.failing
    assert log.taken() == ["up"]
    private_redis.stop()
    refused(asked)
    assert log.taken() == ["down"], "and so each time"


Break = Callable[[Line], Any]


REFUSALS: dict[str, tuple[dict[str, str], Break, Break, str]] = {
    "out of memory": (
        {"maxmemory-policy": "noeviction"},
        # Less than an empty server takes: exactly full cannot be hit, as connections count too.
        lambda admin: admin.ask(("CONFIG", "SET", "maxmemory", "100kb")),
        lambda admin: admin.ask(("CONFIG", "SET", "maxmemory", 0)),
        "maxmemory",
    ),
    "read-only": (
        {},
        lambda admin: admin.ask(("REPLICAOF", HOST, 1)),
        lambda admin: admin.ask(("REPLICAOF", "NO", "ONE")),
        "read only",
    ),
    "no rights": (
        {},
        lambda admin: admin.ask(("ACL", "SETUSER", "default", "-zadd")),
        lambda admin: admin.ask(("ACL", "SETUSER", "default", "+zadd")),
        "permission",
    ),
}


@pytest.mark.usefixtures("always_tries")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_redis_refuses(name: str, set_cache: SetCache, new_line: NewLine, log: Log) -> None:
    directives, spoil, mend, why = REFUSALS[name]
    breaker = Breaker()
    with redis_with(**directives) as server:
        set_cache(server.url)
        admin, asked = new_line(), new_line(breaker)
        push = ("ZADD", "a set", 1, "a")
        asked.ask(push)
        spoil(admin)
        for _ in range(3):
            assert why in refused(asked, push)
        assert breaker.failing
        assert log.taken() == ["down"]
        mend(new_line())
        assert asked.ask(push, ("ZCARD", "a set"))[1:] == [1]
        assert asked.ask(("PING",)) == [b"PONG"]
        assert log.taken() == ["up"]


@pytest.mark.usefixtures("always_tries")
def test_a_password_that_is_no_longer_right(
    on_redis: Shelf, private_redis: PrivateRedis, new_line: NewLine, log: Log
) -> None:
    asked = new_line()
    asked.ask(("PING",))
    on_redis.line.ask(("CONFIG", "SET", "requirepass", "another"))
    on_redis.line.ask(("CLIENT", "KILL", "TYPE", "normal"))
    refused(asked)
    for _ in range(2):
        assert "AuthenticationError" in refused(asked)
    assert log.taken() == ["down"]
    on_redis.line.ask(("CONFIG", "SET", "requirepass", private_redis.password))
    assert asked.ask(("PING",)) == [b"PONG"]
    assert log.taken() == ["up"]


@pytest.mark.usefixtures("always_tries")
def test_a_node_of_a_cluster(set_cache: SetCache, new_line: NewLine, log: Log) -> None:
    directives = {
        "cluster-enabled": "yes",
        # A cluster is down in its first seconds; so reads go by the slots at once.
        "cluster-allow-reads-when-down": "yes",
        "cluster-config-file": "nodes.conf",
    }
    with redis_with(**directives) as server:
        server.stop()
        nodes = server.directory / "nodes.conf"
        nodes.write_text(
            f"{'a' * 40} {HOST}:{server.port}@{server.port + 10_000} myself,master - 0 0 1 connected 0-99\n"
            f"{'b' * 40} {HOST}:1@10001 master - 0 0 2 connected 100-9999\n"
            "vars currentEpoch 2 lastVoteEpoch 0\n"
        )
        server.give_to_user(nodes)
        server.start()
        set_cache(server.url)
        asked = new_line()
        # {b} has slot 3300, {a} 15495: the other node's and nobody's.
        (moved, lost) = ("{b}:set", "{a}:set")
        assert asked.ask(*[("CLUSTER", "KEYSLOT", key) for key in (moved, lost)]) == [3300, 15495]
        for _ in range(2):
            assert f"3300 {HOST}:1" in refused(asked, ("ZMSCORE", moved, "a"))
            assert "slot" in refused(asked, ("ZMSCORE", lost, "a"))
        assert log.taken() == ["down"]
        assert asked.ask(("PING",)) == [b"PONG"]
        assert log.taken() == ["up"]


class ClusterFactory(ConnectionFactory):
    """As a site with a Redis Cluster sets it up."""

    def connect(self, url: str) -> Any:
        """A client of the cluster that the node at this address belongs to."""
        return RedisCluster.from_url(url)


@pytest.mark.usefixtures("always_tries", "log")
def test_a_cluster(set_cache: SetCache, new_line: NewLine) -> None:
    """The line goes to the node that has our keys, all of them."""
    with redis_with(**{"cluster-enabled": "yes", "cluster-config-file": "nodes.conf"}) as server:
        server.stop()
        nodes = server.directory / "nodes.conf"
        nodes.write_text(
            f"{'a' * 40} {HOST}:{server.port}@{server.port + 10_000} myself,master - 0 0 1 connected 0-16383\n"
            "vars currentEpoch 1 lastVoteEpoch 0\n"
        )
        server.give_to_user(nodes)
        server.start()
        set_cache(server.url, CONNECTION_FACTORY="tests.ready.test_line.ClusterFactory")
        shelf = Shelf(new_line(), prefix())
        # A cluster is down in its first seconds.
        until = time.monotonic() + 20
        while (answer := ask_patiently(shelf.line, ("CLUSTER", "INFO"))) is None or (
            b"cluster_state:ok" not in answer
        ):
            assert time.monotonic() < until, answer
            time.sleep(0.05)
        jobs = [Ready(uuid4(), queue, 0) for queue in ("default", "mail")]
        shelf.push(jobs)
        assert [shelf.pop(job.queue, 5) for job in jobs] == [([job.id], 1) for job in jobs]


def ask_patiently(asked: Line, command: Command) -> Any:
    try:
        return asked.ask(command)[0]
    except Unreachable:
        return None


LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
WRONG_SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "of another kind": ("", {"backend": LOCMEM}),
    "of Django's own Redis": (
        "redis://127.0.0.1:1/0",
        {"backend": "django.core.cache.backends.redis.RedisCache"},
    ),
    "no such backend": ("", {"backend": "nowhere.RedisCache"}),
    "no location": ("", {}),
    "an unknown scheme": ("gopher://127.0.0.1:1/0", {}),
    "a time-out that is none": ("redis://127.0.0.1:1/0", {"SOCKET_TIMEOUT": "soon"}),
    "an unknown argument": (
        "redis://127.0.0.1:1/0",
        {"CONNECTION_POOL_KWARGS": {"no_such_argument": 1}},
    ),
    "Sentinel without sentinels": (
        "redis://main/0",
        {"CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory"},
    ),
}


@pytest.mark.usefixtures("always_tries")
@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_settings_that_cannot_work(
    name: str, set_cache: SetCache, new_line: NewLine, log: Log
) -> None:
    location, options = WRONG_SETTINGS[name]
    set_cache(location, **options)
    breaker = Breaker()
    asked = new_line(breaker)
    for _ in range(2):
        refused(asked)
        with pytest.raises(Unreachable):
            asked.post(("PING",))
    assert breaker.failing
    assert log.taken() == ["down"]


@pytest.mark.usefixtures("always_tries")
def test_an_alias_that_is_no_cache(
    set_cache: SetCache, private_redis: PrivateRedis, new_line: NewLine, log: Log
) -> None:
    set_cache(private_redis.url)
    asked = new_line(alias="no such cache")
    for _ in range(2):
        assert "no such cache" in refused(asked)
    assert log.taken() == ["down"]
    assert new_line().ask(("PING",)) == [b"PONG"]


# The breaker


class Clock:
    """The line's idea of the time, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_redis_is_left_alone_and_then_one_caller_tries(
    monkeypatch: pytest.MonkeyPatch, set_cache: SetCache, new_line: NewLine, log: Log
) -> None:
    clock = Clock()
    monkeypatch.setattr(line, "time", clock)
    breaker = Breaker()
    reasons: list[str] = []

    def all_ask(callers: int) -> None:
        together = threading.Barrier(callers)

        def ask(asked: Line) -> None:
            together.wait(30)
            reasons.append(refused(asked))

        threads = [threading.Thread(target=ask, args=[new_line(breaker)]) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    with listener(hangs_up=True) as server:
        set_cache(server.url)
        refused(new_line(breaker))
        assert len(server.came) == 1
        clock.now += 0.99 * line.PAUSE
        all_ask(4)
        assert len(server.came) == 1
        assert len(reasons) == sum("left alone" in each for each in reasons) == 4
        for tries in (2, 3):
            reasons.clear()
            clock.now += line.PAUSE
            all_ask(8)
            assert len(server.came) == tries
            assert len(reasons) == 8
            assert sum("left alone" in each for each in reasons) == 7
    assert log.taken() == ["down"]


def test_one_that_tries_long_keeps_the_others_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(line, "time", clock)
    breaker = Breaker()
    assert [breaker.allows(), breaker.allows()] == [True, True]
    breaker.note_failure(OSError())
    clock.now += line.PAUSE
    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker.note_success()
    assert [breaker.allows(), breaker.allows()] == [True, True]


@pytest.mark.parametrize("word", ["down", "up"])
def test_who_fails_while_another_logs_says_nothing(word: str, log: Log) -> None:
    # The handlers of a site may be slow, and all threads fail at about the same time.
    breaker = Breaker()
    if word == "up":
        breaker.note_failure(OSError())
        log.taken()

    def note() -> None:
        if word == "up":
            breaker.note_success()
        else:
            breaker.note_failure(OSError())

    def meanwhile(record: logging.LogRecord) -> bool:
        line.logger.removeFilter(meanwhile)
        other = threading.Thread(target=note)
        other.start()
        other.join(30)
        return True

    line.logger.addFilter(meanwhile)
    try:
        note()
    finally:
        line.logger.removeFilter(meanwhile)
    assert log.taken() == [word]


def test_one_that_refuses_every_other_question_is_not_said_to_work(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "SETTLED", 60.0)
    breaker = Breaker()
    for _ in range(3):
        breaker.note_failure(Unreachable("read-only"))
        breaker.note_success()
    assert log.taken() == ["down"]
    monkeypatch.setattr(line, "SETTLED", 0.0)
    breaker.note_success()
    assert log.taken() == ["up"]


def test_a_line_that_the_server_has_closed_is_no_failure(
    on_redis: Shelf, new_line: NewLine, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does with clients that have long said nothing."""
    monkeypatch.setattr(line, "IDLE", 0.0)
    idle = new_line()
    for use in (idle.ask, idle.post):
        use(("PING",))
        if use == idle.post:  # its answer has come, and nobody has read it
            assert select.select([idle.fileno()], [], [], 20)[0]
        on_redis.line.ask(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        assert idle.ask(("ECHO", "here")) == [b"here"]
    assert log.taken() == []


def test_a_server_that_never_answers_is_not_waited_for(
    set_cache: SetCache, new_line: NewLine
) -> None:
    with listener(hangs_up=False) as server:
        set_cache(server.url)
        began = time.monotonic()
        assert "Timeout" in refused(new_line())
        # Generous: it is TIMEOUT to connect and TIMEOUT for the answer at most.
        assert time.monotonic() - began < 2
        assert server.first_came.wait(30)
        assert len(server.came) == 1


# The settings of the cache


def test_the_database_in_the_location(
    private_redis: PrivateRedis, set_cache: SetCache, new_line: NewLine
) -> None:
    set_cache(private_redis.url.removesuffix("/0") + "/3")
    asked = new_line()
    asked.ask(("SET", "here", 1))
    assert asked.ask(("SELECT", 0), ("EXISTS", "here")) == [b"OK", 0]
    assert asked.ask(("SELECT", 3), ("EXISTS", "here")) == [b"OK", 1]


@pytest.mark.usefixtures("always_tries")
def test_the_password_in_the_options(
    private_redis: PrivateRedis, set_cache: SetCache, new_line: NewLine
) -> None:
    location = f"redis://{HOST}:{private_redis.port}/0"
    set_cache(location)
    assert "Authentication" in refused(new_line())
    set_cache(location, PASSWORD=private_redis.password)
    assert new_line().ask(("PING",)) == [b"PONG"]


@pytest.mark.parametrize(
    "pool", ["redis.connection.ConnectionPool", "redis.connection.BlockingConnectionPool"]
)
def test_the_arguments_of_the_pool(
    private_redis: PrivateRedis, set_cache: SetCache, new_line: NewLine, pool: str
) -> None:
    wished = {
        "client_name": "of-the-cache",
        "max_connections": 1,
        "decode_responses": True,
        "encoding": "latin-1",
        "protocol": 3,
        "health_check_interval": 1,
    }
    set_cache(private_redis.url, CONNECTION_POOL_CLASS=pool, CONNECTION_POOL_KWARGS=wished)
    first, second = new_line(), new_line()
    first.ask(("PING",))
    answers = second.ask(("CLIENT", "GETNAME"), ("ECHO", "é"), ("ZADD", "s", 1, "a"))
    assert answers == [b"of-the-cache", "é".encode(), 1]
    # As protocol 2 has it; 3 says [[b"a", 1.0]].
    assert second.ask(("ZPOPMIN", "s", 1)) == [[b"a", b"1"]]


@pytest.mark.usefixtures("always_tries")
def test_the_retries_of_the_pool_are_not_ours(set_cache: SetCache, new_line: NewLine) -> None:
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.retry import Retry

    wished = {
        "retry": Retry(NoBackoff(), 3),
        "retry_on_timeout": True,
        "retry_on_error": [RedisConnectionError],
    }
    with listener(hangs_up=True) as server:
        set_cache(server.url, CONNECTION_POOL_KWARGS=wished)
        asked = new_line()
        for tries in (1, 2):
            refused(asked)
            assert len(server.came) == tries


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix"])
def test_time_outs_are_at_most_ours(set_cache: SetCache, scheme: str) -> None:
    location = "unix:///nowhere" if scheme == "unix" else f"{scheme}://{HOST}:1/0"

    def timeouts(location: str, **options: Any) -> tuple[float, float]:
        set_cache(location, **options)
        made = connect("queue")
        return made.socket_timeout, made.socket_connect_timeout

    ours = line.TIMEOUT
    assert timeouts(location) == (ours, ours)
    assert timeouts(location, SOCKET_TIMEOUT=5, SOCKET_CONNECT_TIMEOUT=5) == (ours, ours)
    assert timeouts(location, SOCKET_TIMEOUT=0.1) == (0.1, ours)
    assert timeouts(location, SOCKET_CONNECT_TIMEOUT=0.1) == (ours, 0.1)
    assert timeouts(f"{location}?socket_timeout=0.2") == (0.2, ours)
    assert timeouts(location, CONNECTION_POOL_KWARGS={"socket_timeout": None}) == (ours, ours)


def test_a_unix_socket(set_cache: SetCache, new_line: NewLine) -> None:
    # Relative to the server's directory: a whole path may be longer than a socket's name may be.
    with redis_with(unixsocket="socket", unixsocketperm="777") as server:
        set_cache(f"unix://:{server.password}@{server.directory / 'socket'}?db=2")
        asked = new_line()
        assert asked.ask(("SET", "here", 1), ("PING",)) == [b"OK", b"PONG"]
        assert asked.ask(("SELECT", 0), ("EXISTS", "here")) == [b"OK", 0]


# Sentinel


class PrivateSentinel(PrivateRedis):
    """A Sentinel that knows of one master, by the name `main`."""

    def __init__(self, master: PrivateRedis) -> None:
        super().__init__()
        self.master = master

    def command(self) -> list[str]:
        lines = (
            f"bind {HOST}",
            f"port {self.port}",
            f"dir {self.directory}",
            f"requirepass {self.password}",
            f"sentinel monitor main {HOST} {self.master.port} 1",
            f"sentinel auth-pass main {self.master.password}",
        )
        path = self.directory / "sentinel.conf"
        path.touch(mode=0o600)
        path.write_text("".join(f"{each}\n" for each in lines))
        self.give_to_user(path)
        return [str(self.program), str(path), "--sentinel"]


def by_sentinel(port: int, **options: Any) -> dict[str, Any]:
    return {
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
        "SENTINELS": [(HOST, port)],
        **options,
    }


@pytest.mark.usefixtures("always_tries")
@pytest.mark.parametrize("client", ["DefaultClient", "SentinelClient"])
def test_the_master_that_sentinel_names(
    private_redis: PrivateRedis, set_cache: SetCache, new_line: NewLine, log: Log, client: str
) -> None:
    with PrivateSentinel(private_redis) as sentinel:
        options = by_sentinel(
            sentinel.port,
            SENTINEL_KWARGS={"password": sentinel.password},
            PASSWORD=private_redis.password,
            CLIENT_CLASS=f"django_redis.client.{client}",
        )
        set_cache("redis://main/2", **options)
        asked = new_line()
        assert asked.ask(("SET", "here", 1)) == [b"OK"]
        assert asked.ask(("SELECT", 0), ("EXISTS", "here")) == [b"OK", 0]
        assert isinstance(asked._connection, SentinelManagedConnection)
        assert asked._connection.socket_timeout == line.TIMEOUT
        assert asked._connection.port == private_redis.port
        set_cache("redis://unknown/2", **options)
        assert "MasterNotFoundError" in refused(new_line())
    assert log.taken() == ["down"]


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("given", [None, {"socket_timeout": 5}])
def test_a_sentinel_that_does_not_work_is_not_waited_for(
    set_cache: SetCache, new_line: NewLine, hangs_up: bool, given: dict[str, Any] | None
) -> None:
    with listener(hangs_up=hangs_up) as server:
        set_cache("redis://main/0", **by_sentinel(server.port, SENTINEL_KWARGS=given))
        began = time.monotonic()
        assert "MasterNotFoundError" in refused(new_line())
        assert time.monotonic() - began < 2
        assert server.first_came.wait(30)
        assert len(server.came) == 1
