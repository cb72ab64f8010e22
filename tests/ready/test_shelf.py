"""The sets in Redis: the order of the line, its edges, two sites on one server, the marker, waiting and hearing."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from jobqueue.ids import uuid7
from jobqueue.ready import Breaker, Line, Misused, Ready, Shelf, Unreachable, cancelled, pushing
from jobqueue.ready import shelf as shelves
from jobqueue.ready.shelf import BATCH, marker_key, prefix, read_ids, shelf_on
from jobqueue.ready.waiting import SLACK, Bell, Waiter
from tests.servers import PrivateRedis

PATIENCE = 30.0
ODD_NAMES = ["", "*", "[x]", "?", "^", "\\", "a:b", "a", "with spaces\tand\nlines", "é", "{b}"]
NewShelf = Callable[..., Shelf]


@pytest.fixture
def new_shelf(on_redis: Shelf) -> Iterator[NewShelf]:
    """Makes shelves over lines of their own: of this site, or with another prefix."""
    made: list[Shelf] = []

    def new_shelf(prefix: str | None = None) -> Shelf:
        line = Line("queue", Breaker())
        made.append(shelf_on(line) if prefix is None else Shelf(line, prefix))
        return made[-1]

    yield new_shelf
    for each in made:
        each.line.close()


@pytest.fixture
def fresh_prefix() -> Iterator[None]:
    """The prefix, which a process reads once, is that of the settings as they are now."""
    shelves._prefix.cache_clear()
    yield
    shelves._prefix.cache_clear()


def ready(queue: str = "q", priority: int = 0) -> Ready:
    return Ready(uuid7(), queue, priority)


def name(job: Ready) -> bytes:
    return str(job.id).encode()


def ids(jobs: Iterable[Ready]) -> list[UUID]:
    return [job.id for job in jobs]


def put(shelf: Shelf, queue: str, score: float, member: str | bytes) -> None:
    """Write a member past the shelf, as somebody else would."""
    shelf.line.ask(("ZADD", shelf.key(queue), score, member))


def scores(shelf: Shelf, queue: str = "q") -> dict[bytes, float]:
    return {name: score for page in shelf.pages(queue) for name, score in page}


def all_keys(shelf: Shelf) -> list[str]:
    (keys,) = shelf.line.ask(("KEYS", "*"))
    return sorted(key.decode() for key in keys)


# The line


def test_the_highest_priority_first_and_then_the_oldest(on_redis: Shelf) -> None:
    priorities = [0, 5, -5, 5, 0, 100, -100, -5, 2**31 - 1, -(2**31), *range(-50, 50)] * 5
    jobs = [ready(priority=each) for each in priorities]
    expected = ids(sorted(jobs, key=lambda job: (-job.priority, job.id)))
    shuffled = random.sample(jobs, len(jobs))
    on_redis.push(shuffled[:100])
    on_redis.push(shuffled[100:])
    popped = []
    while batch := on_redis.pop("q", 7)[0]:
        popped += batch
    assert popped == expected


def test_what_is_posted_is_in_line_as_what_is_pushed(on_redis: Shelf, new_shelf: NewShelf) -> None:
    jobs = [ready(f"queue {n % 3}") for n in range(2 * BATCH)]
    on_redis.post(jobs)
    on_redis.push([])
    on_redis.line.ask(("PING",))  # the posts are done once a later question is answered
    for n in range(3):
        assert new_shelf().pop(f"queue {n}", len(jobs)) == (ids(jobs[n::3]), len(jobs[n::3]))


def test_a_job_is_in_line_once_and_where_its_priority_says(on_redis: Shelf) -> None:
    first, second, third = jobs = [ready(priority=1), ready(priority=1), ready(priority=1)]
    on_redis.push(jobs)
    on_redis.push([first])
    on_redis.push([third._replace(priority=2), first._replace(priority=-1)])
    assert scores(on_redis) == {name(first): 1, name(second): -1, name(third): -2}
    assert on_redis.pop("q", 10) == (ids([third, second, first]), 3)


def test_no_more_than_there_is(on_redis: Shelf) -> None:
    jobs = [ready(), ready()]
    on_redis.push(jobs)
    assert on_redis.pop("another", 5) == ([], 0)
    assert on_redis.pop("q", 0) == ([], 0)
    assert on_redis.pop("q", 5) == (ids(jobs), 2)
    assert on_redis.pop("q", 5) == ([], 0)
    assert on_redis.type_of("q") == "none"


def test_a_member_that_is_no_id_is_thrown_away_and_counted(on_redis: Shelf) -> None:
    job = ready()
    for n, member in enumerate(["rubbish", b"\xff\xfe", "", f"{job.id}x"]):
        put(on_redis, "q", n - 10, member)
    on_redis.push([job])
    assert on_redis.pop("q", 2) == ([], 2)
    assert on_redis.pop("q", 9) == ([job.id], 3)
    assert on_redis.pop("q", 9) == ([], 0)


def test_what_is_missing(on_redis: Shelf) -> None:
    there = [ready(priority=each) for each in (0, 7, -7, 2**31 - 1, -(2**31))]
    moved = [ready(priority=each) for each in (0, 7, -7)]
    never = [ready(priority=each) for each in (0, 7)]
    on_redis.push(there)
    for job in moved:
        put(on_redis, "q", -job.priority + 0.5, str(job.id))
    jobs = random.sample(there + moved + never, 10)
    lacking = on_redis.missing("q", jobs)
    assert lacking == [job for job in jobs if job in moved + never]
    on_redis.push(lacking)
    assert on_redis.missing("q", jobs) == []
    assert on_redis.missing("another", jobs) == jobs
    assert (on_redis.size("q"), on_redis.size("another")) == (10, 0)
    assert on_redis.missing("q", []) == []


def test_more_than_one_command_takes(on_redis: Shelf) -> None:
    jobs = [ready(priority=n % 3) for n in range(2 * BATCH + 500)]
    on_redis.push(jobs)
    assert on_redis.missing("q", jobs) == []
    assert scores(on_redis) == {name(job): -job.priority for job in jobs}
    assert on_redis.size("q") == len(jobs)
    kept = jobs[:: BATCH // 2]
    on_redis.remove("q", [str(job.id) for job in jobs if job not in kept])
    assert scores(on_redis) == {name(job): -job.priority for job in kept}
    lacking = on_redis.missing("q", jobs)
    assert lacking == [job for job in jobs if job not in kept]


def test_pages_have_every_member_whatever_it_is(on_redis: Shelf) -> None:
    job = ready(priority=3)
    on_redis.push([job])
    put(on_redis, "q", 0.25, "rubbish é")
    put(on_redis, "q", 1, b"\xff")
    assert scores(on_redis) == {name(job): -3, "rubbish é".encode(): 0.25, b"\xff": 1}
    on_redis.remove("q", [member for member in scores(on_redis) if member != name(job)])
    assert scores(on_redis) == {name(job): -3}
    assert list(on_redis.pages("another")) == []


def test_remove_takes_what_it_is_told(on_redis: Shelf) -> None:
    first, second = ready(), ready()
    on_redis.push([first, second])
    put(on_redis, "q", 0, "rubbish")
    on_redis.remove("q", iter([str(first.id), "rubbish", "absent"]))
    on_redis.remove("q", [])
    on_redis.remove("another", [str(second.id)])
    assert on_redis.pop("q", 9) == ([second.id], 1)


# Names


def test_queues_of_any_name(on_redis: Shelf) -> None:
    jobs = [ready(name) for name in ODD_NAMES]
    assert on_redis.queues() == []
    on_redis.push(jobs)
    on_redis.line.ask(("SET", on_redis.key("text"), "x"), ("SET", "somebody else's", "x"))
    assert on_redis.queues() == sorted([*ODD_NAMES, "text"])
    assert on_redis.missing("*", jobs) == [job for job in jobs if job.queue != "*"]
    for job in jobs:
        assert on_redis.pop(job.queue, 9) == ([job.id], 1)
    assert on_redis.queues() == ["text"]


def test_more_queues_than_one_command_finds(on_redis: Shelf) -> None:
    names = [f"queue {n}" for n in range(BATCH + 500)]
    on_redis.push([ready(name) for name in names])
    assert on_redis.queues() == sorted(names)


def test_each_site_has_its_own_keys(new_shelf: NewShelf) -> None:
    # Each would match others if taken for a pattern, or for the beginning of another.
    prefixes = ["{site}", "{site*}", "{sit?}", "{[a-z]ite}", "{site:ready}", "{site\\}"]
    sites = [new_shelf(each) for each in prefixes]
    jobs = [ready("q") for _ in sites]
    for site, job in zip(sites, jobs, strict=True):
        assert site.pop("q", 9) == ([], 0)
        assert not site.remembers()
        site.push([job])
        assert site.begin_refill("token")
    for site in sites:
        assert site.queues() == ["q"]
    sites[0].clear("q")
    assert sites[0].finish_refill("token")
    assert [site.remembers() for site in sites] == [True] + [False] * 5
    for site, job in zip(sites[1:], jobs[1:], strict=True):
        assert site.missing("q", jobs) == [each for each in jobs if each is not job]
        assert site.pop("q", 9) == ([job.id], 1)
        assert site.go_on("token")


@pytest.mark.usefixtures("fresh_prefix")
def test_where_the_prefix_comes_from(settings: Any) -> None:
    default = settings.TASKS["default"]
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}

    def found(given: str | None, key_prefix: str | None) -> str:
        settings.CACHES = {
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "queue": cache if key_prefix is None else cache | {"KEY_PREFIX": key_prefix},
        }
        options = {"redis": "queue"} | ({} if given is None else {"redis_prefix": given})
        settings.TASKS = {"default": default | {"OPTIONS": options}}
        shelves._prefix.cache_clear()
        return prefix()

    assert found("option", "cache") == "{option}"
    assert found("option", None) == "{option}"
    assert found("my}{site", None) == "{my)(site}"
    assert found(None, "cache") == "{cache}"
    assert found(None, "") == "{jobqueue}"
    assert found(None, None) == "{jobqueue}"


def test_all_keys_of_a_site_share_one_hash_tag(on_redis: Shelf) -> None:
    on_redis.push([ready("q"), ready("{another} tag"), ready("}{")])
    assert on_redis.begin_refill("token")
    assert on_redis.finish_refill("token")
    assert on_redis.begin_refill("token")
    keys = all_keys(on_redis)
    assert len(keys) == 5
    assert marker_key() == on_redis.marker
    assert marker_key() in keys
    # A tag is what is between the first { and the first } after it.
    assert {key[: key.index("}") + 1] for key in keys} == {on_redis.prefix}
    assert on_redis.prefix.startswith("{test-")


# What is not ours


def test_a_key_of_another_type(on_redis: Shelf) -> None:
    job = ready()
    on_redis.line.ask(("SET", on_redis.key("text"), "x"), ("LPUSH", on_redis.key("list"), "x"))
    on_redis.push([job])
    types = [on_redis.type_of(each) for each in ("text", "list", "q", "none")]
    assert types == ["string", "list", "zset", "none"]
    uses: list[Callable[[], object]] = [
        lambda: on_redis.push([ready("text")]),
        lambda: on_redis.pop("text", 1),
        lambda: on_redis.size("text"),
        lambda: on_redis.missing("text", [job]),
        lambda: on_redis.remove("text", ["x"]),
        lambda: list(on_redis.pages("text")),
    ]
    for use in uses:
        with pytest.raises(Misused):
            use()
    for name in ("text", "list", "none"):
        on_redis.clear(name)
        assert on_redis.type_of(name) == "none"
    assert on_redis.queues() == ["q"]
    on_redis.push([ready("text")])
    assert on_redis.type_of("text") == "zset"


def test_ids_among_members() -> None:
    known = uuid7()
    assert read_ids([b"", b"\xff", str(known).encode(), b"1234"]) == [known]


# The marker


def test_one_refills_and_then_it_is_remembered(on_redis: Shelf, new_shelf: NewShelf) -> None:
    other = new_shelf()
    assert not on_redis.remembers()
    assert on_redis.begin_refill("ours")
    assert not other.begin_refill("theirs")
    assert not on_redis.begin_refill("ours"), "not even who has begun may begin again"
    assert not on_redis.remembers()
    assert not other.go_on("theirs")
    assert not other.finish_refill("theirs")
    assert not other.remembers()
    assert on_redis.go_on("ours")
    assert on_redis.finish_refill("ours")
    assert on_redis.remembers()
    assert other.remembers()
    assert not on_redis.finish_refill("ours"), "it is done"
    assert not on_redis.go_on("ours")


def test_going_on_keeps_the_refill_for_longer(on_redis: Shelf) -> None:
    assert on_redis.begin_refill("ours")
    (left,) = on_redis.line.ask(("TTL", on_redis._refill))
    assert 0 < left <= shelves.REFILL
    on_redis.line.ask(("EXPIRE", on_redis._refill, 5))
    assert not on_redis.go_on("theirs")
    assert on_redis.line.ask(("TTL", on_redis._refill))[0] <= 5
    assert on_redis.go_on("ours")
    assert on_redis.line.ask(("TTL", on_redis._refill))[0] > 5
    on_redis.line.ask(("DEL", on_redis._refill))
    assert not on_redis.go_on("ours"), "its time was over"
    assert on_redis.begin_refill("theirs")
    assert not on_redis.go_on("ours")


def test_a_memory_lost_again_is_not_remembered(on_redis: Shelf) -> None:
    assert on_redis.begin_refill("ours")
    on_redis.line.ask(("FLUSHALL",))
    assert not on_redis.go_on("ours")
    assert not on_redis.finish_refill("ours")
    assert not on_redis.remembers()
    assert on_redis.begin_refill("theirs")
    assert not on_redis.finish_refill("ours")
    assert on_redis.finish_refill("theirs")
    assert on_redis.remembers()
    on_redis.line.ask(("FLUSHALL",))
    assert not on_redis.remembers()


# Waiting


def readable(waits: Waiter | Bell, seconds: float = PATIENCE) -> bool:
    """Whether something has come, or does before the time is over."""
    fileno = waits.fileno()
    assert fileno is not None
    return bool(select.select([fileno], [], [], seconds)[0])


def blocked_clients(shelf: Shelf) -> int:
    (answer,) = shelf.line.ask(("INFO", "clients"))
    fields = dict(each.split(":") for each in answer.decode().split() if ":" in each)
    return int(fields["blocked_clients"])


def until(condition: Callable[[], bool]) -> None:
    # Each look is a question to the server, so this does not spin.
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def test_an_id_that_is_there_comes_at_once(on_redis: Shelf, new_shelf: NewShelf) -> None:
    waiter = Waiter(new_shelf())
    low, high = ready("q", -1), ready("q", 1)
    on_redis.push([low, high])
    for job in (high, low):
        waiter.start(["q"], PATIENCE)
        assert readable(waiter)
        assert waiter.take() == ("q", [job.id])
        assert (waiter.is_waiting, waiter.fileno()) == (False, None)
    assert on_redis.type_of("q") == "none"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_id_comes_when_it_is_pushed(on_redis: Shelf, new_shelf: NewShelf, name: str) -> None:
    waiter = Waiter(new_shelf())
    waiter.start([name, "another"], PATIENCE)
    assert waiter.is_waiting
    until(lambda: blocked_clients(on_redis) == 1)
    assert not readable(waiter, 0)
    job = ready(name)
    on_redis.push([job])
    assert readable(waiter)
    assert waiter.take() == (name, [job.id])


def test_the_first_queue_that_has_something(on_redis: Shelf, new_shelf: NewShelf) -> None:
    waiter = Waiter(new_shelf())
    third, second = ready("third", 100), ready("second")
    on_redis.push([third])
    on_redis.push([second])
    for expected in (("second", [second.id]), ("third", [third.id])):
        waiter.start(["first", "second", "third"], PATIENCE)
        assert readable(waiter)
        assert waiter.take() == expected


@pytest.mark.parametrize("seconds", [0.05, 0.0001, 0, -1])
def test_the_time_is_over(on_redis: Shelf, new_shelf: NewShelf, seconds: float) -> None:
    waiter = Waiter(new_shelf())
    for _ in range(2):
        waiter.start(["q"], seconds)
        assert readable(waiter)
        assert waiter.take() is None
        assert not waiter.is_waiting
    job = ready()
    on_redis.push([job])
    waiter.start(["q"], PATIENCE)
    assert readable(waiter)
    assert waiter.take() == ("q", [job.id])


def test_a_member_that_is_no_id_is_a_queue_without_an_id(
    on_redis: Shelf, new_shelf: NewShelf
) -> None:
    waiter = Waiter(new_shelf())
    put(on_redis, "q", 0, b"\xff")
    waiter.start(["q"], PATIENCE)
    assert readable(waiter)
    assert waiter.take() == ("q", [])


def test_who_has_stopped_takes_nothing(on_redis: Shelf, new_shelf: NewShelf) -> None:
    waiter = Waiter(new_shelf())
    waiter.stop()
    waiter.start(["q"], PATIENCE)
    until(lambda: blocked_clients(on_redis) == 1)
    waiter.stop()
    assert (waiter.is_waiting, waiter.fileno(), waiter.is_overdue) == (False, None, False)
    # Not before the server knows.
    until(lambda: blocked_clients(on_redis) == 0)
    job = ready()
    on_redis.push([job])
    assert on_redis.missing("q", [job]) == []
    waiter.start(["q"], PATIENCE)
    assert readable(waiter)
    assert waiter.take() == ("q", [job.id])


def test_an_answer_that_does_not_come_is_overdue(
    new_shelf: NewShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("jobqueue.ready.waiting.time", clock)
    waiter = Waiter(new_shelf())
    assert not waiter.is_overdue
    waiter.start(["q"], PATIENCE)
    now += PATIENCE + 0.9 * SLACK
    assert not waiter.is_overdue
    now += 0.2 * SLACK
    assert waiter.is_overdue
    waiter.stop()
    assert not waiter.is_overdue


def test_waiting_for_a_key_of_another_type(on_redis: Shelf, new_shelf: NewShelf) -> None:
    waiter = Waiter(new_shelf())
    on_redis.line.ask(("SET", on_redis.key("q"), "x"))
    waiter.start(["q"], PATIENCE)
    assert readable(waiter)
    with pytest.raises(Misused):
        waiter.take()
    assert not waiter.is_waiting
    on_redis.clear("q")
    job = ready()
    on_redis.push([job])
    waiter.start(["q"], PATIENCE)
    assert readable(waiter)
    assert waiter.take() == ("q", [job.id])


def test_waiting_while_the_server_goes_down(
    private_redis: PrivateRedis, new_shelf: NewShelf
) -> None:
    waiter = Waiter(new_shelf())
    waiter.start(["q"], PATIENCE)
    private_redis.stop()
    assert readable(waiter)
    with pytest.raises(Unreachable):
        waiter.take()
    assert (waiter.is_waiting, waiter.fileno()) == (False, None)
    with pytest.raises(Unreachable):
        waiter.start(["q"], PATIENCE)
    assert not waiter.is_waiting


# Hearing


def hear(bell: Bell, count: int) -> list[UUID]:
    """The next `count` ids that are heard, however they come."""
    heard: list[UUID] = []
    while len(heard) < count:
        assert readable(bell)
        heard += bell.heard()
    return heard


def test_cancellations_are_heard(on_redis: Shelf, new_shelf: NewShelf) -> None:
    bell, other = Bell(new_shelf()), Bell(new_shelf("{another site}"))
    assert (bell.is_on, bell.fileno()) == (False, None)
    bell.turn_on()
    other.turn_on()
    assert bell.is_on
    assert not readable(bell, 0)
    first, *others = [uuid7() for _ in range(2_000)]
    cancelled([first])
    assert hear(bell, 1) == [first]
    cancelled([])
    # As many as come at once: what has been read from the socket must not lie there unheard.
    cancelled(others)
    assert hear(bell, len(others)) == others
    assert not readable(bell, 0)
    assert not readable(other, 0)
    bell.turn_off()
    assert (bell.is_on, bell.fileno()) == (False, None)
    cancelled([first])
    bell.turn_on()
    cancelled(others[:1])
    assert hear(bell, 1) == others[:1]


def test_rubbish_is_not_heard(on_redis: Shelf, new_shelf: NewShelf) -> None:
    bell = Bell(new_shelf())
    bell.turn_on()
    known = uuid7()
    said = ["", "rubbish", b"\xff", f"{known}x", os.urandom(100_000), str(known), "more"]
    on_redis.line.ask(*[("PUBLISH", on_redis.channel, each) for each in said])
    assert hear(bell, 1) == [known]


def test_a_bell_is_off_once_the_server_is_down(
    private_redis: PrivateRedis, new_shelf: NewShelf
) -> None:
    bell = Bell(new_shelf())
    bell.turn_on()
    private_redis.stop()
    assert readable(bell)
    with pytest.raises(Unreachable):
        bell.heard()
    assert (bell.is_on, bell.fileno()) == (False, None)
    with pytest.raises(Unreachable):
        bell.turn_on()
    assert not bell.is_on
    cancelled([uuid7()])  # without a word: the heartbeat tells


def test_without_redis_nothing_is_said(settings: Any) -> None:
    pushing.forget()
    assert not pushing.push([ready()])
    cancelled([uuid7()])
