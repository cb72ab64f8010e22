"""Every event of the table meets every other on one job: the first wins, and the second finds what it left."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from django.db.models import CheckConstraint

from jobqueue import lifecycle
from jobqueue.attempts import Attempt
from jobqueue.lifecycle import Event, recovering
from jobqueue.lifecycle.states import transition
from jobqueue.models import Job, Status
from tests.factories import now
from tests.lifecycle.acts import (
    PATIENCE,
    STATUSES,
    attempt_of,
    events,
    expire,
    make_due,
    picture,
    waiting_for_a_lock,
)
from tests.lifecycle.moves import ACTS, Act, at, check_moved

pytestmark = pytest.mark.timeout(300)

#: The first of a pair, with a state in which it may happen. The second may be anything.
FIRSTS = [
    (state, act)
    for act in ACTS
    for state, status in STATUSES.items()
    if lifecycle.refusal(act.event, status, stopping=state == "stopping") is None
]
NAMES = [f"{state}, {act.event} by {act.name}" for state, act in FIRSTS]

PEOPLE = {Event.RUN_NOW, Event.CANCELLED, Event.REQUEUED}
OF_THE_DEAD = {"lose", "time_out", "hand_back"}
FENCED = {"settle", "settle, final", "settle, alone", "exchange", "atomically", "time_out"}
SETTLING = FENCED - {"atomically", "time_out"}

#: What the database itself sees to.
CONDITIONS = [each.condition for each in Job._meta.constraints if isinstance(each, CheckConstraint)]

#: Events that leave no line in the log.
QUIET = {Event.DUE, Event.CLAIMED, Event.COMPLETED}


@dataclass
class Pair:
    """A job, and two acts that were both meant for it as it was in the beginning."""

    job: Job
    attempt: Attempt
    first: Act
    second: Act

    @classmethod
    def meeting(cls, state: str, first: Act, second: Act) -> Pair:
        job = at(state, first.event, queue_name=uuid4().hex)  # so that a claim finds this one
        if second.event is Event.DUE and state == "scheduled":
            make_due(job)
        if second.event is Event.LOST and state in ("processing", "stopping"):
            expire(job)
        return cls(job, attempt_of(job), first, second)

    def does(self, act: Act) -> bool | None:
        return act.act(self.job, self.attempt)

    def __str__(self) -> str:
        return f"{self.first.event} by {self.first.name}, {self.second.event} by {self.second.name}"


def may(act: Act, job: Job, attempt: Attempt) -> bool:
    """Whether the table lets the act happen to the row as it is now, at this attempt's hands."""
    if lifecycle.refusal(act.event, job.status, stopping=job.is_stopping) is not None:
        return False
    return finds(act, job, attempt)


def finds(act: Act, job: Job, attempt: Attempt) -> bool:
    """Whether the rest of its guard holds."""
    if act.name in FENCED:
        return (job.lease_owner, job.attempt) == (attempt.owner, attempt.attempt)
    if act.name in OF_THE_DEAD:
        return job.lease_owner == attempt.owner
    if act.name == "recover":
        return job.lease_expires_at is not None and job.lease_expires_at < now()
    return act.name != "promote" or job.run_after <= now()


def check(
    pair: Pair, act: Act, happened: bool | None, before: dict[str, Any], lines: list[str]
) -> None:
    """What the act did to the row, and said in the log, is what the table says of it."""
    job = Job(**before)
    assert happened is may(act, job, pair.attempt), pair
    after, said = picture(pair.job), events(pair.job)[len(lines) :]
    assert Job.objects.filter(*CONDITIONS, pk=pair.job.pk).exists(), pair
    if happened:
        check_moved(transition(act.event), before, after)
        named = "note" if act.event is Event.RUN_NOW else act.event.value
        assert said == ([] if act.event in QUIET else [named]), pair
        return
    stops = job.is_stopping and act.name != "atomically" and act.event not in PEOPLE
    if stops and act.event not in (Event.DUE, Event.CLAIMED) and finds(act, job, pair.attempt):
        before |= {"lease_owner": None, "lease_expires_at": None}
        repaired = act.name in ("lose", "time_out", "recover")
    else:
        repaired = False
    assert after == before, pair
    is_late = act.name in SETTLING
    if job.status == Status.CANCELLED and act.event is Event.RELEASED:
        is_late = False
    assert said == ["fenced"] * is_late + ["repaired"] * repaired, pair


def does_and_check(pair: Pair, act: Act) -> None:
    before, lines = picture(pair.job), events(pair.job)
    check(pair, act, pair.does(act), before, lines)


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "first"), FIRSTS, ids=NAMES)
def test_one_after_the_other(state: str, first: Act) -> None:
    for second in ACTS:
        pair = Pair.meeting(state, first, second)
        does_and_check(pair, first)
        does_and_check(pair, second)
        # Nor does it help to come again.
        if second.name in FENCED:
            does_and_check(pair, second)


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """A thread with a connection of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool
        pool.submit(connections.close_all).result(PATIENCE)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize(("state", "first"), FIRSTS, ids=NAMES)
def test_while_the_first_holds_the_row(
    state: str,
    first: Act,
    commits: bool,
    other: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovering, "PATIENCE", PATIENCE)
    for second in ACTS:
        pair = Pair.meeting(state, first, second)
        before = picture(pair.job)
        with transaction.atomic():
            assert pair.does(first), pair
            middle, lines = picture(pair.job), events(pair.job)
            answer = other.submit(pair.does, second)
            has_waited = waits(answer)
            transaction.set_rollback(not commits)
        if not commits:
            middle, lines = before, []
        happened = answer.result(PATIENCE)
        if connection.vendor == "postgresql":
            assert has_waited is is_patient(second, Job(**before), pair.attempt), pair
        if has_waited:
            check(pair, second, happened, middle, lines)
        else:
            # Passed over: an outcome is kept, and not taken for a late one.
            told = None if second.name in SETTLING else False
            assert (happened, picture(pair.job), events(pair.job)) == (told, middle, lines), pair
            does_and_check(pair, second)


def waits(answer: Future[bool | None]) -> bool:
    """Whether what was begun waits for the transaction that is open here, and has not passed it by.
    SQLite has one lock, for which everybody waits, and does not tell who does."""
    if connection.vendor == "sqlite":
        return True
    while not wait([answer], timeout=0.003).done:
        if waiting_for_a_lock():
            return not answer.done()
    return False


def is_patient(act: Act, job: Job, attempt: Attempt) -> bool:
    """Whether who wants to change a row that is held waits for it; the others come again."""
    if act.event in PEOPLE or act.name == "settle, alone":
        return True
    if act.name == "atomically":
        return may(act, job, attempt)
    return act.name in OF_THE_DEAD and finds(act, job, attempt)
