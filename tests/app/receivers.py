"""Receivers of django.tasks' signals that write down what they are told; some fail on purpose."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from jobqueue.compat import task_finished, task_started


def connect(failing: bool) -> None:
    """Listen to what a worker tells."""

    def listen(name: str, signal: Any) -> None:
        def receiver(sender: Any, task_result: Any, **_: Any) -> None:
            error = sys.exc_info()[1]
            line = {
                "event": name,
                "job": task_result.id,
                "status": task_result.status,
                "exc_info": None if error is None else f"{type(error).__name__}: {error}",
                "thread": threading.get_ident(),
            }
            path = os.environ["JOBQUEUE_TEST_EVENTS"]
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)

        signal.connect(receiver, weak=False)

    def fail(**_: Any) -> None:
        raise RuntimeError("a receiver's mistake")

    def leave(**_: Any) -> None:
        sys.exit("a receiver's mistake")

    for name, signal in (("task_started", task_started), ("task_finished", task_finished)):
        listen(name, signal)
        if failing:
            signal.connect(fail, weak=False)
            signal.connect(leave, weak=False)
