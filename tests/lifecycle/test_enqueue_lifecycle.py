"""Acceptance: in the caller's transaction, once for each key, all or none."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import IntegrityError, connection, transaction

from jobqueue import lifecycle
from jobqueue.lifecycle import NewJob
from jobqueue.models import Job, Status
from jobqueue.postgres.inserting import COPY_FROM
from tests.factories import JobFactory, ago, now
from tests.lifecycle.acts import (
    PATIENCE,
    WORKER,
    answer_of,
    claimed,
    in_thread,
    is_close,
    local_time_too,
    new_job,
    outcome,
    row,
    together,
    until_somebody_waits_for_a_lock,
)

EXACT = [6.022e23, 1e16, -0.0, 9007199254740993, 0.1, 1, 1.0, True, None, "ä\u2028'\"\\", [], {}]


def keyed(key: str = "k", **values: object) -> NewJob:
    return new_job(idempotency_key=key, **values)


class Undo(Exception):
    pass


@pytest.mark.django_db
class TestEnqueue:
    @local_time_too
    def test_what_is_stored_is_what_was_given(self):
        given = new_job(
            args=EXACT,
            kwargs={"a": EXACT, "%s": "%(a)s"},
            queue_name="q",
            priority=-100,
            max_attempts=3,
            timeout=0.5,
            idempotency_key="k",
        )
        (accepted,) = lifecycle.enqueue([given])
        job = Job.objects.get()
        assert (job.pk, job.enqueued_at) == (accepted.id, accepted.enqueued_at)
        assert (accepted.created, accepted.winner, accepted.status) == (True, None, "queued")
        for name in ("id", "task_path", "args", "kwargs", "queue_name", "priority", "timeout"):
            assert getattr(job, name) == getattr(given, name), name
        assert repr(job.args) == repr(EXACT)
        assert (job.max_attempts, job.idempotency_key) == (3, "k")
        assert (job.attempt, job.given_back, job.worker, job.error) == (0, 0, "", "")
        assert (job.return_value, job.progress, job.lease_owner, job.finished_at) == (None,) * 4
        assert is_close(job.enqueued_at, now())
        assert job.run_after == job.enqueued_at

    @local_time_too
    def test_later_means_scheduled_and_past_means_now(self):
        future = ago(-3600)
        later, past = lifecycle.enqueue([new_job(run_after=future), new_job(run_after=ago(3600))])
        assert (row(later).status, row(later).run_after) == ("scheduled", future)
        assert row(past).status == Status.QUEUED
        assert row(past).run_after == row(past).enqueued_at

    @local_time_too
    def test_many_and_of_many_kinds(self):
        new = [
            new_job(timeout=None),
            new_job(timeout=60),
            new_job(timeout=1.5, run_after=ago(-60)),
            new_job(priority=5, idempotency_key="a"),
            new_job(idempotency_key="b", args=["\\", '"', "{}", "NULL", None]),
            new_job(task_path="tests.other"),
        ]
        accepted = lifecycle.enqueue(new)
        assert [each.id for each in accepted] == [each.id for each in new]
        assert [row(each).timeout for each in new] == [None, 60.0, 1.5, 60.0, 60.0, 60.0]
        assert row(new[4]).args == ["\\", '"', "{}", "NULL", None]
        assert row(new[2]).status == Status.SCHEDULED

    def test_more_than_a_statement_takes(self, monkeypatch):
        monkeypatch.setattr("jobqueue.postgres.inserting.BATCH", 4)
        new = [keyed(f"{number % 7}") for number in range(10)]
        accepted = lifecycle.enqueue(new)
        assert [each.created for each in accepted] == [True] * 7 + [False] * 3
        assert [each.id for each in accepted[7:]] == [each.id for each in accepted[:3]]
        assert Job.objects.count() == 7

    @local_time_too
    def test_so_many_that_they_are_copied(self):
        """In COPY's text format tabs, line ends and backslashes would mean something else."""
        odd = "a\tb\nc\rd\\e\\.f\\N"
        new = [
            new_job(
                task_path=odd,
                queue_name=odd,
                args=[number, odd, "é🐟", 1e16, -0.0, None],
                kwargs={odd: "\\N", "empty": {}},
                timeout=None if number % 2 else 1.5,
                priority=number - 100,
            )
            for number in range(COPY_FROM + 5)
        ]
        accepted = lifecycle.enqueue(new)
        assert [each.id for each in accepted] == [each.id for each in new]
        for job, told in zip(new, accepted, strict=True):
            made = row(job)
            assert (made.task_path, made.queue_name) == (odd, odd)
            assert (repr(made.args), made.kwargs) == (repr(job.args), job.kwargs)
            assert (made.timeout, made.priority) == (job.timeout, job.priority)
            assert (made.status, made.attempt, made.given_back) == ("queued", 0, 0)
            assert (made.worker, made.error, made.idempotency_key) == ("", "", None)
            assert made.enqueued_at == made.run_after == told.enqueued_at
            assert is_close(made.enqueued_at, now())

    def test_of_many_all_or_none(self):
        new = [new_job() for _ in range(COPY_FROM)]
        with pytest.raises(IntegrityError), transaction.atomic():
            lifecycle.enqueue([*new, new_job(priority=101)])
        assert not Job.objects.exists()

    def test_nothing(self):
        assert lifecycle.enqueue([]) == []

    def test_all_or_none(self):
        with pytest.raises(IntegrityError), transaction.atomic():
            lifecycle.enqueue([new_job(), new_job(priority=101)])
        assert not Job.objects.exists()

    @pytest.mark.parametrize("wrong", [{"priority": 101}, {"max_attempts": 0}])
    def test_what_breaks_a_constraint_is_refused_with_a_key_too(self, wrong):
        """SQLite's INSERT OR IGNORE would pass over it without a word."""
        with pytest.raises(IntegrityError), transaction.atomic():
            lifecycle.enqueue([keyed(**wrong)])
        assert not Job.objects.exists()


