"""How attempts ended over time, counted by whoever ends them: what charts are drawn from.

A worker counts in its own memory and writes once a tick, so a job that ends costs a few additions and no statement.
What it has not written when it is killed is not counted: these are charts, and the jobs themselves say what is true.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import Q

from jobqueue import clock, conf, postgres
from jobqueue.attempts import Ending, Outcome
from jobqueue.findings import Repaired
from jobqueue.models import Status, Tally
from jobqueue.texts import storable_text

logger = logging.getLogger("jobqueue")

#: The ranges that can be read: seconds of one span, and of all of them.
SPANS = {"1h": (60, 3_600), "24h": (900, 86_400), "7d": (7_200, 604_800)}

#: Seconds after which the rows of a span are removed.
KEPT = {60: 2 * 3_600, 900: 2 * 86_400, 7_200: 8 * 86_400}

#: The upper bounds of the histograms' buckets in seconds, three a decade from a millisecond to a
#: day; the last bucket has none.
BOUNDS: tuple[float, ...] = tuple(10.0 ** (third / 3 - 3) for third in range(25))

#: Rows that cannot be written wait for the next tick; beyond so many they are dropped.
MOST_PENDING = 20_000
#: Primary keys that a process remembers.
MOST_KNOWN = 5_000
#: The longest that the making of rows waits for somebody who makes the same ones, in seconds.
PATIENCE = 0.2
#: For how long a process that leaves tries to write what others hold, and between two tries, in seconds.
LAST_PATIENCE, LAST_PAUSE = 2.0, 0.05
#: Rows that one statement changes or removes.
BATCH = 200

COUNTS = ("completed", "failed", "retried", "waits", "runs", "last_error")

Histogram = Mapping[str, int]


def bucket(seconds: float) -> int:
    """The number of the histogram's bucket for so long a time."""
    return bisect_left(BOUNDS, seconds)


def percentile(histogram: Histogram, p: float) -> float | None:
    """The time in seconds that `p` of what the histogram counts did not exceed: 95, or 0.95. None
    if it counts nothing. Exact to a bucket, and guessed evenly within it."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted = total * (p / 100 if p > 1 else p)
    below = 0
    number = 0
    for number, count in sorted((int(key), count) for key, count in histogram.items()):
        if below + count >= wanted:
            return _within(number, (wanted - below) / count)
        below += count
    return _within(number, 1.0)


def _within(number: int, part: float) -> float:
    """The time at a part of a bucket; the scale is a logarithm's."""
    if number == 0:
        return BOUNDS[0] * max(part, 0.0)
    if number >= len(BOUNDS):
        return BOUNDS[-1]
    low, high = BOUNDS[number - 1], BOUNDS[number]
    return low * math.pow(high / low, max(part, 0.0))


class _Ended:
    """How attempts of one task in one queue ended."""

    __slots__ = ("completed", "failed", "last_error", "retried", "runs", "waits")

    def __init__(self) -> None:
        self.completed = self.failed = self.retried = 0
        self.waits = [0] * (len(BOUNDS) + 1)
        self.runs = [0] * (len(BOUNDS) + 1)
        self.last_error = ""

    def add(self, other: _Ended) -> None:
        self.completed += other.completed
        self.failed += other.failed
        self.retried += other.retried
        self.waits = [a + b for a, b in zip(self.waits, other.waits, strict=True)]
        self.runs = [a + b for a, b in zip(self.runs, other.runs, strict=True)]
        self.last_error = other.last_error or self.last_error

    def add_to(self, row: Tally) -> None:
        row.completed += self.completed
        row.failed += self.failed
        row.retried += self.retried
        row.waits = _summed(row.waits, self.waits)
        row.runs = _summed(row.runs, self.runs)
        if self.last_error:
            row.last_error = storable_text(self.last_error, 300)


def _summed(histogram: Histogram, counts: Sequence[int]) -> dict[str, int]:
    found = dict(histogram)
    for number, count in enumerate(counts):
        if count:
            found[str(number)] = found.get(str(number), 0) + count
    return found


class _Key(NamedTuple):
    """What one row counts. Rows are made and locked in this order."""

    span: int
    starts_at: datetime
    queue_name: str
    task_path: str


_COMPLETED = Status.COMPLETED
_GIVEN_BACK = frozenset({Ending.SNOOZED, Ending.RELEASED})


