"""When a worker asks again whether there is something to claim."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from jobqueue import clock as database_clock
from jobqueue import dispatch, lifecycle, turns
from jobqueue.turns import Turns


class Clock:
    """The time that turns see."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class QuietEar:
    """Hears nothing. With a socket it can be waited on; without one it has to be asked."""

    look_every = 1.0
    ask_every = 0.02

    def __init__(self, socket: int | None) -> None:
        self.socket = socket
        self.words: set[str] = set()

    def fileno(self) -> int | None:
        return self.socket

    @property
    def has_word(self) -> bool:
        return bool(self.words)

    def heard(self) -> set[str]:
        words, self.words = self.words, set()
        return words


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)
    return clock


@pytest.mark.parametrize(("socket", "after"), [(None, 0.02), (7, 1.0)])
def test_asks_again_when_nothing_can_be_waited_on(
    clock: Clock, socket: int | None, after: float
) -> None:
    ear: Any = QuietEar(socket)
    each = Turns(["a"], ear, grows=False)
    each.hear()
    assert each.next_moment(clock.now) == pytest.approx(clock.now + after)


def test_asks_at_once_if_what_came_in_between_took_long(clock: Clock) -> None:
    """A claim that waits for another writer, say: not only at the next tick."""
    ear: Any = QuietEar(None)
    each = Turns(["a"], ear, grows=False)
    each.hear()
    clock.now += 0.5
    assert each.next_moment(clock.now) <= clock.now
    each.hear()
    assert each.next_moment(clock.now) == pytest.approx(clock.now + 0.02)


@pytest.mark.parametrize("socket", [None, 7])
def test_word_is_heard_once(clock: Clock, socket: int | None) -> None:
    """Also where it cannot be waited for, as behind a pooler: it is not left for the next time to ask."""
    ear: Any = QuietEar(socket)
    each = Turns(["a"], ear, grows=False)
    each.hear()
    each.is_dry("a")
    clock.now += 0.001
    ear.words = {"a"}
    assert each.next_moment(clock.now) == clock.now
    each.hear()
    assert not each.all_dry
    assert each.next_moment(clock.now) > clock.now


def by_a_cursor() -> None:
    database_clock.now("default")


def past_the_cursors() -> None:
    lifecycle.claim("of nobody", uuid4(), "nobody", 1)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("asks", [by_a_cursor, past_the_cursors])
def test_word_that_came_with_an_answer_is_not_waited_for(asks: Callable[[], None]) -> None:
    """What a worker reads while it does something else, its tick or a claim, is not on the socket any more."""
    ear = dispatch.Ear("default", tick=60.0)
    each = Turns(["a"], ear, grows=False)
    ear.attend()
    each.hear()
    each.is_dry("a")
    now = turns.time.monotonic()
    assert each.next_moment(now) > now + 30
    with contextlib.closing(connection.copy("beside")) as beside, beside.cursor() as cursor:
        cursor.execute("NOTIFY jobqueue, 'a'")
    socket = ear.fileno()
    assert select.select([socket], [], [], 20)[0]
    asks()
    assert not select.select([socket], [], [], 0)[0]
    assert each.next_moment(now) <= now
    each.hear()
    assert not each.all_dry
