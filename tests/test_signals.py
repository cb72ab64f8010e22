"""django.tasks' signals: who hears what, when, and what becomes of a receiver that fails."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

import jobqueue
from jobqueue import lifecycle, signals
from jobqueue.attempts import Ending, Outcome
from jobqueue.backend import JobQueueBackend
from jobqueue.compat import (
    TASKS_MODULE,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from jobqueue.models import Job
from jobqueue.testing import run_jobs
from tests import tasks_sample as sample
from tests.app.models import Effect

pytestmark = pytest.mark.django_db


@contextlib.contextmanager
def listening(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver)


TASKS_LOGGER = import_module(f"{TASKS_MODULE}.signals").logger.name

NAMES = {
    id(task_enqueued): "enqueued",
    id(task_started): "started",
    id(task_finished): "finished",
}


class Ears:
    """Hears all three signals, and what goes on meanwhile."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        self.errors: list[BaseException | None] = []
        self.senders: set[Any] = set()

    def __call__(self, signal: Signal, sender: Any, task_result: Any, **kwargs: Any) -> None:
        name = NAMES[id(signal)]
        self.heard.append((name, task_result.id, task_result.status))
        self.errors.append(sys.exc_info()[1])
        self.senders.add(sender)

    def of(self, result: Any) -> list[tuple[str, str]]:
        return [(name, status) for name, job_id, status in self.heard if job_id == result.id]


@pytest.fixture
def ears() -> Iterator[Ears]:
    heard = Ears()
    with contextlib.ExitStack() as stack:
        for signal in (task_enqueued, task_started, task_finished):
            stack.enter_context(listening(signal, heard))
        yield heard


@pytest.fixture
def _announcing() -> Iterator[None]:
    """The lifecycle tells the signals, as it does once the app is ready."""
    before = lifecycle.listen(None)
    signals.connect()
    yield
    lifecycle.listen(before)


def test_the_life_of_a_job(ears: Ears) -> None:
    result = sample.add.enqueue(1)
    run_jobs()
    assert ears.of(result) == [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
    ]
    assert ears.senders == {JobQueueBackend}
    assert ears.errors == [None, None, None]


def test_a_failure_comes_with_its_exception(ears: Ears) -> None:
    result = sample.fail_for_good.enqueue()
    run_jobs()
    assert ears.of(result)[-1] == ("finished", "FAILED")
    error = ears.errors[-1]
    assert isinstance(error, jobqueue.PermanentError)
    names = []
    frames = error.__traceback__
    while frames:
        names.append(frames.tb_frame.f_code.co_name)
        frames = frames.tb_next
    assert names[-1] == "fail_for_good"
    assert "_send_finished" not in names
    assert sys.exc_info() == (None, None, None)


def test_an_attempt_that_is_not_the_last_is_not_the_end(ears: Ears) -> None:
    result = sample.fail.enqueue()
    run_jobs()
    assert ears.of(result) == [("enqueued", "READY"), ("started", "RUNNING")]