@pytest.mark.django_db
class TestKeys:
    def test_the_second_gets_the_first_ones_job(self):
        (first,) = lifecycle.enqueue([keyed(args=[1])])
        (second,) = lifecycle.enqueue([keyed(args=[1])])
        assert (first.created, second.created) == (True, False)
        assert (second.id, second.enqueued_at) == (first.id, first.enqueued_at)
        assert second.winner == row(first)

    def test_twice_in_one_call(self):
        one, two, three = lifecycle.enqueue([keyed(), keyed(), keyed("other")])
        assert [one.created, two.created, three.created].count(True) == 2
        assert one.id == two.id != three.id

    def test_a_key_belongs_to_a_task(self):
        lifecycle.enqueue([keyed(), keyed(task_path="tests.other")])
        assert Job.objects.count() == 2

    def test_an_ended_job_keeps_its_key_until_it_is_removed(self):
        (first,) = lifecycle.enqueue([keyed()])
        (attempt,) = lifecycle.claim("default", uuid.uuid4(), WORKER, 1)
        lifecycle.settle([outcome(attempt, return_value=1)])
        (second,) = lifecycle.enqueue([keyed()])
        assert (second.created, second.status) == (False, "completed")
        row(first).delete()
        (third,) = lifecycle.enqueue([keyed()])
        assert third.created

    def test_other_arguments_are_an_error_that_keeps_nothing(self):
        (first,) = lifecycle.enqueue([keyed(args=[1])])
        with pytest.raises(ValueError, match=f"'k' .* belongs to job {first.id}"):
            lifecycle.enqueue([new_job(), keyed(args=[2])])
        assert Job.objects.count() == 1

    def test_the_callers_transaction_is_unharmed(self):
        lifecycle.enqueue([keyed(args=[1])])
        with transaction.atomic():
            lifecycle.enqueue([keyed(args=[1])])
            with pytest.raises(ValueError, match="other arguments"):
                lifecycle.enqueue([keyed(args=[2])])
            JobFactory()
        assert Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    def visible(self) -> int:
        (count,) = together(Job.objects.count)
        return count

    def test_a_rolled_back_one_never_was(self):
        for new in ([new_job()], [keyed()], [new_job(), new_job()]):
            with pytest.raises(Undo), transaction.atomic():
                lifecycle.enqueue(new)
                raise Undo
            assert self.visible() == 0

    def test_nor_one_in_a_savepoint(self):
        with transaction.atomic():
            lifecycle.enqueue([new_job(queue_name="kept")])
            with pytest.raises(Undo), transaction.atomic():
                lifecycle.enqueue([new_job(), keyed()])
                raise Undo
        assert list(Job.objects.values_list("queue_name", flat=True)) == ["kept"]

    def test_it_is_there_from_the_commit_on(self):
        with transaction.atomic():
            lifecycle.enqueue([new_job()])
            if connection.vendor == "postgresql":
                (got,) = together(lambda: lifecycle.claim("default", uuid.uuid4(), WORKER, 1))
                assert got == []
        assert self.visible() == 1

    def test_in_autocommit_it_is_there_at_once(self):
        lifecycle.enqueue([new_job()])
        assert self.visible() == 1

    def test_a_key_whose_transaction_was_rolled_back_is_free(self):
        with pytest.raises(Undo), transaction.atomic():
            lifecycle.enqueue([keyed()])
            raise Undo
        assert lifecycle.enqueue([keyed()])[0].created


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_eight_with_one_key(self):
        for number in range(5):
            answers = together(*[lambda n=number: lifecycle.enqueue([keyed(f"{n}")])[0]] * 8)
            assert len({each.id for each in answers}) == 1
            assert [each.created for each in answers].count(True) == 1
        assert Job.objects.count() == 5

    def test_many_with_the_same_keys_in_other_orders_do_not_wait_for_each_other(self):
        keys = [f"{number}" for number in range(40)]
        orders = (keys, keys[::-1], keys[20:] + keys[:20], keys[::2] + keys[1::2])
        answers = together(
            *[
                lambda order=order: lifecycle.enqueue([keyed(key) for key in order])
                for order in orders
            ]
        )
        assert Job.objects.count() == 40
        assert sum(each.created for answer in answers for each in answer) == 40

    @pytest.mark.postgres
    @pytest.mark.parametrize("commits", [True, False])
    def test_the_loser_waits_until_the_other_transaction_has_ended(self, commits):
        loser = None
        try:
            with transaction.atomic():
                (first,) = lifecycle.enqueue([keyed()])
                loser = in_thread(lambda: lifecycle.enqueue([keyed()])[0])
                until_somebody_waits_for_a_lock()
                if not commits:
                    raise Undo
        except Undo:
            pass
        second = answer_of(*loser)
        assert (second.created, second.id == first.id) == (not commits, commits)
        assert Job.objects.count() == 1

    @pytest.mark.postgres
    def test_the_winner_is_removed_before_it_is_read(self):
        """Found by the constraint and pruned before the second statement: inserted again."""
        winner = JobFactory(completed=True, idempotency_key="k")
        removed = threading.Event()

        def remove_first(execute, sql, params, many, context):
            if sql.startswith("SELECT") and "idempotency_key" in sql and not removed.is_set():
                removed.set()
                together(Job.objects.filter(pk=winner.pk).delete)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(remove_first):
            (accepted,) = lifecycle.enqueue([keyed()])
        assert removed.wait(PATIENCE)
        assert accepted.created
        assert row(accepted).idempotency_key == "k"

    def test_enqueue_and_prune_at_once(self, settings):
        options = {"retention": {"completed": 0}}
        settings.TASKS = {
            "default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
        }
        for number in range(5):
            attempt = claimed(idempotency_key=f"{number}")
            lifecycle.settle([outcome(attempt)])
            _, accepted = together(
                lambda: lifecycle.prune(), lambda n=number: lifecycle.enqueue([keyed(f"{n}")])[0]
            )
            assert accepted.created is (accepted.id != attempt.id)
            Job.objects.all().delete()
