"""Retention: what is old enough goes, in batches, and never what somebody holds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import connection, models

from jobqueue import ids as job_ids
from jobqueue import lifecycle
from jobqueue.models import FINAL, Job, JobLog
from tests.app.models import Note
from tests.factories import JobFactory, JobLogFactory, ago
from tests.lifecycle.acts import held, ids, local_time_too, together

DAY = 86_400.0


def old(days: float, **values: object) -> Job:
    """A job that ended so many days ago, and was enqueued a day before that."""
    ended = ago(days * DAY)
    enqueued = ended - timedelta(days=1)
    values = values or {"completed": True}
    first = job_ids.first_at(enqueued.timestamp()).int
    return JobFactory(
        id=uuid.UUID(int=first | uuid.uuid4().int & 0xFFFF_FFFF),
        finished_at=ended,
        enqueued_at=enqueued,
        **values,
    )


def keep(settings, **retention: float | None) -> None:
    settings.TASKS = {
        "default": {
            "BACKEND": "jobqueue.backend.JobQueueBackend",
            "OPTIONS": {"retention": retention},
        }
    }


def left() -> list[uuid.UUID]:
    return ids(Job.objects.order_by("pk").only("pk"))


@pytest.mark.django_db
class TestRetention:
    @local_time_too
    def test_each_final_status_has_its_own(self):
        expected = {"completed": 7, "cancelled": 30, "failed": 90}
        assert set(expected) == FINAL
        kept, gone = [], []
        for status, days in expected.items():
            kept.append(old(days - 0.01, **{status: True}))
            gone.append(old(days + 0.01, **{status: True}))
        pruned = lifecycle.prune()
        assert set(left()) == set(ids(kept))
        assert pruned.removed == {"completed": 1, "cancelled": 1, "failed": 1}
        assert (pruned.total, pruned.held, pruned.after) == (3, [], None)

    def test_the_setting_is_read(self, settings):
        keep(settings, completed=60)
        fresh, gone = JobFactory(completed=True), old(0.1)
        lifecycle.prune()
        assert left() == [fresh.pk]
        assert gone.pk not in left()

    def test_none_keeps_for_ever(self, settings):
        keep(settings, completed=None)
        kept, gone = old(1000), old(1000, failed=True)
        assert lifecycle.prune().removed == {"failed": 1}
        assert left() == [kept.pk]
        keep(settings, completed=None, failed=None, cancelled=None)
        assert lifecycle.prune() == lifecycle.Pruned()
        assert gone.pk not in left()

    def test_nothing_that_may_still_run(self):
        for state in ("scheduled", "queued", "processing"):
            JobFactory(**{state: True}, enqueued_at=ago(1000 * DAY))
        assert lifecycle.prune().total == 0

    def test_never_one_with_an_owner(self):
        job = old(1000, stopping=True)
        assert lifecycle.prune().total == 0
        assert left() == [job.pk]

    def test_its_log_goes_with_it(self):
        gone, kept = old(8), JobFactory(completed=True)
        JobLogFactory.create_batch(2, job=gone)
        line = JobLogFactory(job=kept)
        lifecycle.prune()
        assert list(JobLog.objects.all()) == [line]

    def test_a_job_that_waited_for_long_counts_from_its_end(self):
        enqueued = ago(100 * DAY)
        job = JobFactory(
            id=job_ids.first_at(enqueued.timestamp()), completed=True, enqueued_at=enqueued
        )
        assert lifecycle.prune().total == 0
        assert left() == [job.pk]


@pytest.mark.django_db
class TestBatches:
    def test_it_goes_on_where_it_ended(self):
        jobs = sorted(ids([old(8 + number) for number in range(5)]))
        first = lifecycle.prune(limit=2)
        assert (first.total, first.after) == (2, jobs[1])
        second = lifecycle.prune(limit=2, after=first.after)
        assert (second.total, second.after) == (2, jobs[3])
        third = lifecycle.prune(limit=2, after=second.after)
        assert (third.total, third.after) == (1, None)
        assert left() == []

    def test_rows_that_are_held_do_not_stop_it(self):
        jobs = sorted([old(8 + number) for number in range(4)], key=lambda job: job.pk)
        for job in jobs[:2]:
            Note.objects.create(job=job, text="")
        first = lifecycle.prune(limit=2)
        assert (first.total, first.held, first.after) == (0, ids(jobs[:2]), jobs[1].pk)
        assert lifecycle.prune(limit=2, after=first.after).total == 2
        assert left() == ids(jobs[:2])

    def test_a_protected_row_among_many_is_left_alone(self):
        jobs = sorted([old(8 + number) for number in range(9)], key=lambda job: job.pk)
        Note.objects.create(job=jobs[4], text="")
        JobLogFactory(job=jobs[4])
        pruned = lifecycle.prune()
        assert (pruned.removed, pruned.held) == ({"completed": 8}, [jobs[4].pk])
        assert left() == [jobs[4].pk]
        assert JobLog.objects.count() == 1


class Pointing:
    """A model of somebody else's with a foreign key, and its table."""

    def __init__(self, on_delete: object) -> None:
        meta = type("Meta", (), {"app_label": "tests_app"})
        key = models.ForeignKey(Job, on_delete=on_delete, related_name="+", null=True)
        body = {"__module__": __name__, "Meta": meta, "job": key}
        self.model = type("Pointing", (models.Model,), body)
        with connection.schema_editor() as editor:
            editor.create_model(self.model)

    def drop(self) -> None:
        with connection.schema_editor() as editor:
            editor.delete_model(self.model)
        del apps.all_models["tests_app"]["pointing"]
        apps.clear_cache()


@pytest.fixture
def pointing(request, transactional_db) -> Iterator[type[models.Model]]:
    made = Pointing(request.param)
    yield made.model
    made.drop()


@pytest.mark.parametrize("pointing", [models.DO_NOTHING, models.RESTRICT], indirect=True)
def test_a_row_that_the_database_would_not_give_away_is_left(pointing):
    jobs = sorted([old(8 + number) for number in range(5)], key=lambda job: job.pk)
    pointing.objects.create(job=jobs[3])
    pointing.objects.create(job=None)
    pruned = lifecycle.prune()
    assert (pruned.removed, pruned.held) == ({"completed": 4}, [jobs[3].pk])
    assert left() == [jobs[3].pk]


@pytest.mark.parametrize("pointing", [models.CASCADE, models.SET_NULL], indirect=True)
def test_what_goes_with_it_or_lets_it_go_does(pointing):
    jobs = [old(8 + number) for number in range(3)]
    pointing.objects.create(job=jobs[1])
    assert lifecycle.prune().removed == {"completed": 3}
    assert list(pointing.objects.exclude(job=None)) == []


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_no_job_is_counted_twice(self):
        for number in range(40):
            old(8 + number)
        answers = together(*[lifecycle.prune] * 3)
        assert sum(each.total for each in answers) == 40
        assert left() == []

    @pytest.mark.postgres
    def test_a_locked_row_is_left_for_the_next_time(self):
        one, two = old(9), old(8)
        with held(one):
            assert lifecycle.prune().total == 1
            assert left() == [one.pk]
        assert lifecycle.prune().total == 1
        assert two.pk not in left()
