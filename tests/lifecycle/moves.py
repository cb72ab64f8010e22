"""Every way in which each event of the table can happen to a job, for the tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jobqueue
from jobqueue import lifecycle
from jobqueue.attempts import Attempt, Ending
from jobqueue.lifecycle import Event
from jobqueue.models import FINAL, Job, Status
from tests.factories import JobFactory
from tests.lifecycle.acts import WORKER, expire, make_due, outcome, row


class Act(NamedTuple):
    """A way in which an event can happen to a job; it answers whether it did, or None: it is to be tried again.

    What an attempt does is done by the one that it is given, whether or not the job is still its own.
    """

    event: Event
    name: str
    act: Callable[[Job, Attempt], bool | None]


def settled(ending: Ending, **values: Any) -> Callable[[Job, Attempt], bool | None]:
    """Hand in the outcome of an attempt."""

    def act(job: Job, attempt: Attempt) -> bool | None:
        return answer(lifecycle.settle([outcome(attempt, ending, **values)]))

    return act


def answer(settled: lifecycle.Settled) -> bool | None:
    """What became of one outcome: written, dropped, or locked."""
    assert len(settled.written) + len(settled.dropped) + len(settled.locked) == 1
    return None if settled.locked else bool(settled.written)


def settle_alone(job: Job, attempt: Attempt) -> bool | None:
    return answer(lifecycle.settle([outcome(attempt, Ending.ERRORED, delay=60)], wait=True))


def exchange(job: Job, attempt: Attempt) -> bool | None:
    told = lifecycle.exchange([outcome(attempt)], "an empty one", attempt.owner, WORKER, 1)
    return answer(lifecycle.settle(told.rest) if told.rest else told.settled)


def claim(job: Job, attempt: Attempt) -> bool:
    owner = JobFactory.build(leased=True).lease_owner
    return bool(lifecycle.claim(job.queue_name, owner, WORKER, 1))


def promote(job: Job, attempt: Attempt) -> bool:
    return bool(lifecycle.promote([job.pk]))


def recover(job: Job, attempt: Attempt) -> bool:
    return bool(lifecycle.recover([job.pk])) and row(job).status != Status.CANCELLED


def lose(job: Job, attempt: Attempt) -> bool:
    return bool(lifecycle.lose(attempt.owner, "it died"))


def time_out(job: Job, attempt: Attempt) -> bool:
    return bool(lifecycle.time_out(attempt.owner, [attempt.pair]))


def hand_back(job: Job, attempt: Attempt) -> bool:
    return bool(lifecycle.hand_back(attempt.owner))


def complete_atomically(job: Job, attempt: Attempt) -> bool:
    try:
        with lifecycle.atomically(attempt) as complete:
            complete("done")
    except jobqueue.LeaseLost:
        return False
    return True


#: Every way in which an event can happen to a job.
ACTS: list[Act] = [
    Act(Event.DUE, "promote", promote),
    Act(Event.RUN_NOW, "run_now", lambda job, _: lifecycle.run_now(job.pk)),
    Act(Event.CLAIMED, "claim", claim),
    Act(Event.COMPLETED, "settle", settled(Ending.COMPLETED)),
    Act(Event.COMPLETED, "atomically", complete_atomically),
    Act(Event.COMPLETED, "exchange", exchange),
    Act(Event.ERRORED, "settle", settled(Ending.ERRORED, delay=60)),
    Act(Event.ERRORED, "settle, alone", settle_alone),
    Act(Event.ERRORED, "settle, final", settled(Ending.ERRORED, final=True)),
    Act(Event.TIMED_OUT, "settle", settled(Ending.TIMED_OUT, delay=60)),
    Act(Event.TIMED_OUT, "time_out", time_out),
    Act(Event.SNOOZED, "settle", settled(Ending.SNOOZED, delay=60)),
    Act(Event.NOT_FOUND, "settle", settled(Ending.NOT_FOUND)),
    Act(Event.RELEASED, "settle", settled(Ending.RELEASED)),
    Act(Event.RELEASED, "hand_back", hand_back),
    Act(Event.LOST, "recover", recover),
    Act(Event.LOST, "lose", lose),
    Act(Event.CANCELLED, "cancel", lambda job, _: lifecycle.cancel(job.pk)),
    Act(Event.REQUEUED, "requeue", lambda job, _: lifecycle.requeue(job.pk)),
]
NAMES = [f"{act.event} by {act.name}" for act in ACTS]

#: What the row's lease may lose although the event is refused: the code has let go, all the same.
LETS_GO = {Event.COMPLETED, Event.ERRORED, Event.TIMED_OUT, Event.SNOOZED, Event.NOT_FOUND}
LETS_GO |= {Event.RELEASED, Event.LOST}


def at(state: str, event: Event, **values: Any) -> Job:
    """A job in this state, to which nothing but its status could keep the event from happening."""
    job = JobFactory(**{state: True}, max_attempts=5, **values)
    if event is Event.DUE and state == "scheduled":
        make_due(job)
    if event is Event.LOST and state in ("processing", "stopping"):
        expire(job)
    job.refresh_from_db()
    return job


def check_moved(moved: lifecycle.Transition, before: dict[str, Any], after: dict[str, Any]) -> None:
    """What one event may change in a row, and what it must."""
    assert before["status"] in moved.sources
    assert after["status"] in moved.targets
    assert (after["finished_at"] is not None) is (after["status"] in FINAL)
    held = after["status"] == Status.PROCESSING or (
        moved.event is Event.CANCELLED and before["lease_owner"] is not None
    )
    assert (after["lease_owner"] is not None) is held
    assert (after["lease_expires_at"] is not None) is held
    assert after["attempt"] == before["attempt"] + (moved.event is Event.CLAIMED)
    back = int(moved.gives_back)
    assert after["given_back"] == before["given_back"] + back
    assert after["max_attempts"] == before["max_attempts"] + back
    for column in ("id", "task_path", "args", "kwargs", "queue_name", "priority", "enqueued_at"):
        assert after[column] == before[column]
