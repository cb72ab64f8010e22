"""The job that every peer runs, as benchmarks/tasks.py has it for ourselves: record that it ran."""

import os
import struct
import time

#: A number given by who enqueued, the process, and the moment (time.monotonic_ns).
RECORD = struct.Struct("=QQQQ")
RECORDS_VARIABLE = "JOBQUEUE_BENCH_RECORDS"
PAYLOAD = {"order": "1234567", "kind": "noop"}

_file = -1


def record(number: int) -> None:
    """All that a job does."""
    global _file
    if _file < 0:
        _file = os.open(os.environ[RECORDS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, RECORD.pack(number, os.getpid(), time.monotonic_ns(), 0))
