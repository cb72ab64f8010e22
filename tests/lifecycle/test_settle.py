"""Outcomes: written behind the fence, dropped and logged where it does not hold."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from jobqueue import lifecycle
from jobqueue.attempts import Attempt, Ending
from jobqueue.exceptions import LeaseLost
from jobqueue.lifecycle import journal
from jobqueue.lifecycle.settling import NOT_FOUND_LIMIT, NOT_FOUND_PAUSE
from jobqueue.models import Job, JobLog, Status
from tests.factories import JobFactory, ago, now
from tests.lifecycle.acts import (
    WORKER,
    attempt_of,
    claimed,
    events,
    expire,
    held,
    in_thread,
    is_close,
    local_time_too,
    make_due,
    outcome,
    picture,
    point_at,
    row,
    together,
    until_somebody_waits_for_a_lock,
)


def claim_again(attempt: Attempt, owner: uuid.UUID | None = None) -> Attempt:
    make_due(attempt)
    lifecycle.promote([attempt.id])
    (again,) = lifecycle.claim("default", owner or uuid.uuid4(), WORKER, 1)
    return again


@pytest.mark.django_db
class TestOutcomes:
    @local_time_too
    def test_completed(self):
        attempt = claimed()
        settled = lifecycle.settle([outcome(attempt, return_value={"a": [1e16, -0.0]})])
        assert [(o.attempt, status) for o, status in settled.written] == [(attempt, "completed")]
        job = row(attempt)
        assert (job.status, job.error, job.worker) == ("completed", "", WORKER)
        assert job.return_value == {"a": [1e16, -0.0]}
        assert type(job.return_value["a"][0]) is float
        assert is_close(job.finished_at, now())
        assert events(attempt) == []

    @pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
    def test_completed_with_nothing_much(self, value):
        attempt = claimed()
        lifecycle.settle([outcome(attempt, return_value=value)])
        assert row(attempt).return_value == value
        assert Job.objects.filter(return_value__isnull=value is None, pk=attempt.id).exists()

    @local_time_too
    @pytest.mark.parametrize("ending", [Ending.ERRORED, Ending.TIMED_OUT])
    def test_an_error_waits_for_its_next_attempt(self, ending):
        attempt = claimed()
        failed = outcome(attempt, ending, delay=90.0, data={"traceback": "line"})
        ((_, status),) = lifecycle.settle([failed]).written
        job = row(attempt)
        assert (status, job.status, job.error) == ("scheduled", "scheduled", "ValueError: no")
        assert is_close(job.run_after, now() + timedelta(seconds=90))
        (line,) = job.log.all()
        assert (line.event, line.level, line.attempt) == (ending.value, "warning", 1)
        assert (line.worker, line.message) == (WORKER, "ValueError: no")
        times = {name: line.data.pop(name) for name in ("attempted_at", "waited")}
        assert line.data == {"traceback": "line", "delay": 90.0}
        assert times == journal.times(attempt.attempted_at, attempt.run_after)
        assert times["waited"] >= 0

    @pytest.mark.parametrize("ending", [Ending.ERRORED, Ending.TIMED_OUT])
    def test_the_last_attempt_fails(self, ending):
        attempt = claimed(max_attempts=1)
        ((_, status),) = lifecycle.settle([outcome(attempt, ending)]).written
        job = row(attempt)
        assert (status, job.status, job.attempt) == ("failed", "failed", 1)
        assert (job.error, job.log.get().level) == ("ValueError: no", "error")
        assert is_close(job.finished_at, now())

    def test_runs_equal_max_attempts(self):
        attempt = claimed(max_attempts=3)
        numbers = [attempt.attempt]
        lifecycle.settle([outcome(attempt, Ending.ERRORED)])
        while row(attempt).status == Status.SCHEDULED:
            attempt = claim_again(attempt)
            numbers.append(attempt.attempt)
            lifecycle.settle([outcome(attempt, Ending.ERRORED)])
        assert numbers == [1, 2, 3]
        assert row(attempt).status == Status.FAILED

    def test_a_final_error_fails_at_once(self):
        attempt = claimed()
        lifecycle.settle([outcome(attempt, Ending.ERRORED, final=True)])
        assert row(attempt).status == Status.FAILED

    def test_snoozing_spends_nothing_and_clears_the_error(self):
        attempt = claimed(max_attempts=1)
        for times in range(1, 4):
            lifecycle.settle([outcome(attempt, Ending.SNOOZED, delay=5.0)])
            job = row(attempt)
            assert (job.status, job.error) == ("scheduled", "")
            assert (job.attempt, job.given_back, job.max_attempts) == (times, times, times + 1)
            attempt = claim_again(attempt)
            assert attempt.spent == 1
        lifecycle.settle([outcome(attempt, Ending.ERRORED)])
        assert row(attempt).status == Status.FAILED

    def test_released_is_queued_again_and_unspent(self):
        attempt = claimed(max_attempts=1)
        lifecycle.settle([outcome(attempt, Ending.RELEASED)])
        job = row(attempt)
        assert (job.status, job.attempt, job.given_back, job.max_attempts) == ("queued", 1, 1, 2)
        assert is_close(job.run_after, now())

    def test_a_batch_of_every_ending(self):
        attempts = {ending: claimed() for ending in Ending}
        settled = lifecycle.settle([outcome(attempts[ending], ending) for ending in Ending])
        assert {o.attempt.id: status for o, status in settled.written} == {
            attempts[Ending.COMPLETED].id: "completed",
            attempts[Ending.ERRORED].id: "scheduled",
            attempts[Ending.TIMED_OUT].id: "scheduled",
            attempts[Ending.SNOOZED].id: "scheduled",
            attempts[Ending.NOT_FOUND].id: "scheduled",
            attempts[Ending.RELEASED].id: "queued",
        }
        for ending, attempt in attempts.items():
            assert events(attempt) == ([] if ending is Ending.COMPLETED else [ending.value])

    def test_nothing_is_settled_by_nothing(self):
        assert lifecycle.settle([]) == lifecycle.Settled()

    def test_text_that_a_database_refuses_is_made_acceptable(self):
        attempt = claimed()
        lifecycle.settle([outcome(attempt, Ending.ERRORED, error="a\0b\ud800" + "c" * 10_000)])
        job = row(attempt)
        assert job.error.startswith("a\\x00b\\ud800c")
        assert len(job.error) <= 2_000
        assert job.log.get().message == job.error

    def test_a_value_that_a_database_refuses_writes_nothing_of_its_batch(self):
        """So that the worker can write each by itself, and say so for the one."""
        good, bad = claimed(), claimed()
        with pytest.raises((DatabaseError, ValueError)), transaction.atomic():
            lifecycle.settle([outcome(good), outcome(bad, return_value=float("nan"))])
        assert (row(good).status, row(bad).status) == ("processing", "processing")


@local_time_too
@pytest.mark.django_db
class TestNotFound:
    def test_the_pause_grows_to_a_minute_and_nothing_is_spent(self):
        attempt = claimed(max_attempts=1)
        pauses = []
        for _ in range(9):
            lifecycle.settle([outcome(attempt, Ending.NOT_FOUND)])
            job = row(attempt)
            pauses.append(round((job.run_after - job.log.last().created_at).total_seconds()))
            assert (job.status, job.max_attempts) == ("scheduled", job.attempt + 1)
            attempt = claim_again(attempt)
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert NOT_FOUND_PAUSE == 60

    def search(self, attempt: Attempt, seconds: float, event: str = "not_found") -> None:
        JobLog.objects.create(job_id=attempt.id, event=event, created_at=ago(seconds))

    def test_after_a_day_it_fails(self):
        attempt = claimed()
        self.search(attempt, NOT_FOUND_LIMIT + 1)
        lifecycle.settle([outcome(attempt, Ending.NOT_FOUND)])
        assert row(attempt).status == Status.FAILED

    def test_before_that_it_waits(self):
        attempt = claimed()
        self.search(attempt, NOT_FOUND_LIMIT - 60)
        lifecycle.settle([outcome(attempt, Ending.NOT_FOUND)])
        assert row(attempt).status == Status.SCHEDULED

    @pytest.mark.parametrize("event", ["requeued", "errored", "timed_out", "snoozed"])
    def test_a_search_that_ended_counts_no_more(self, event):
        """Somebody queued it again, or the function was found and ran."""
        attempt = claimed()
        self.search(attempt, 2 * NOT_FOUND_LIMIT)
        self.search(attempt, NOT_FOUND_LIMIT, event)
        lifecycle.settle([outcome(attempt, Ending.NOT_FOUND)])
        assert row(attempt).status == Status.SCHEDULED

    @pytest.mark.parametrize("event", ["lost", "released", "note", "fenced"])
    def test_other_events_do_not_end_a_search(self, event):
        attempt = claimed()
        self.search(attempt, NOT_FOUND_LIMIT + 60)
        self.search(attempt, 60, event)
        lifecycle.settle([outcome(attempt, Ending.NOT_FOUND)])
        assert row(attempt).status == Status.FAILED


def late(case: str, **values: Any) -> Attempt:
    """An attempt that is no longer its owner's, in one of the ways in which that can come about."""
    attempt = claimed(**values)
    match case:
        case "lost, waits":
            expire(attempt)
            lifecycle.recover([attempt.id])
        case "claimed by another":
            expire(attempt)
            lifecycle.recover([attempt.id])
            claim_again(attempt)
        case "claimed again by the same":
            expire(attempt)
            lifecycle.recover([attempt.id])
            claim_again(attempt, attempt.owner)
        case "completed":
            lifecycle.settle([outcome(attempt, return_value="first")])
        case "failed":
            lifecycle.settle([outcome(attempt, Ending.ERRORED, final=True, error="first")])
        case "cancelled":
            lifecycle.cancel(attempt.id)
            lifecycle.hand_back(attempt.owner)
        case "requeued":
            lifecycle.settle([outcome(attempt, Ending.ERRORED, final=True, error="first")])
            lifecycle.requeue(attempt.id)
        case "wrong owner":
            return replace(attempt, owner=uuid.uuid4())
        case "wrong attempt":
            return replace(attempt, attempt=attempt.attempt + 1)
    return attempt


