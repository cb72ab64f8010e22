"""Charts as the server draws them: numbers in, geometry out; the templates `_bars.html` and `_lines.html` draw it.

A chart is as wide as its panel, so that words in it would be stretched: they stand around it.
Coordinates are texts, since a template would write numbers as the language does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.utils import timezone

#: The space that a chart is drawn in, whatever its size on the page.
WIDTH, HEIGHT = 1000, 100


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a column: its class and place."""

    kind: str
    y: str
    height: str


@dataclass(frozen=True, slots=True)
class Column:
    """What happened in one span: what the pointer reads, and the parts from the baseline up."""

    title: str
    x: str
    width: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: its class, and what an SVG path draws. Gaps are where nothing was measured; a point between two
    gaps is a dot."""

    kind: str
    path: str
    dots: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and the words around it; `scale` from the top, `times` from the left."""

    title: str
    scale: Sequence[str]
    times: Sequence[str]
    columns: Sequence[Column] = ()
    lines: Sequence[Line] = ()


def bars(
    title: str,
    columns: Sequence[tuple[str, Sequence[tuple[str, int]]]],
    times: Sequence[str],
    words: Callable[[float], str],
) -> Chart:
    """Stacked columns: of each its title and, from the baseline up, kinds and numbers."""
    top = ceiling(max((sum(n for _, n in parts) for _, parts in columns), default=0))
    step = WIDTH / max(1, len(columns))
    drawn = []
    for place, (text, parts) in enumerate(columns):
        rectangles = []
        base = float(HEIGHT)
        for kind, number in parts:
            if number:
                # Few among many must still be seen.
                height = max(1.0, number / top * HEIGHT)
                base -= height
                rectangles.append(Part(kind, _text(max(0.0, base)), _text(height)))
        drawn.append(Column(text, _text(place * step + step * 0.1), _text(step * 0.8), rectangles))
    return Chart(title, _scale(top, words), times, columns=drawn)


def lines(
    title: str,
    curves: Sequence[tuple[str, Sequence[float | None]]],
    times: Sequence[str],
    words: Callable[[float], str],
) -> Chart:
    """Curves over the same spans: of each its kind and a number a span, None where there is none."""
    top = ceiling(max((n for _, curve in curves for n in curve if n is not None), default=0))
    drawn = [Line(kind, *_paths(curve, top)) for kind, curve in curves]
    return Chart(title, _scale(top, words), times, lines=drawn)


def spark(numbers: Sequence[int]) -> str:
    """The path of a chart in a table's cell, 100 wide and 20 high: a column a number."""
    top = max(numbers, default=0)
    step = 100 / max(1, len(numbers))
    return "".join(
        f"M{_text(place * step)} 20v-{_text(max(1.0, number / top * 20))}h{_text(step * 0.8)}V20z"
        for place, number in enumerate(numbers)
        if number
    )


def ceiling(number: float) -> float:
    """The round number at the top of a scale that `number` fits in: 1, 2, 4, 6 or 8 times a power of ten."""
    if number <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if number <= step * power)


def times(first: datetime, last: datetime, number: int = 5) -> list[str]:
    """The times at so many places from the left to the right: hours within a day, else days."""
    step = (last - first) / (number - 1)
    form = "%H:%M" if (last - first).total_seconds() <= 90_000 else "%m-%d %H:%M"
    return [_local(first + step * place).strftime(form) for place in range(number)]


def _local(moment: datetime) -> datetime:
    return moment if timezone.is_naive(moment) else timezone.localtime(moment)


def _scale(top: float, words: Callable[[float], str]) -> list[str]:
    return [words(top), words(top / 2), "0"]


def _paths(curve: Sequence[float | None], top: float) -> tuple[str, str]:
    """What draws the stretches of a curve, and the points that stand alone."""
    step = WIDTH / max(1, len(curve))
    path, dots = "", ""
    for measured, stretch in groupby(enumerate(curve), key=lambda each: each[1] is not None):
        if measured:
            points = [
                f"{_text((place + 0.5) * step)} {_text(HEIGHT - (number or 0) / top * HEIGHT)}"
                for place, number in stretch
            ]
            if len(points) > 1:
                path += "M" + "L".join(points)
            else:
                dots += f"M{points[0]}h0.1"
    return path, dots


def _text(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
