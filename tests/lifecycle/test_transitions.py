"""The table of transitions and the code that moves jobs: they say the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import jobqueue
from jobqueue import lifecycle, sqlite
from jobqueue.attempts import Attempt
from jobqueue.lifecycle import TRANSITIONS, Event
from jobqueue.lifecycle.states import transition
from jobqueue.models import Job, JobLog, Status
from jobqueue.postgres import inserting, locking, moving, notifying
from tests.factories import JobFactory
from tests.lifecycle.acts import (
    STATUSES,
    attempt_of,
    claimed,
    events,
    expire,
    new_job,
    picture,
    row,
)
from tests.lifecycle.moves import ACTS, LETS_GO, NAMES, at, check_moved, complete_atomically

pytestmark = pytest.mark.django_db

PACKAGE = Path(jobqueue.__file__).parent


@pytest.mark.parametrize(("event", "act"), [(e, a) for e, _, a in ACTS], ids=NAMES)
def test_it_happens_where_the_table_allows_it_and_nowhere_else(event, act):
    for state in STATUSES:
        check(event, act, state)


def check(event: Event, act: Callable[[Job, Attempt], bool | None], state: str) -> None:
    job = at(state, event, queue_name=state)
    before = picture(job)
    refused = lifecycle.refusal(event, job.status, stopping=job.is_stopping)
    happened = act(job, attempt_of(job))
    assert happened is (refused is None), f"{event} from {state}"
    after = picture(job)
    if happened:
        check_moved(transition(event), before, after)
        return
    if event in LETS_GO and state == "stopping" and act is not complete_atomically:
        assert (after["lease_owner"], after["lease_expires_at"]) == (None, None)
        before |= {"lease_owner": None, "lease_expires_at": None}
    assert after == before, f"{event} from {state}"


def test_every_target_of_the_table_is_reached():
    """The rows above start with attempts to spare and a fresh search; these are the other ends."""
    reached = {(event, Status.FAILED) for event in (Event.ERRORED, Event.TIMED_OUT, Event.LOST)}
    for event, _, act in ACTS:
        if (event, Status.FAILED) in reached:
            job = JobFactory(processing=True, max_attempts=1)
            if event is Event.LOST:
                expire(job)
            assert act(job, attempt_of(job))
            assert row(job).status == Status.FAILED


def test_every_event_of_the_table_is_among_the_acts_and_each_row_stands_once():
    assert {event for event, _, _ in ACTS} | {Event.ENQUEUED} == set(Event)
    assert [moved.event for moved in TRANSITIONS] == list(Event)


def test_every_event_out_of_the_ordinary_has_a_line_of_its_name():
    happy = {Event.ENQUEUED, Event.DUE, Event.CLAIMED, Event.COMPLETED, Event.RUN_NOW}
    for event, _, act in ACTS:
        job = at(
            next(s for s, status in STATUSES.items() if lifecycle.allows(event, status)), event
        )
        assert act(job, attempt_of(job))
        if event in happy - {Event.RUN_NOW}:
            assert events(job) == []
        else:
            assert events(job) == ["note" if event is Event.RUN_NOW else event.value]


def test_what_is_enqueued_waits_for_its_time_or_is_queued():
    (now,) = lifecycle.enqueue([new_job()])
    (later,) = lifecycle.enqueue([new_job(run_after=JobFactory.build(scheduled=True).run_after)])
    assert (now.status, later.status) == (Status.QUEUED, Status.SCHEDULED)
    assert {now.status, later.status} == transition(Event.ENQUEUED).targets
    assert transition(Event.ENQUEUED).sources == frozenset()


def test_refusals_are_words_for_people():
    assert lifecycle.refusal(Event.CANCELLED, Status.QUEUED) is None
    said = lifecycle.refusal(Event.CANCELLED, Status.COMPLETED)
    assert said == "it is completed; only these can be cancelled: processing, queued, scheduled"
    assert "let go" in (lifecycle.refusal(Event.REQUEUED, Status.CANCELLED, stopping=True) or "")


def test_a_claimed_job_shows_its_attempt_lease_and_times():
    attempt = claimed()
    job = row(attempt)
    assert (job.status, job.attempt, job.lease_owner) == ("processing", 1, attempt.owner)
    assert job.started_at == job.attempted_at == attempt.attempted_at
    assert (job.lease_expires_at - job.attempted_at).total_seconds() == pytest.approx(30, abs=1)


#: The functions that write a status, and what they write it for. A new one must be put here, and
#: its event among the ACTS.
WRITERS = {
    "lifecycle/settling.py": {
        "_completed": {Event.COMPLETED},
        "failed": {Event.ERRORED, Event.TIMED_OUT, Event.NOT_FOUND, Event.LOST},
        "scheduled": {Event.ERRORED, Event.TIMED_OUT, Event.SNOOZED, Event.NOT_FOUND, Event.LOST},
        "_changes": {Event.RELEASED},
    },
    "lifecycle/recovering.py": {"promote": {Event.DUE}, "_released": {Event.RELEASED}},
    "lifecycle/interventions.py": {
        "_cancel": {Event.CANCELLED},
        "_requeue": {Event.REQUEUED},
        "_run_now": {Event.RUN_NOW},
    },
}
#: The statements that do, on PostgreSQL and on SQLite.
STATEMENTS = {
    "INSERT_ONE",
    "INSERT_ONE_KEYED",
    "INSERT_MANY",
    "INSERT_MANY_KEYED",
    "COPY",
    "CLAIM",
    "CLAIM_ABOVE",
    "CLAIM_BEHIND",
    "CLAIM_THESE",
    "COMPLETE",
    "EXCHANGE",
    "EXCHANGE_ABOVE",
    "EXCHANGE_BEHIND",
    "EXCHANGE_THESE",
}
SQLITE_STATEMENTS = {
    "INSERT",
    "INSERT_KEYED",
    "CLAIM",
    "CLAIM_ABOVE",
    "CLAIM_BEHIND",
    "CLAIM_THESE",
    "COMPLETE",
}


def writes_status(function: ast.AST) -> bool:
    """Whether it makes a Job with a status, updates one, assigns one, or builds such changes."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and any(each.arg == "status" for each in node.keywords):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if isinstance(node.func, ast.Name):
                name = node.func.id
            if name in ("update", "Job", "create", "bulk_create", "update_or_create"):
                return True
        if isinstance(node, ast.Dict) and any(
            isinstance(key, ast.Constant) and key.value == "status" for key in node.keys
        ):
            return True
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(each, ast.Attribute) and each.attr == "status" for each in targets):
            return True
    return False


