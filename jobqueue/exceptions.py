"""What a task may raise, what may be raised into it, and what is recorded of a silent end.

All of them belong to the package itself: the recorded path of `Cancelled` is "jobqueue.Cancelled".
"""

from __future__ import annotations

import copyreg
from datetime import timedelta
from typing import Any

#: A century, in seconds: `after` beyond it would leave the range of a database's timestamps.
LONGEST_DELAY = 36_525 * 86_400


def _seconds(after: float | timedelta) -> float:
    if isinstance(after, timedelta):
        after = after.total_seconds()
    elif isinstance(after, bool) or not isinstance(after, int | float):
        raise TypeError(f"after must be seconds or a timedelta, not {type(after).__name__}")
    if not 0 <= after <= LONGEST_DELAY:  # NaN is neither
        raise ValueError(f"after must be between 0 and {LONGEST_DELAY} seconds (a century)")
    return float(after)


class PermanentError(Exception):
    """Raised by a task: trying again cannot help. The job fails now, whatever attempts are left."""

    __module__ = "jobqueue"


class Retry(Exception):
    """Raised by a task: this attempt is spent without success, try again if attempts are left.

    `after` is the delay, in seconds or as a timedelta; without it the task's backoff decides. It is
    kept as seconds. A negative, endless or absurd delay (over a century) is a ValueError, another
    type a TypeError.
    """

    __module__ = "jobqueue"
    after: float | None

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.after = None if after is None else _seconds(after)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt(self)


class Snooze(Exception):
    """Raised by a task: not now, come back later. The attempt is given back, however often.

    `after` is required: seconds or a timedelta, kept as seconds, with the errors of `Retry`.
    """

    __module__ = "jobqueue"
    after: float

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(*([message] if message else []))
        self.after = _seconds(after)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt(self)


def _rebuilt(exc: BaseException) -> tuple[Any, ...]:
    # An exception is unpickled by calling its class with `args`, which cannot hold a keyword.
    return copyreg.__newobj__, (type(exc), *exc.args), exc.__dict__  # type: ignore[attr-defined]


class Stopped(BaseException):
    """Raised into a running task that must end. `except Exception` does not catch it; let it pass.

    A task that has something to tidy up uses `finally`, or catches this and raises it again.
    """

    __module__ = "jobqueue"


class TimedOut(Stopped):
    """Raised into a task whose attempt has run longer than its `timeout`. The attempt is spent."""

    __module__ = "jobqueue"


class Cancelled(Stopped):
    """Raised into a task whose job was cancelled, and the recorded class of every cancelled job."""

    __module__ = "jobqueue"


class LeaseLost(Stopped):
    """Raised into a task whose job is no longer this worker's: what it returns is not recorded."""

    __module__ = "jobqueue"


class WorkerLost(Exception):
    """Never raised: recorded for an attempt whose worker died or let its lease end unheard."""

    __module__ = "jobqueue"


class TaskNotFound(Exception):
    """Never raised into a task: recorded for an attempt whose function could not be imported."""

    __module__ = "jobqueue"
