"""Which arguments can be kept, and how they come back."""

from __future__ import annotations

import enum
import math
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from jobqueue import enqueue_many
from jobqueue.models import Job
from tests import tasks_sample as sample
from tests.backend.acts import claim, job_of, with_options

pytestmark = pytest.mark.django_db


def label(value: Any) -> str:
    """A parameter's name, the same in every process."""
    return ascii(value)[:30] if isinstance(value, str | int | float) else type(value).__name__


class Colour(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    BIG = "big"


class Number(enum.IntEnum):
    ONE = 1


circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a\0b", ValueError, "U\\+0000"),
        ("\udce9.txt", ValueError, "surrogate"),
        (math.nan, ValueError, "nan"),
        (math.inf, ValueError, "inf"),
        (b"\xff", ValueError, "bytes"),
        ({1, 2}, TypeError, "set"),
        (Decimal("1.10"), TypeError, "Decimal"),
        (datetime(2030, 1, 1), TypeError, "datetime"),  # noqa: DTZ001
        (date(2030, 1, 1), TypeError, "date"),
        (timedelta(1), TypeError, "timedelta"),
        (uuid.UUID(int=1), TypeError, "UUID"),
        (Colour.RED, TypeError, "Colour"),
        (object(), TypeError, "object"),
        (Job(), TypeError, "primary key"),
        (circular, ValueError, "circular"),
        ({1: "a", "1": "b"}, TypeError, "key"),
        ({"a\0": 1}, ValueError, "U\\+0000"),
        ("x" * 5_000_000, ValueError, "more than 1000000 bytes"),
    ],
    ids=label,
)
def test_a_value_that_cannot_be_kept_is_refused(
    value: Any, error: type[Exception], words: str
) -> None:
    for call, path in [
        (lambda: sample.noop.enqueue(1, value), "args\\[1\\]"),
        (lambda: sample.noop.enqueue(order={"lines": [0, value]}), "kwargs.order(.lines\\[1\\])?"),
        (lambda: async_to_sync(sample.noop.aenqueue)(value), "args\\[0\\]"),
    ]:
        with pytest.raises(error, match=words) as raised:
            call()
        assert raised.match(path)
    with pytest.raises(error, match=words) as raised:
        enqueue_many([*(sample.noop.bind(n) for n in range(99)), sample.noop.bind(value)])
    assert raised.value.__notes__ == ["In call 99 of 100, of tests.tasks_sample.noop."]
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (6.022e23, 6.022e23),
        (1e16, 1e16),
        (9007199254740993, 9007199254740993),
        (-(10**30), -(10**30)),
        (0.1, 0.1),
        ((1, (2,)), [1, [2]]),
        (b"bytes", "bytes"),
        (Size.BIG, "big"),
        (Number.ONE, 1),
        ({"a": None, "": [True]}, {"a": None, "": [True]}),
        ("\U0001f600 \u2028 '", "\U0001f600 \u2028 '"),
        ("\\u0000", "\\u0000"),
    ],
    ids=label,
)
def test_a_value_comes_back_as_it_was_kept(value: Any, stored: Any) -> None:
    result = sample.noop.enqueue(value, key=value)
    job = job_of(result)
    for found in (result.args[0], job.args[0], job.kwargs["key"], claim().kwargs["key"]):
        assert found == stored
        assert type(found) is type(stored)


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, job_of(sample.noop.enqueue(-0.0)).args[0]) == -1


def test_the_callers_objects_are_not_shared() -> None:
    mine = [1, {"a": [2]}]
    result = sample.noop.enqueue(mine, key=mine)
    mine.append(3)
    mine[1]["a"].append(4)
    assert result.args == [[1, {"a": [2]}]]
    assert result.kwargs == {"key": [1, {"a": [2]}]}


def test_the_size_is_the_settings(settings: Any) -> None:
    settings.TASKS = with_options(settings, max_payload=100)
    sample.noop.enqueue("x" * 80)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        sample.noop.enqueue("x" * 101)


def test_jobs_are_found_by_an_argument() -> None:
    sample.noop.enqueue(order_id=1)
    sample.noop.enqueue(order_id=2)
    assert Job.objects.get(kwargs__order_id=1).kwargs == {"order_id": 1}