def test_nothing_else_writes_a_status():
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("migrations/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and writes_status(node):
                found.setdefault(name, set()).add(node.name)
    inside = {name: names for name, names in found.items() if name.startswith("lifecycle/")}
    assert inside == {name: set(functions) for name, functions in WRITERS.items()}
    # Elsewhere a `status` may be shown, but no Job row is touched.
    for name in set(found) - set(inside):
        assert (
            ".update(" not in (PACKAGE / name).read_text()
            or "Job.objects" not in (PACKAGE / name).read_text()
        ), f"{name} seems to write a status: {found[name]}"
    written = {
        event for functions in WRITERS.values() for each in functions.values() for event in each
    }
    assert written | {Event.ENQUEUED, Event.CLAIMED} == set(Event)


def test_no_other_statement_writes_a_status():
    assert statements_of(inserting, moving, locking, notifying) == STATEMENTS
    assert statements_of(sqlite) == SQLITE_STATEMENTS
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "postgres" and path.name != "sqlite.py":
            assert not re.search(r"(UPDATE|INSERT INTO|COPY) jobqueue_job\b", path.read_text()), (
                path
            )


def statements_of(*rooms: ModuleType) -> set[str]:
    """The names of those that write a status."""
    writes = re.compile(r"\bSET\b[^;]*?\bstatus\s*=|(INSERT\s+INTO|COPY)\s+jobqueue_job\b", re.I)
    return {
        name
        for room in rooms
        for name, value in vars(room).items()
        if isinstance(value, str) and name.isupper() and name[0] != "_" and writes.search(value)
    }


def test_the_log_knows_every_event_that_it_may_be_given():
    named = {Event.ENQUEUED, Event.DUE, Event.RUN_NOW, Event.CLAIMED, Event.COMPLETED}
    assert {event.value for event in set(Event) - named} <= set(JobLog.Event.values)
