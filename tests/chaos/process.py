"""`python -m tests.chaos.process COMMAND ...`: a management command in a process of the run, hooks installed.

JOBQUEUE_CHAOS_CLOCK moves what the process takes for the time, by so many seconds.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any

from tests.chaos import record

CLOCK = "JOBQUEUE_CHAOS_CLOCK"


def move_clock(seconds: float) -> None:
    """Have this process, and what it forks, live so much later. To be called before jobqueue is imported."""
    from django.utils import timezone

    real_time, real_time_ns, real_now = time.time, time.time_ns, timezone.now
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1e9)
    timezone.now = lambda: real_now() + timedelta(seconds=seconds)


def prepare() -> None:
    """Make this a process of the run: clock, Django, kill points."""
    import django

    move_clock(float(os.environ.get(CLOCK, "0")))
    django.setup()
    from jobqueue.compat import task_finished
    from tests.chaos import killpoints

    killpoints.install()
    task_finished.connect(_hear)


def _hear(task_result: Any, **kwargs: Any) -> None:
    record.say("finished", job=task_result.id)


if __name__ == "__main__":
    prepare()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
