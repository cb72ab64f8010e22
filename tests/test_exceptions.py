"""What tasks raise: delays are checked where they are given, and everything survives a pickle."""

from __future__ import annotations

import pickle
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils.module_loading import import_string

from jobqueue import exceptions
from jobqueue.exceptions import (
    Cancelled,
    LeaseLost,
    PermanentError,
    Retry,
    Snooze,
    Stopped,
    TaskNotFound,
    TimedOut,
    WorkerLost,
)
from jobqueue.texts import describe_exception

ALL = [
    PermanentError,
    Retry,
    Snooze,
    Stopped,
    TimedOut,
    Cancelled,
    LeaseLost,
    WorkerLost,
    TaskNotFound,
]


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (0, 0.0),
        (3, 3.0),
        (0.25, 0.25),
        (timedelta(minutes=1.5), 90.0),
        (exceptions.LONGEST_DELAY, float(exceptions.LONGEST_DELAY)),
    ],
)
def test_a_delay_is_kept_in_seconds(kind, after, seconds):
    kept = kind("not yet", after=after).after
    assert kept == seconds
    assert type(kept) is float


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize(
    "after",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        10**400,
        -(10**400),
        exceptions.LONGEST_DELAY + 1,
        timedelta.max,
    ],
    ids=lambda after: f"{after}"[:12] if isinstance(after, float) else type(after).__name__,
)
def test_an_impossible_delay_is_a_value_error(kind, after):
    with pytest.raises(ValueError, match="after must be between 0 and"):
        kind(after=after)


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize("after", ["5", Decimal(5), True, [5], b"5"])
def test_a_delay_of_another_type_is_a_type_error(kind, after):
    with pytest.raises(TypeError, match="after must be seconds or a timedelta"):
        kind(after=after)


def test_only_a_retry_may_leave_the_delay_to_the_backoff():
    assert Retry().after is None
    with pytest.raises(TypeError):
        Snooze("later")
    with pytest.raises(TypeError):
        Snooze(after=None)


def test_the_message_is_what_str_tells():
    assert str(Retry("rate limited", after=1)) == "rate limited"
    assert str(Snooze(after=1)) == ""


@pytest.mark.parametrize(
    "raised",
    [
        Retry("rate limited", after=timedelta(hours=1)),
        Retry(),
        Snooze("too early", after=5),
        PermanentError("no such order", 17),
        TimedOut("after 3 s"),
        Cancelled(),
    ],
)
def test_pickled_and_back(raised):
    back = pickle.loads(pickle.dumps(raised))
    assert type(back) is type(raised)
    assert (str(back), back.args, back.__dict__) == (str(raised), raised.args, raised.__dict__)


def test_what_stops_a_task_is_not_caught_by_except_exception():
    for kind in (Stopped, TimedOut, Cancelled, LeaseLost):
        assert issubclass(kind, Stopped)
        assert not issubclass(kind, Exception)
    for kind in (PermanentError, Retry, Snooze, WorkerLost, TaskNotFound):
        assert issubclass(kind, Exception)


@pytest.mark.parametrize("kind", ALL)
def test_the_recorded_path_is_the_public_one(kind):
    raised = kind(after=1) if kind is Snooze else kind()
    path = describe_exception(raised).class_path
    assert path == f"jobqueue.{kind.__name__}"
    assert import_string(path) is kind
