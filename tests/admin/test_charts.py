"""Charts: what the numbers become, whatever they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from jobqueue.admin import charts, figures


@pytest.mark.parametrize(
    ("number", "top"),
    [
        (0, 1),
        (1, 1),
        (1.5, 2),
        (3, 4),
        (41, 60),
        (61, 80),
        (1_000, 1_000),
        (1_001, 2_000),
        (0.013, 0.02),
    ],
)
def test_scale_ends_in_a_round_number(number: float, top: float) -> None:
    assert charts.ceiling(number) == pytest.approx(top)


def test_columns_stand_on_the_baseline() -> None:
    chart = charts.bars("t", [("a", [("failed", 5), ("completed", 5)])], ["0"], figures.number)
    failed, completed = chart.columns[0].parts
    assert (failed.kind, failed.y, failed.height) == ("failed", "50", "50")
    assert (completed.kind, completed.y, completed.height) == ("completed", "0", "50")
    assert chart.scale == ["10", "5", "0"]


def test_few_among_many_are_seen() -> None:
    chart = charts.bars("t", [("a", [("failed", 1), ("completed", 99_999)])], [], figures.number)
    assert chart.columns[0].parts[0].height == "1"
    assert all(float(part.y) >= 0 for part in chart.columns[0].parts)


def test_nothing_at_all() -> None:
    assert charts.bars("t", [], [], figures.number).scale == ["1", "0.5", "0"]
    assert charts.spark([]) == charts.spark([0, 0]) == ""


def test_lines_have_gaps_where_nothing_was_measured() -> None:
    chart = charts.lines("t", [("p50", [1, None, 2, 2])], [], figures.number)
    assert chart.lines[0].path == "M625 0L875 0"


def test_a_point_alone_is_a_dot() -> None:
    chart = charts.lines("t", [("p50", [1, None, 2, 2])], [], figures.number)
    assert chart.lines[0].dots == "M125 50h0.1"


def test_times_say_the_day_where_hours_do_not_tell() -> None:
    start = datetime(2026, 11, 29, 12, tzinfo=UTC)
    with timezone.override(UTC):
        assert charts.times(start, start + timedelta(hours=1), 3) == ["12:00", "12:30", "13:00"]
        assert charts.times(start, start + timedelta(days=7), 2) == ["11-29 12:00", "12-06 12:00"]
