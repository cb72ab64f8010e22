"""What the backend says that it can do, its options and checks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from django.db import connection

from jobqueue import JobResult, Task, enqueue_many
from jobqueue.backend import JobQueueBackend
from jobqueue.compat import task_backends, task_enqueued
from tests import tasks_sample as sample
from tests.backend.acts import with_options

pytestmark = pytest.mark.django_db


def test_what_the_backend_can_do() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, JobQueueBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert backend.task_class is Task


@pytest.mark.parametrize("options", [None, 7, {"nonsense": object()}, {"lease": "x"}])
def test_wrong_options_do_not_stop_the_constructor(options: Any) -> None:
    assert JobQueueBackend("default", {"OPTIONS": options}).alias == "default"


def test_an_alias_without_queues_takes_the_default_one() -> None:
    assert JobQueueBackend("default", {}).queues == {"default"}


def test_the_check_finds_nothing_wrong() -> None:
    assert task_backends["default"].check() == []


def test_the_check_tells_that_the_app_is_missing(settings: Any) -> None:
    from django.test.utils import modify_settings

    with modify_settings(INSTALLED_APPS={"remove": ["jobqueue", "tests.app"]}):
        (found,) = task_backends["default"].check()
    assert found.id == "jobqueue.E013"
    assert 'Add "jobqueue" to INSTALLED_APPS' in found.hint


@pytest.fixture
def _queue_elsewhere(settings: Any) -> None:
    settings.TASKS = with_options(settings, database="elsewhere")


@pytest.mark.usefixtures("_queue_elsewhere")
def test_the_check_tells_of_atomic_tasks_beside_the_queue() -> None:
    found = task_backends["default"].check()
    assert {each.id for each in found} == {"jobqueue.E014"}
    assert any("tests.tasks_sample.effect_atomically is atomic" in each.msg for each in found)


def test_the_signal_is_in_the_transaction() -> None:
    heard: list[tuple[str, bool, Any]] = []

    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((task_result.id, connection.in_atomic_block, sender))

    task_enqueued.connect(receiver)
    try:
        keyed = sample.noop.using(idempotency_key="k")
        first = keyed.enqueue()
        keyed.enqueue()
        many = enqueue_many([keyed.bind(), sample.noop.bind()])
    finally:
        task_enqueued.disconnect(receiver)
    assert heard == [(first.id, True, JobQueueBackend), (many[1].id, True, JobQueueBackend)]


def test_the_result_of_a_new_job_is_what_the_class_would_make(db: None) -> None:
    made = sample.noop.enqueue(1, name="a")
    names = [each.name for each in fields(made)]
    values = {name: getattr(made, name) for name in names if name != "_return_value"}
    usual = JobResult(**values)
    assert made == usual
    assert type(made) is type(usual)
    assert [getattr(made, name) for name in names] == [getattr(usual, name) for name in names]
    assert (made.created, made.errors, made.worker_ids) == (True, [], [])