class Counter:
    """What a process has seen end and not written yet. For one thread."""

    def __init__(self) -> None:
        self._fresh: dict[tuple[str, str], _Ended] = {}
        self._pending: dict[_Key, _Ended] = {}
        self._rows: dict[_Key, int] = {}  # the primary keys of rows that are known
        self._complained = False

    def count(self, outcome: Outcome, status: Status) -> None:
        """An outcome has been written, and left its job in `status`. Called for every job."""
        attempt = outcome.attempt
        if status is not _COMPLETED and outcome.ending in _GIVEN_BACK:
            return
        try:
            ended = self._fresh[attempt.queue_name, attempt.task_path]
        except KeyError:
            ended = self._of(attempt.queue_name, attempt.task_path)
        if status is _COMPLETED:
            ended.completed += 1
        else:
            ended.last_error = outcome.error
            if status == Status.FAILED:
                ended.failed += 1
            else:
                ended.retried += 1
        waited = attempt.attempted_at - attempt.run_after
        # Its method total_seconds() takes longer than all the rest.
        seconds = waited.days * 86_400 + waited.seconds + waited.microseconds / 1e6
        ended.waits[bisect_left(BOUNDS, seconds)] += 1
        ended.runs[bisect_left(BOUNDS, outcome.ran)] += 1

    def lost(self, taken: Iterable[Repaired]) -> None:
        """Attempts have been taken back from who ran them; nobody knows how long they ran."""
        for each in taken:
            if each.after in (Status.FAILED, Status.SCHEDULED):
                ended = self._of(each.queue_name, each.task_path)
                ended.failed += each.after == Status.FAILED
                ended.retried += each.after == Status.SCHEDULED
                ended.last_error = each.error
                ended.waits[bucket(each.waited)] += 1

    def _of(self, queue_name: str, task_path: str) -> _Ended:
        key = (queue_name, task_path)
        ended = self._fresh.get(key)
        if ended is None:
            ended = self._fresh[key] = _Ended()
        return ended

    def write(self, now: datetime) -> None:
        """Write what was counted, to the spans that `now` (of the database's clock) lies in.

        What cannot be written, as somebody else holds its row, waits for the next time. Raises
        only if the connection is of no use any more.
        """
        self._fresh, fresh = {}, self._fresh
        for span in KEPT:
            start = _start(now, span)
            for (queue_name, task_path), ended in fresh.items():
                key = _Key(span, start, queue_name, task_path)
                self._pending.setdefault(key, _Ended()).add(ended)
        if not self._pending:
            return
        using = conf.options().database
        try:
            self._write(using)
            self._complained = False
        except (DatabaseError, InterfaceError) as error:
            if not connections[using].is_usable():
                raise
            if not self._complained:
                self._complained = True
                logger.warning("Cannot write what charts are drawn from: %s", error)
        if len(self._pending) > MOST_PENDING:
            self._pending.clear()

    def close(self, now: datetime) -> None:
        """Write what there is for the last time: what others hold is tried again for a while, since
        nobody will write it later."""
        give_up_at = time.monotonic() + LAST_PATIENCE
        self.write(now)
        while self._pending and time.monotonic() < give_up_at:
            time.sleep(LAST_PAUSE)
            self.write(now)

    def _write(self, using: str) -> None:
        unknown = self._pending.keys() - self._rows.keys()
        if unknown:
            self._rows |= _find(using, unknown)
            missing = unknown - self._rows.keys()
            if missing:
                _make(using, missing)
                self._rows |= _find(using, missing)
        known = {self._rows[key]: key for key in self._pending if key in self._rows}
        for pk in _add(using, {pk: self._pending[key] for pk, key in known.items()}):
            del self._pending[known.pop(pk)]
        # Held by somebody, or removed: to be looked for again.
        for key in known.values():
            del self._rows[key]
        if len(self._rows) > MOST_KNOWN:
            self._rows.clear()


def _start(now: datetime, span: int) -> datetime:
    """The beginning of the span that `now` lies in."""
    seconds = math.floor(now.timestamp() / span) * span
    # Naive without USE_TZ, and in local time then, like all that the ORM reads.
    return datetime.fromtimestamp(seconds, now.tzinfo)


def _find(using: str, keys: Collection[_Key]) -> dict[_Key, int]:
    """The primary keys of the rows that are there."""
    which = Q(pk__in=[])
    for span, starts_at in {(key.span, key.starts_at) for key in keys}:
        which |= Q(span=span, starts_at=starts_at)
    rows = Tally.objects.using(using).filter(which, task_path__in={key.task_path for key in keys})
    columns = (*_Key._fields, "pk")
    found = {_Key(*row): pk for *row, pk in rows.values_list(*columns)}
    return {key: pk for key, pk in found.items() if key in keys}


def _make(using: str, keys: Iterable[_Key]) -> None:
    """Make rows that count nothing yet. Whoever makes the same ones just now is waited for, but not
    for long, and not with any row held."""
    with postgres.patiently(using, PATIENCE):
        rows = [Tally(**key._asdict()) for key in sorted(keys)]
        Tally.objects.using(using).bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)


