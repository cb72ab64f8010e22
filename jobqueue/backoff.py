"""How long a job waits before it is tried again."""

from __future__ import annotations

import math
import random

from jobqueue import conf

#: A doubling beyond this is past any sensible `backoff_max`, and a float has room for it.
MAX_DOUBLINGS = 60

#: The longest delay that anything may ask for, in seconds: a year.
MAX_DELAY = 366 * 86_400.0


def by_settings(spent: int) -> float:
    """Seconds to wait after `spent` attempts, by the settings: doubling from `backoff_base`, with
    a jitter of a tenth either way, and never more than `backoff_max`."""
    options = conf.options()
    doublings = min(max(spent - 1, 0), MAX_DOUBLINGS)
    delay = min(options.backoff_base * 2.0**doublings, options.backoff_max)
    return min(delay * random.uniform(0.9, 1.1), options.backoff_max)


def clamped(seconds: float) -> float:
    """`seconds` within what a date can hold: from 0 to a year. Raises ValueError for NaN."""
    bounded = min(max(seconds, 0), MAX_DELAY)  # first: a whole number may be too big for a float
    if math.isnan(bounded):
        raise ValueError("a delay cannot be NaN")
    return float(bounded)
