"""When a worker asks again whether there is something to claim."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import turns
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

    def fileno(self) -> int | None:
        return self.socket

    def heard(self) -> set[str]:
        return set()


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
