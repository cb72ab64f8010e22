"""Random walks over everything that can happen to jobs; after each step the tables are sound."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobqueue import lifecycle, reconcile
from jobqueue.attempts import Attempt, Ending
from jobqueue.models import FINAL, WAITING, Job, JobLog, Status
from tests.factories import JobFactory, ago, now
from tests.lifecycle.acts import outcome

pytestmark = pytest.mark.django_db

OWNERS = [uuid.UUID(int=number) for number in (1, 2, 3)]
NAMES = {owner: f"host:{owner.int}:{owner.hex[:8]}" for owner in OWNERS}
pick = st.integers(0, 3)


@dataclass
class Told:
    """What the walk itself has counted of one job."""

    max_attempts: int
    claims: int = 0
    given_back: int = 0
    requeues: int = 0
    cancelled: bool = False
    lines: Counter[str] = field(default_factory=Counter)


class Walk(RuleBasedStateMachine):
    """Three workers, some jobs, people, and time that passes by moving rows."""

    def __init__(self) -> None:
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        self.jobs: dict[uuid.UUID, Told] = {}
        self.attempts: list[Attempt] = []  # every attempt there ever was: any may still report
        self.states: set[str] = set()  # of the jobs, after the last step

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.transaction.__exit__(None, None, None)

    # Helpers

    def job(self, number: int) -> Job:
        keys = list(self.jobs)
        return Job.objects.get(pk=keys[number % len(keys)])

    def attempt(self, number: int) -> Attempt:
        """Mostly one of the latest: what is years behind the walk is late in one way only."""
        return self.attempts[-1 - number % len(self.attempts)]

    def note(self, job_id: uuid.UUID, event: str) -> None:
        self.jobs[job_id].lines[event] += 1

    def give_back(self, job_id: uuid.UUID) -> None:
        self.jobs[job_id].given_back += 1
        self.jobs[job_id].max_attempts += 1

    # What happens

    @initialize(limits=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def enqueue(self, limits: list[int]) -> None:
        for limit in limits:
            job = JobFactory(max_attempts=limit)
            self.jobs[job.pk] = Told(limit)

    # The preconditions keep steps from coming to nothing; what is refused where is shown by the
    # table's own tests.

    @precondition(lambda self: Status.QUEUED in self.states)
    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 2))
    def claim(self, owner: uuid.UUID, limit: int) -> None:
        for attempt in lifecycle.claim("default", owner, NAMES[owner], limit):
            told = self.jobs[attempt.id]
            told.claims += 1
            assert attempt.attempt == told.claims
            assert attempt.given_back == told.given_back
            self.attempts.append(attempt)

    @precondition(lambda self: Status.PROCESSING in self.states)
    @rule(ending=st.sampled_from(Ending), final=st.booleans(), cancelled=pick)
    def a_run_ends(self, ending: Ending, final: bool, cancelled: int) -> None:
        running = Job.objects.filter(status=Status.PROCESSING).values_list("pk", "attempt")
        (attempt, *_) = [each for each in self.attempts if each.pair in running]
        if cancelled == 3:
            self.cancel_job(attempt.id)
        self.report(attempt, ending, final=final)

    @precondition(lambda self: self.attempts)
    @rule(number=pick, ending=st.sampled_from(Ending), read_back=st.booleans())
    def an_attempt_of_any_age_reports(self, number: int, ending: Ending, read_back: bool) -> None:
        """Often it is not its owner's any more."""
        self.report(self.attempt(number), ending, read_back=read_back)

    def report(
        self, attempt: Attempt, ending: Ending, *, final: bool = False, read_back: bool = False
    ) -> None:
        before = Job.objects.filter(pk=attempt.id).values().get()
        told = outcome(attempt, ending, final=final, return_value="value", delay=5.0)
        settled = lifecycle.settle([told], read_back=read_back)
        mine = (before["lease_owner"], before["attempt"]) == (attempt.owner, attempt.attempt)
        after = Job.objects.filter(pk=attempt.id).values().get()
        if mine and before["status"] == Status.PROCESSING:
            assert [each.attempt for each, _ in settled.written] == [attempt]
            assert after["status"] in (
                next(t.targets for t in lifecycle.TRANSITIONS if t.event == ending.value)
            )
            if ending in (Ending.SNOOZED, Ending.NOT_FOUND, Ending.RELEASED):
                self.give_back(attempt.id)
            if ending is not Ending.COMPLETED:
                self.note(attempt.id, ending.value)
            return
        let_go = {"lease_owner": None, "lease_expires_at": None} if mine else {}
        assert after == before | let_go
        if settled.dropped and JobLog.objects.filter(job=attempt.id).count() > sum(
            self.jobs[attempt.id].lines.values()
        ):
            self.note(attempt.id, "fenced")
        else:
            # Unlogged only if it was written before, has been logged already, or was told to stop.
            assert read_back or (before["status"], ending) == (Status.CANCELLED, Ending.RELEASED)

    @precondition(lambda self: self.attempts)
    @rule(number=pick, all_of_them=st.booleans())
    def heartbeat(self, number: int, all_of_them: bool) -> None:
        owner = self.attempt(number).owner
        mine = [each.pair for each in self.attempts if each.owner == owner]
        named = mine if all_of_them else mine[:1]
        beat = lifecycle.heartbeat(owner, named)
        rows = Job.objects.filter(lease_owner=owner)
        owned = {(row.pk, row.attempt) for row in rows}
        assert beat.held == set(named) & owned
        assert beat.lost == set(named) - owned
        assert beat.strays == owned - set(named)
        for row in rows.filter(pk__in=[pair.id for pair in beat.held]):
            assert row.lease_expires_at > now() + timedelta(seconds=20)

    @precondition(lambda self: self.states & {Status.SCHEDULED, Status.PROCESSING})
    @rule(number=pick)
    def time_passes(self, number: int) -> None:
        """For one job: its lease runs out, or its delay."""
        job = Job.objects.filter(pk=self.job(number).pk)
        job.filter(lease_owner__isnull=False).update(lease_expires_at=ago(1))
        job.filter(status=Status.SCHEDULED).update(run_after=ago(1))

    @precondition(lambda self: self.states & {Status.SCHEDULED, Status.PROCESSING, "stopping"})
    @rule(first=st.booleans(), alone=st.booleans(), number=pick)
    def reconcile(self, first: bool, alone: bool, number: int) -> None:
        if first:
            self.time_passes(number)
        moment = now()
        expired = set(lifecycle.expired("default", moment).values_list("pk", "status"))
        due = set(lifecycle.due("default", moment).values_list("pk", flat=True))
        if alone:
            job = self.job(number)
            expired = {each for each in expired if each[0] == job.pk}
            due = due & {job.pk}
            assert set(lifecycle.recover([job.pk])) == {pk for pk, _ in expired}
            assert set(lifecycle.promote([job.pk])) == due
        else:
            found = {each.kind: each.repaired for each in reconcile.sweep()}
            assert found["due"] == len(due)
            assert found["lost"] + found["stopping"] == len(expired)
        for pk, status in expired:
            self.note(pk, "lost" if status == Status.PROCESSING else "repaired")

    @precondition(lambda self: self.attempts)
    @rule(number=pick, how=st.sampled_from(["lose", "hand_back", "time_out"]))
    def a_worker_dies(self, number: int, how: str) -> None:
        owner = self.attempt(number).owner
        rows = list(Job.objects.filter(lease_owner=owner).order_by("pk"))
        running = [(row.pk, row.attempt) for row in rows if row.status == Status.PROCESSING]
        if how == "lose":
            taken = lifecycle.lose(owner, "killed")
        elif how == "hand_back":
            taken = lifecycle.hand_back(owner)
        else:
            taken = lifecycle.time_out(
                owner, [each.pair for each in self.attempts if each.owner == owner]
            )
        assert taken == running
        for row in rows:
            if row.status == Status.CANCELLED:
                if how != "hand_back":
                    self.note(row.pk, "repaired")
            elif how == "hand_back":
                self.give_back(row.pk)
                self.note(row.pk, "released")
            else:
                self.note(row.pk, "lost" if how == "lose" else "timed_out")

    @precondition(lambda self: len(self.attempts) > 2 and self.states - FINAL - {"stopping"})
    @rule(number=pick)
    def cancel(self, number: int) -> None:
        self.cancel_job(self.job(number).pk)

    def cancel_job(self, job_id: uuid.UUID) -> None:
        job = Job.objects.get(pk=job_id)
        assert lifecycle.cancel(job.pk) is (job.status not in FINAL)
        if job.status not in FINAL:
            self.jobs[job.pk].cancelled = True
            self.note(job.pk, "cancelled")

    @precondition(lambda self: self.states & FINAL)
    @rule(number=pick, attempts=st.integers(1, 2))
    def requeue(self, number: int, attempts: int) -> None:
        job = self.job(number)
        allowed = job.status in FINAL and job.lease_owner is None
        assert lifecycle.requeue(job.pk, attempts=attempts) is allowed
        if allowed:
            told = self.jobs[job.pk]
            told.cancelled = False
            told.requeues += 1
            told.max_attempts = max(told.max_attempts, told.claims + attempts)
            self.note(job.pk, "requeued")

    @precondition(lambda self: Status.SCHEDULED in self.states)
    @rule(number=pick)
    def run_now(self, number: int) -> None:
        job = self.job(number)
        assert lifecycle.run_now(job.pk) is (job.status == Status.SCHEDULED)
        if job.status == Status.SCHEDULED:
            self.note(job.pk, "note")

    # What always holds

    @invariant()
    def the_tables_are_sound(self) -> None:
        lines: dict[uuid.UUID, Counter[str]] = {pk: Counter() for pk in self.jobs}
        for pk, event in JobLog.objects.values_list("job_id", "event"):
            lines[pk][event] += 1
        self.states.clear()
        for job in Job.objects.all():
            self.states.add("stopping" if job.is_stopping else Status(job.status))
            told = self.jobs[job.pk]
            assert lines[job.pk] == told.lines, "every change has its line, and only those"
            self.check(job, told)

    def check(self, job: Job, told: Told) -> None:
        assert job.attempt == told.claims
        assert job.given_back == told.given_back
        assert job.max_attempts == told.max_attempts
        assert job.attempt <= job.max_attempts
        if job.status in WAITING:
            assert job.attempt < job.max_attempts
        assert (job.status == Status.CANCELLED) is told.cancelled
        assert (job.finished_at is not None) is (job.status in FINAL)
        assert (job.lease_owner is None) is (job.lease_expires_at is None)
        if job.lease_owner is not None:
            last = max(
                (each for each in self.attempts if each.id == job.pk), key=lambda each: each.attempt
            )
            assert job.lease_owner == last.owner
            assert job.status in (Status.PROCESSING, Status.CANCELLED)
        if job.status == Status.FAILED and not told.requeues:
            assert job.error
        if job.attempt:
            assert job.started_at <= job.attempted_at
            assert job.worker in NAMES.values()


@pytest.mark.timeout(300)
def test_whatever_happens_in_whatever_order(site_time: None) -> None:
    assert connection.in_atomic_block
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=14,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # shrinking takes minutes; the steps are printed as they are
            suppress_health_check=list(HealthCheck),
        ),
    )
