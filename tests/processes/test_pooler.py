"""Behind PgBouncer, where each transaction may get another connection: nothing is heard, and everything holds."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from jobqueue.models import Job, Status
from tests.app.models import Effect
from tests.processes import tasks
from tests.processes.conftest import Site, wait_gone, wait_until
from tests.servers import PrivatePgBouncer, PrivatePostgres, ServerUnavailable

pytestmark = [pytest.mark.processes, pytest.mark.postgres, pytest.mark.timeout(120)]

#: Behind fewer connections than clients nobody keeps one.
POOL = 3


@pytest.fixture
def pooled(private_site: Site, on_private_postgres: PrivatePostgres) -> Iterator[dict[str, str]]:
    """The variables of a process that reaches the database through the pooler; this one goes past it."""
    try:
        pooler = PrivatePgBouncer(on_private_postgres, pool_size=POOL)
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with pooler:
        yield {"DATABASE_URL": pooler.url}


def test_all_that_is_enqueued_runs_once(private_site, pooled):
    """Enqueued by two processes at once, through the pooler like the workers."""
    site = private_site
    supervised = site.start_ready("--processes", "2", "--concurrency", "4", **pooled)
    wait_until(lambda: "LISTEN does not work" in supervised.log, "the worker to say so")
    callers = [site.module("tests.processes.calling", "200", **pooled) for _ in range(2)]
    accepted = []
    for caller in callers:
        said, errors = caller.communicate(timeout=60)
        assert caller.returncode == 0, errors
        accepted += json.loads(said)
    assert len(set(accepted)) == 400
    completed = Job.objects.filter(status=Status.COMPLETED)
    wait_until(lambda: completed.count() == 400, lambda: supervised.log)
    assert {str(pk) for pk in completed.values_list("pk", flat=True)} == set(accepted)
    ends = [event["job"] for event in site.events("end")]
    assert len(ends) == len(set(ends)) == Effect.objects.count() + 300 == 400
    supervised.send(signal.SIGTERM)
    assert supervised.wait() == 0, supervised.log
    assert "Traceback" not in supervised.log


def test_cancelled_killed_and_repaired(private_site, pooled):
    """A running job is cancelled, another one loses its worker, and `reconcile` finds nothing left."""
    site = private_site
    supervised = site.start_ready("--concurrency", "2", **pooled)
    cancelled = tasks.until.enqueue("never")
    site.wait_for("begin", cancelled.id)
    command = site.manage("jobs", "cancel", str(cancelled.id), **pooled)
    said, errors = command.communicate(timeout=30)
    assert command.returncode == 0, said + errors
    wait_until(
        lambda: Job.objects.filter(pk=cancelled.id, status="cancelled", lease_owner=None),
        lambda: f"its code to end; {supervised.log}",
    )
    lost = tasks.checking.enqueue("go")
    site.wait_for("begin", lost.id)
    (worker,) = supervised.workers
    # What the worker had begun is dead with it; that its lease is over, another process sees.
    supervised.kill_all()
    wait_gone(worker)
    again = site.start_ready(**pooled)
    site.release("go2")
    row = site.wait_status(lost.id, Status.COMPLETED)
    assert (row.attempt, site.log_events(lost.id)) == (2, ["lost"])
    for _ in range(2):
        command = site.manage("reconcile", "--json", **pooled)
        said, errors = command.communicate(timeout=30)
        assert command.returncode == 0, errors
    found = {kind: each["found"] for kind, each in json.loads(said)["kinds"].items()}
    assert not any(found.values()), found
    again.send(signal.SIGTERM)
    assert again.wait() == 0, again.log
