"""Who listens to task_finished hears of every end, also of those that came just before an outage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from uuid import UUID

import pytest
from django.db import OperationalError, connection

from jobqueue import signals
from jobqueue.announcer import Announcer
from jobqueue.compat import task_finished
from jobqueue.testing import run_jobs
from tests import tasks_sample as sample
from tests.servers import PrivatePostgres

#: Seconds after which what is waited for is not coming any more.
PATIENCE = 30.0


@pytest.mark.postgres
def test_an_end_is_told_when_the_database_is_back(
    on_private_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = sample.noop.enqueue()
    run_jobs()
    told: SimpleQueue[str] = SimpleQueue()
    failures: SimpleQueue[OperationalError] = SimpleQueue()
    finished = signals.finished

    def watched(job_ids: Sequence[UUID], exceptions: Mapping[UUID, BaseException]) -> None:
        try:
            finished(job_ids, exceptions)
        except OperationalError as error:
            failures.put(error)
            raise

    def hear(task_result: object, **kwargs: object) -> None:
        told.put(str(getattr(task_result, "id", "")))

    monkeypatch.setattr(signals, "finished", watched)
    on_private_postgres.stop()
    connection.close()
    announcer = Announcer()
    task_finished.connect(hear)
    try:
        announcer.tell([UUID(job.id)])
        for _ in range(3):  # at once, at once again, and after a pause
            failures.get(timeout=PATIENCE)
        on_private_postgres.start()
        assert told.get(timeout=PATIENCE) == job.id
    finally:
        task_finished.disconnect(hear)
        announcer.close(PATIENCE)
    assert told.empty()