def test_an_idempotency_loser_is_not_heard(ears: Ears) -> None:
    keyed = sample.noop.using(idempotency_key="k")
    first = keyed.enqueue()
    keyed.enqueue()
    assert ears.heard == [("enqueued", first.id, "READY")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_announcing")
def test_a_cancellation_is_told_after_the_commit(ears: Ears) -> None:
    result, undone = sample.noop.enqueue(), sample.noop.enqueue()
    ears.heard.clear()
    ears.errors.clear()
    with transaction.atomic():
        jobqueue.cancel(result.id, actor="Ada", reason="no")
        assert ears.heard == []
    assert ears.heard == [("finished", result.id, "FAILED")]
    assert isinstance(ears.errors[0], jobqueue.Cancelled)
    assert str(ears.errors[0]) == "The job was cancelled by Ada: no"
    with transaction.atomic():
        jobqueue.cancel(undone.id)
        transaction.set_rollback(True)
    assert len(ears.heard) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_announcing")
def test_a_worker_that_was_lost_is_told(ears: Ears) -> None:
    result = sample.noop.using(max_attempts=1).enqueue()
    owner = UUID(int=1)
    lifecycle.claim("default", owner, "w", 1)
    lifecycle.lose(owner, "it died")
    assert ears.of(result)[-1] == ("finished", "FAILED")
    assert isinstance(ears.errors[-1], jobqueue.WorkerLost)


def test_many_ends_are_read_together(ears: Ears, django_assert_num_queries: Any) -> None:
    results = [sample.noop.enqueue(n) for n in range(5)]
    attempts = lifecycle.claim("default", UUID(int=1), "w", 9)
    lifecycle.settle([Outcome(each, Ending.COMPLETED, return_value=1) for each in attempts])
    ears.heard.clear()
    ids = [UUID(result.id) for result in reversed(results)]
    with django_assert_num_queries(1):
        signals.finished(ids)
    assert [job_id for _, job_id, _ in ears.heard] == [str(each) for each in ids]


def test_an_end_that_is_none_any_more_is_not_told(ears: Ears) -> None:
    result = sample.noop.enqueue()
    signals.finished([UUID(result.id), UUID(int=5)])
    assert ears.of(result) == [("enqueued", "READY")]


def failing(**kwargs: Any) -> None:
    raise LookupError("the receiver's own")


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (task_enqueued, "task_enqueued"),
        (task_started, "task_started"),
        (task_finished, "task_finished"),
    ],
)
@pytest.mark.parametrize(
    "receiver", [failing, functools.partial(failing)], ids=["named", "partial"]
)
def test_a_failing_receiver_changes_nothing(
    signal: Signal, name: str, receiver: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with listening(signal, receiver):
        result = sample.add.enqueue(1)
        run_jobs()
    result.refresh()
    assert result.return_value == 2
    (record,) = [each for each in caplog.records if each.name == "jobqueue" and each.exc_info]
    assert name in record.getMessage()
    assert result.id in record.getMessage()
    if receiver is failing:
        assert "Receiver failing of" in record.getMessage()


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "in autocommit"])
@pytest.mark.django_db(transaction=True)
def test_a_receivers_database_error_does_not_break_the_callers_transaction(
    inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def receiver(**kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")

    with (
        listening(task_enqueued, receiver),
        transaction.atomic() if inside else contextlib.nullcontext(),
    ):
        result = sample.add.enqueue(1)
        Effect.objects.create(key="of the caller")
    assert Job.objects.filter(pk=result.id).exists()
    assert Effect.objects.filter(key="of the caller").exists()
    assert any("task_enqueued" in each for each in caplog.messages)


def test_what_a_receiver_writes_is_kept() -> None:
    def receiver(task_result: Any, **kwargs: Any) -> None:
        Effect.objects.create(key=task_result.id)

    with listening(task_enqueued, receiver):
        result = sample.noop.enqueue()
    assert Effect.objects.filter(key=result.id).exists()


def test_an_async_receiver_hears(ears: Ears) -> None:
    heard = []

    async def receiver(task_result: Any, **kwargs: Any) -> None:
        heard.append(task_result.status)

    with listening(task_finished, receiver):
        sample.noop.enqueue()
        run_jobs()
    assert heard == [TaskResultStatus.SUCCESSFUL]


def test_nobody_listens(caplog: pytest.LogCaptureFixture, django_assert_num_queries: Any) -> None:
    logger = TASKS_MODULE
    result = sample.noop.enqueue()
    run_jobs()
    with caplog.at_level(logging.CRITICAL, logger):
        assert not signals.started_wanted()
        assert not signals.finished_wanted("completed")
        assert not signals.finished_wanted("failed")
        with django_assert_num_queries(0):
            signals.finished([UUID(result.id)])
    with caplog.at_level(logging.WARNING, logger):
        assert not signals.finished_wanted("completed")
        assert signals.finished_wanted("failed")
        assert signals.finished_wanted("cancelled")
    with caplog.at_level(logging.INFO, logger):
        assert signals.started_wanted()
        assert signals.finished_wanted("completed")
        assert not signals.wanted(task_enqueued, logging.DEBUG)


def test_someone_listens(caplog: pytest.LogCaptureFixture, ears: Ears) -> None:
    with caplog.at_level(logging.CRITICAL, TASKS_MODULE):
        assert signals.started_wanted()
        assert signals.finished_wanted("completed")
        assert signals.wanted(task_enqueued, logging.DEBUG)


def test_djangos_logger_is_served(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, TASKS_LOGGER):
        result = sample.fail_for_good.enqueue()
        run_jobs()
    ours = [
        each
        for each in caplog.records
        if each.name == TASKS_LOGGER and result.id in each.getMessage()
    ]
    assert [each.levelname for each in ours] == ["DEBUG", "INFO", "ERROR"]
    assert ours[-1].exc_info is not None
    assert ours[-1].exc_info[0] is jobqueue.PermanentError


def test_djangos_lines_of_what_completed_need_nothing_large(
    caplog: pytest.LogCaptureFixture, django_assert_num_queries: Any
) -> None:
    jobs = [sample.add.enqueue(number) for number in range(3)]
    run_jobs()
    lost = UUID(int=0)
    caplog.clear()
    with caplog.at_level(logging.INFO, TASKS_LOGGER), django_assert_num_queries(2) as captured:
        signals.finished([UUID(jobs[1].id), lost, UUID(jobs[0].id)])
    read = [each["sql"] for each in captured.captured_queries]
    assert not any("return_value" in each for each in read[:1]), read
    said = [each.getMessage() for each in caplog.records if each.name == TASKS_LOGGER]
    assert [sample.add.module_path in each and "SUCCESSFUL" in each for each in said] == [True] * 2
    assert jobs[1].id in said[0]
    assert jobs[0].id in said[1]


def site_logger(*handlers: logging.Handler, level: int = logging.INFO) -> logging.Logger:
    """A logger as Django's own configuration makes it, above the one for tasks."""
    above = logging.Logger("django", level)
    for handler in handlers:
        above.addHandler(handler)
    log = logging.Logger("django.tasks")
    log.parent = above
    return log


def handler(level: int = logging.NOTSET, *filters: logging.Filter) -> logging.Handler:
    made = logging.StreamHandler()
    made.setLevel(level)
    for each in filters:
        made.addFilter(each)
    return made


class Passing(logging.Filter):
    """A site's own, of which nothing is known."""


@pytest.mark.parametrize("debug", [False, True], ids=["in production", "with DEBUG"])
@pytest.mark.parametrize(
    ("log", "heard"),
    [
        # Django's own console and mail.
        (
            [
                handler(logging.INFO, RequireDebugTrue()),
                handler(logging.ERROR, RequireDebugFalse()),
            ],
            {(False, "failed"), (True, "completed"), (True, "failed")},
        ),
        (
            [handler(logging.INFO, RequireDebugTrue())],
            {(True, "completed"), (True, "failed")},
        ),
        ([handler(logging.WARNING)], {(False, "failed"), (True, "failed")}),
        (
            [handler(logging.NOTSET, Passing())],
            {(each, name) for each in (False, True) for name in ("completed", "failed")},
        ),
        # Nobody handles it: what is serious goes to stderr.
        ([], {(False, "failed"), (True, "failed")}),
    ],
    ids=["Django's own", "Django's console", "warnings", "a filter of the site", "no handler"],
)
def test_a_line_that_no_handler_lets_through_is_not_made(
    log: list[logging.Handler],
    heard: set[tuple[bool, str]],
    debug: bool,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DEBUG = debug
    monkeypatch.setattr(f"{TASKS_MODULE}.signals.logger", site_logger(*log))
    for name in ("completed", "failed"):
        assert signals.finished_wanted(name) is ((debug, name) in heard)
    assert signals.started_wanted() is ((debug, "completed") in heard)


def test_a_monitor_in_front_of_all_handlers_hears_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{TASKS_MODULE}.signals.logger", site_logger())
    assert not signals.started_wanted()
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda self, record: None)
    assert signals.started_wanted()


def test_without_an_alias_the_sender_is_the_backend(settings: Any, ears: Ears) -> None:
    result = sample.noop.enqueue()
    settings.TASKS = {"default": {"BACKEND": f"{TASKS_MODULE}.backends.immediate.ImmediateBackend"}}
    ears.senders.clear()
    run_jobs()
    assert ears.of(result)[-1] == ("finished", "SUCCESSFUL")
    assert ears.senders == {JobQueueBackend}