LATE = [
    "lost, waits",
    "claimed by another",
    "claimed again by the same",
    "completed",
    "failed",
    "cancelled",
    "requeued",
    "wrong owner",
    "wrong attempt",
]


@pytest.mark.django_db
class TestFence:
    @pytest.mark.parametrize("case", LATE)
    def test_a_late_outcome_changes_nothing_and_is_logged(self, case):
        for ending in Ending:
            attempt = late(case)
            before, lines = picture(attempt), events(attempt)
            settled = lifecycle.settle([outcome(attempt, ending, return_value="late")])
            assert [each.attempt for each in settled.dropped] == [attempt], ending
            assert (settled.written, settled.locked) == ([], [])
            assert picture(attempt) == before
            unlogged = case == "cancelled" and ending is Ending.RELEASED
            assert events(attempt) == lines + ([] if unlogged else ["fenced"])
            Job.objects.all().delete()

    def test_the_line_says_what_was_dropped(self):
        attempt = late("claimed by another")
        told = outcome(attempt, Ending.ERRORED, data={"traceback": "line", "secret": 1})
        lifecycle.settle([told])
        line = JobLog.objects.get(event="fenced")
        assert (line.attempt, line.worker, line.level) == (1, WORKER, "warning")
        assert line.message == "errored, but the job was no longer this worker's; dropped"
        assert line.data == {"traceback": "line", "error": "ValueError: no"}

    @pytest.mark.parametrize("case", LATE)
    def test_an_atomic_task_commits_nothing_when_it_is_late(self, case):
        attempt = late(case)
        before = picture(attempt)
        with pytest.raises(LeaseLost), lifecycle.atomically(attempt) as complete:
            JobFactory(queue_name="written by the task")
            complete("late")
        assert picture(attempt) == before
        assert not Job.objects.filter(queue_name="written by the task").exists()

    @pytest.mark.parametrize("ending", list(Ending))
    def test_a_cancelled_job_stays_so_and_lets_go(self, ending):
        attempt = claimed()
        lifecycle.cancel(attempt.id)
        assert row(attempt).is_stopping
        settled = lifecycle.settle([outcome(attempt, ending)])
        assert len(settled.dropped) == 1
        job = row(attempt)
        assert (job.status, job.lease_owner, job.lease_expires_at) == ("cancelled", None, None)
        released = ending is Ending.RELEASED
        assert events(attempt) == ["cancelled"] + ([] if released else ["fenced"])

    def test_the_outcome_of_a_job_that_is_gone_is_dropped(self, caplog):
        attempt, other = claimed(), claimed()
        Job.objects.filter(pk=attempt.id).delete()
        settled = lifecycle.settle([outcome(attempt), outcome(other)])
        assert [each.attempt for each in settled.dropped] == [attempt]
        assert [each.attempt for each, _ in settled.written] == [other]
        assert f"Job {attempt.id} has been removed" in caplog.text

    def test_a_late_attempt_beside_the_right_one_in_a_batch(self):
        """A worker that was stopped for a while can bring both at once."""
        for order in (1, -1):
            first = claimed()
            expire(first)
            lifecycle.recover([first.id])
            second = claim_again(first, first.owner)
            both = [outcome(first, return_value="late"), outcome(second, return_value="right")]
            settled = lifecycle.settle(both[::order])
            assert [each.attempt.attempt for each, _ in settled.written] == [2]
            assert [each.attempt.attempt for each in settled.dropped] == [1]
            assert row(first).return_value == "right"
            assert events(first) == ["lost", "fenced"]