def _add(using: str, rows: Mapping[int, _Ended]) -> list[int]:
    """Add to those of the rows that are free; returns which."""
    tallies = Tally.objects.using(using)
    with transaction.atomic(using):
        free = tallies.filter(pk__in=rows).select_for_update(skip_locked=True, no_key=True)
        found = list(free.order_by("pk"))
        for row in found:
            rows[row.pk].add_to(row)
        tallies.bulk_update(found, COUNTS, batch_size=BATCH)
    return [row.pk for row in found]


def prune(limit: int = BATCH) -> int:
    """Remove rows of spans that are over for long enough; returns how many. A row that somebody
    holds is left for the next time."""
    using = conf.options().database
    now = clock.now(using)
    old = Q(pk__in=[])
    for span, kept in KEPT.items():
        old |= Q(span=span, starts_at__lt=now - timedelta(seconds=kept))
    tallies = Tally.objects.using(using)
    with transaction.atomic(using):
        rows = tallies.filter(old).order_by("pk").select_for_update(skip_locked=True)
        pks = list(rows.values_list("pk", flat=True)[:limit])
        tallies.filter(pk__in=pks).delete()
    return len(pks)


# Reading


@dataclass(slots=True)
class Bar:
    """A span of time: how attempts ended in it, and how many waited and ran for how long."""

    starts_at: datetime
    completed: int = 0
    retried: int = 0
    failed: int = 0
    waits: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many attempts ended."""
        return self.completed + self.retried + self.failed


@dataclass(slots=True)
class TaskTally:
    """How often attempts of a task failed, for good or to be tried again, and the last error."""

    task_path: str
    failed: int = 0
    retried: int = 0
    last_error: str = ""


@dataclass(slots=True)
class Rollup:
    """A range of time: all its spans, the present one last, and the tasks that failed in it, those
    that failed most first."""

    span: int
    bars: list[Bar]
    tasks: list[TaskTally] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing ended in all that time."""
        return not any(bar.total for bar in self.bars)


def read(range_key: str, *, queues: Collection[str] | None = None) -> Rollup:
    """What happened within a range (a key of SPANS), in these queues or in all."""
    now = clock.now(conf.options().database)
    bars = _empty(range_key, now)
    by_start = {bar.starts_at: bar for bar in bars}
    tasks: dict[str, TaskTally] = {}
    for starts_at, _, task_path, *counts, last_error in _read(range_key, bars[0], queues):
        bar = by_start.get(starts_at)
        if bar is None:  # made by a worker since `now`
            continue
        _sum(bar, *counts)
        _, failed, retried, *_ = counts
        if failed or retried:
            task = tasks.setdefault(task_path, TaskTally(task_path))
            task.failed += failed
            task.retried += retried
            task.last_error = last_error or task.last_error
    span, _ = SPANS[range_key]
    most = sorted(tasks.values(), key=lambda each: (-each.failed, -each.retried, each.task_path))
    return Rollup(span, bars, most)


def by_queue(range_key: str) -> dict[str, list[Bar]]:
    """The spans of a range for each queue in which something ended."""
    now = clock.now(conf.options().database)
    found: dict[str, list[Bar]] = {}
    places = {bar.starts_at: place for place, bar in enumerate(_empty(range_key, now))}
    first = _empty(range_key, now)[0]
    for starts_at, queue_name, _, *counts, _ in _read(range_key, first, None):
        bars = found.get(queue_name)
        if bars is None:
            bars = found[queue_name] = _empty(range_key, now)
        if starts_at in places:
            _sum(bars[places[starts_at]], *counts)
    return found


def _empty(range_key: str, now: datetime) -> list[Bar]:
    span, whole = SPANS[range_key]
    starts = (now - timedelta(seconds=ago) for ago in range(whole - span, -1, -span))
    return [Bar(_start(start, span)) for start in starts]


def _read(range_key: str, first: Bar, queues: Collection[str] | None) -> Iterable[tuple[Any, ...]]:
    span, _ = SPANS[range_key]
    rows = Tally.objects.using(conf.options().database).filter(
        span=span, starts_at__gte=first.starts_at
    )
    if queues is not None:
        rows = rows.filter(queue_name__in=queues)
    return rows.order_by("starts_at", "pk").values_list(
        "starts_at", "queue_name", "task_path", *COUNTS
    )


def _sum(
    bar: Bar, completed: int, failed: int, retried: int, waits: Histogram, runs: Histogram
) -> None:
    bar.completed += completed
    bar.failed += failed
    bar.retried += retried
    for mine, others in ((bar.waits, waits), (bar.runs, runs)):
        for number, count in others.items():
            mine[number] = mine.get(number, 0) + count
