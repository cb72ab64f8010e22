"""The chart for the README: jobs drained a second, ours and others', as an SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 30, 300, 90, 44
OURS, OTHERS = "#0b7285", "#adb5bd"


@dataclass(frozen=True)
class Bar:
    """One line of the chart."""

    label: str
    value: float
    ours: bool = False


def draw(title: str, bars: Sequence[Bar]) -> str:
    """The bars, the longest first, each with its value."""
    ordered = sorted(bars, key=lambda bar: -bar.value)
    height = TOP + ROW * len(ordered) + 12
    longest = max(bar.value for bar in ordered)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="14">',
        f"<title>{escape(title)}</title>",
        # Readable on a light page and on a dark one.
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="16" y="28" font-weight="600" fill="#212529">{escape(title)}</text>',
    ]
    for number, bar in enumerate(ordered):
        y = TOP + ROW * number
        length = max(2.0, (WIDTH - LEFT - RIGHT) * bar.value / longest)
        weight = ' font-weight="600"' if bar.ours else ""
        lines += [
            f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end" fill="#212529"{weight}>'
            f"{escape(bar.label)}</text>",
            f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="18" rx="3"'
            f' fill="{OURS if bar.ours else OTHERS}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 17}" fill="#212529"{weight}>'
            f"{bar.value:,.0f}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])