@pytest.mark.django_db
class TestReadBack:
    """An earlier try may have been committed although its answer never came."""

    @pytest.mark.parametrize("ending", list(Ending))
    def test_what_was_written_is_not_written_again(self, ending):
        attempt = claimed()
        first = lifecycle.settle([outcome(attempt, ending, delay=60)])
        before, lines = picture(attempt), events(attempt)
        again = lifecycle.settle([outcome(attempt, ending, delay=60)], read_back=True)
        assert again.written[0][1] == first.written[0][1]
        assert (again.dropped, again.locked) == ([], [])
        assert (picture(attempt), events(attempt)) == (before, lines)

    def test_what_was_not_written_is_written_now(self):
        attempt = claimed()
        ((_, status),) = lifecycle.settle([outcome(attempt)], read_back=True).written
        assert (status, row(attempt).status) == ("completed", "completed")

    def test_what_was_written_and_claimed_by_another_since(self):
        attempt = claimed()
        lifecycle.settle([outcome(attempt, Ending.ERRORED)])
        claim_again(attempt)
        before = picture(attempt)
        again = lifecycle.settle([outcome(attempt, Ending.ERRORED)], read_back=True)
        assert [status for _, status in again.written] == ["scheduled"]
        assert (picture(attempt), events(attempt)) == (before, ["errored"])

    @pytest.mark.parametrize("case", ["lost, waits", "claimed by another", "cancelled"])
    @pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.ERRORED, Ending.SNOOZED])
    def test_what_others_wrote_is_no_answer(self, case, ending):
        attempt = late(case)
        before = picture(attempt)
        settled = lifecycle.settle([outcome(attempt, ending)], read_back=True)
        assert (settled.written, len(settled.dropped)) == ([], 1)
        assert (picture(attempt), events(attempt)[-1]) == (before, "fenced")

    def test_a_dropped_one_is_logged_once(self):
        attempt = late("claimed by another")
        for _ in range(2):
            lifecycle.settle([outcome(attempt)], read_back=True)
        assert events(attempt) == ["lost", "fenced"]

    def test_another_attempts_completion_is_no_answer(self):
        attempt = late("claimed by another")
        lifecycle.settle([outcome(attempt_of(row(attempt)))])
        settled = lifecycle.settle([outcome(attempt)], read_back=True)
        assert len(settled.dropped) == 1

    def test_an_atomic_task_whose_commit_went_through(self):
        attempt = claimed()
        with lifecycle.atomically(attempt) as complete:
            complete("done")
        uncertain = outcome(attempt, Ending.ERRORED, may_be_completed=True)
        ((_, status),) = lifecycle.settle([uncertain]).written
        job = row(attempt)
        assert (status, job.status, job.return_value) == ("completed", "completed", "done")
        assert events(attempt) == []

    def test_an_atomic_task_whose_commit_did_not(self):
        attempt = claimed()
        uncertain = outcome(attempt, Ending.ERRORED, may_be_completed=True)
        ((_, status),) = lifecycle.settle([uncertain]).written
        assert (status, events(attempt)) == ("scheduled", ["errored"])


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
class TestLockedRows:
    def test_they_come_back_and_the_others_are_written(self):
        for ending in Ending:
            mine, other = claimed(), claimed()
            before = picture(mine)
            with held(row(mine)):
                settled = lifecycle.settle([outcome(mine, ending), outcome(other, ending)])
                assert [each.attempt for each in settled.locked] == [mine]
                assert [each.attempt for each, _ in settled.written] == [other]
                assert (picture(mine), events(mine)) == (before, [])
                again = lifecycle.settle([outcome(mine, ending)], read_back=True)
                assert [each.attempt for each in again.locked] == [mine]
            assert len(lifecycle.settle(settled.locked).written) == 1
            Job.objects.all().delete()

    def test_alone_it_waits_until_the_row_is_free(self):
        attempt = claimed()
        with held(row(attempt)) as release:
            thread, answer = in_thread(lambda: lifecycle.settle([outcome(attempt)], wait=True))
            until_somebody_waits_for_a_lock()
            assert answer == []
            release()
            thread.join(20)
        assert [status for _, status in answer[0].written] == ["completed"]

    def test_a_cancellation_that_comes_first_wins(self):
        """It is written while the outcome waits for the row; the fence is looked at after it."""
        attempt = claimed()
        with transaction.atomic():
            lifecycle.cancel(attempt.id)
            thread, answer = in_thread(lambda: lifecycle.settle([outcome(attempt)], wait=True))
            until_somebody_waits_for_a_lock()
        thread.join(20)
        assert len(answer[0].dropped) == 1
        assert row(attempt).status == Status.CANCELLED

    def test_a_row_that_a_foreign_key_holds_is_not_locked(self):
        attempt = claimed()
        with transaction.atomic():
            point_at(attempt)
            (settled,) = together(lambda: lifecycle.settle([outcome(attempt)]))
        assert [status for _, status in settled.written] == ["completed"]


@pytest.mark.django_db(transaction=True)
def test_outcomes_and_recoveries_at_once_leave_one_ending_each():
    attempts = [claimed() for _ in range(30)]
    expire(*attempts)

    def settle() -> list[Any]:
        left, written = [outcome(attempt) for attempt in attempts], []
        while left:
            settled = lifecycle.settle(left)
            written += [each.attempt.id for each, _ in settled.written]
            left = settled.locked
        return written

    def recover() -> list[uuid.UUID]:
        return lifecycle.recover([attempt.id for attempt in attempts])

    written, one, two = together(settle, recover, recover)
    assert sorted(written + one + two) == sorted(attempt.id for attempt in attempts)
    for attempt in attempts:
        job = row(attempt)
        if attempt.id in written:
            assert (job.status, events(attempt)) == ("completed", [])
        else:
            assert (job.status, events(attempt)) == ("scheduled", ["lost", "fenced"])
