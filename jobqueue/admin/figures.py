"""What the tallies say, drawn: how many jobs ended and how, how long they waited and ran, which tasks fail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from jobqueue import tallies
from jobqueue.admin import charts, words
from jobqueue.admin.hiding import hide_in_text
from jobqueue.tallies import Bar

#: What is counted and the state in whose colour it stands, from the baseline up: failures where they can be compared.
KINDS = {"failed": "failed", "retried": "retrying", "completed": "completed"}


def figures(chosen: str) -> dict[str, Any]:
    """The charts of a range and the tasks that fail most in it."""
    rollup = tallies.read(chosen)
    lately = rollup if chosen == "1h" else tallies.read("1h")
    found: dict[str, Any] = {
        "failed_lately": sum(bar.failed for bar in lately.bars),
        "totals": {kind: sum(getattr(bar, kind) for bar in rollup.bars) for kind in KINDS},
        "tasks": [
            {
                "path": task.task_path,
                "failed": task.failed,
                "retried": task.retried,
                "error": hide_in_text(task.last_error),
                "query": urlencode({"state": "failed", "task": task.task_path}),
            }
            for task in rollup.tasks[:10]
        ],
    }
    if any(found["totals"].values()):
        found |= _charts(rollup.bars, tallies.SPANS[chosen][0], found["totals"])
    return found


def _charts(bars: Sequence[Bar], span: int, totals: dict[str, int]) -> dict[str, Any]:
    times = charts.times(bars[0].starts_at, bars[-1].starts_at + timedelta(seconds=span))
    heading = {
        60: _("Jobs finished per minute"),
        900: _("Jobs finished per 15 minutes"),
        7200: _("Jobs finished per 2 hours"),
    }[span]
    peak = words.grouped(max(bar.total for bar in bars))
    columns = [
        (_column(bar), [(state, getattr(bar, kind)) for kind, state in KINDS.items()])
        for bar in bars
    ]
    total = _("%(heading)s: %(counts)s in all, at most %(peak)s") % {
        "heading": heading,
        "counts": _counts(**totals),
        "peak": peak,
    }
    return {
        "heading": heading,
        "peak": peak,
        "finished": charts.bars(total, columns, times, number),
        "wait": _percentiles(_("Wait"), [bar.waits for bar in bars], times),
        "run": _percentiles(_("Run time"), [bar.runs for bar in bars], times),
        "rows": [_row(bar) for bar in bars if bar.total],
    }


def _percentiles(name: str, histograms: Sequence[Any], times: Sequence[str]) -> charts.Chart | None:
    """The half and the slowest twentieth, as two lines; none where nothing was measured."""
    curves = {
        key: [tallies.percentile(each, p) for each in histograms]
        for key, p in (("p50", 50), ("p95", 95))
    }
    measured = [seconds for seconds in curves["p95"] if seconds is not None]
    if not measured:
        return None
    title = _("%(name)s: half of all within %(half)s, 19 of 20 within %(most)s, at worst") % {
        "name": name,
        "half": words.duration(max(s for s in curves["p50"] if s is not None)),
        "most": words.duration(max(measured)),
    }
    return charts.lines(title, list(curves.items()), times, words.duration)


def _row(bar: Bar) -> dict[str, Any]:
    """A line of the table that says the same as the charts."""
    return {
        "at": bar.starts_at,
        "bar": bar,
        "times": [
            tallies.percentile(histogram, p)
            for histogram in (bar.waits, bar.runs)
            for p in (50, 95)
        ],
    }


def _column(bar: Bar) -> str:
    return f"{clock_time(bar.starts_at)}: {_counts(bar.failed, bar.retried, bar.completed)}"


def _counts(failed: int, retried: int, completed: int) -> str:
    return _("%(completed)s completed, %(retried)s to be retried, %(failed)s failed") % {
        "completed": words.grouped(completed),
        "retried": words.grouped(retried),
        "failed": words.grouped(failed),
    }


def clock_time(moment: datetime) -> str:
    """A time without its seconds and zone."""
    return words.absolute(moment)[:16]


def number(value: float) -> str:
    """A number at the side of a chart."""
    return words.grouped(int(value)) if value == int(value) else str(number_format(value))
