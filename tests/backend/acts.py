"""What workers do with a job that a call has made, and a backend with other options."""

from __future__ import annotations

import uuid
from typing import Any

from jobqueue import JobResult, lifecycle
from jobqueue.attempts import Attempt, Ending, Outcome
from jobqueue.models import Job, Status

OWNER = uuid.UUID(int=1)


def claim(queue: str = "default", worker: str = "host:1:a", owner: uuid.UUID = OWNER) -> Attempt:
    (attempt,) = lifecycle.claim(queue, owner, worker, 1)
    return attempt


def settle(attempt: Attempt, ending: Ending, **fields: Any) -> Status:
    (written,) = lifecycle.settle([Outcome(attempt, ending, **fields)]).written
    return written[1]


def job_of(result: JobResult[Any, Any]) -> Job:
    return Job.objects.get(pk=result.id)


def with_options(settings: Any, **options: Any) -> dict[str, Any]:
    return {"default": {**settings.TASKS["default"], "OPTIONS": options}}
