"""What a task may say, what `using` changes, how a path leads to a task, what a context does."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import pickle
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

import jobqueue
from jobqueue import Cancelled, JobContext, LeaseLost, Stopped, Task, TaskNotFound, TimedOut, task
from jobqueue.attempts import MAX_KEY, MAX_QUEUE_NAME, MAX_TASK_PATH, Attempt
from jobqueue.compat import TASKS_MODULE, InvalidTask, TaskContext, TaskResultStatus, task_backends
from jobqueue.compat import Task as AnyTask
from jobqueue.models import Job
from jobqueue.paths import checked_path, resolve
from jobqueue.results import JobResult
from jobqueue.task import (
    MAX_ATTEMPTS as MOST_ATTEMPTS,
)
from jobqueue.task import (
    NOT_GIVEN,
    BoundTask,
    NotGiven,
    atomic_tasks,
    find,
    policy,
)
from tests import tasks_sample as sample

IMMEDIATE = {"default": {"BACKEND": f"{TASKS_MODULE}.backends.immediate.ImmediateBackend"}}
DUMMY = {"default": {"BACKEND": f"{TASKS_MODULE}.backends.dummy.DummyBackend"}}


def work(context: Any = None) -> None:
    """A function to make tasks of."""


async def async_work() -> None:
    """An async one."""


MODULE_LEVEL_LAMBDA = lambda: None  # noqa: E731

# Declaration


def test_the_bare_decorator_makes_a_task() -> None:
    assert type(sample.noop) is Task
    assert isinstance(sample.noop, AnyTask)
    assert sample.noop.name == "noop"
    assert sample.noop.module_path == "tests.tasks_sample.noop"


def test_the_decorator_takes_djangos_options() -> None:
    assert (sample.add.queue_name, sample.add.priority) == ("maths", 5)
    assert sample.describe.takes_context
    assert sample.add.backend == "default"


def test_djangos_decorator_makes_the_same_class() -> None:
    made = sys.modules[TASKS_MODULE].task(max_attempts=2)(work)
    assert type(made) is Task
    assert made.max_attempts == 2


@pytest.mark.parametrize("tasks", [IMMEDIATE, DUMMY])
def test_ours_makes_our_class_under_any_backend(settings: Any, tasks: dict[str, Any]) -> None:
    settings.TASKS = tasks
    assert type(task(work)) is Task
    assert type(sys.modules[TASKS_MODULE].task(work)) is not Task


def test_the_defaults_are_not_given() -> None:
    assert sample.noop.max_attempts is None
    assert sample.noop.timeout is NOT_GIVEN
    assert sample.noop.idempotency_key is None


def test_lists_become_tuples() -> None:
    made = task(retry_on=[ValueError, KeyError], give_up_on=[TypeError])(work)
    assert made.retry_on == (ValueError, KeyError)
    assert made.give_up_on == (TypeError,)
    assert hash(made)


def test_a_task_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        sample.noop.max_attempts = 3  # type: ignore[misc]


def test_run_after_is_not_for_declarations() -> None:
    with pytest.raises(TypeError):
        task(run_after=timezone.now())(work)  # type: ignore[call-overload]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_attempts": 0}, "max_attempts must be from 1"),
    ({"max_attempts": -1}, "max_attempts must be from 1"),
    ({"max_attempts": MOST_ATTEMPTS + 1}, "max_attempts must be from 1"),
    ({"max_attempts": 1.5}, "max_attempts must be a whole number"),
    ({"max_attempts": True}, "max_attempts must be a whole number"),
    ({"max_attempts": "3"}, "max_attempts must be a whole number"),
    ({"timeout": 0}, "timeout must be more than 0 seconds"),
    ({"timeout": -1}, "timeout must be from 0"),
    ({"timeout": float("nan")}, "timeout must be from 0"),
    ({"timeout": float("inf")}, "timeout must be from 0"),
    ({"timeout": timedelta(seconds=3)}, "timeout must be a number of seconds"),
    ({"timeout": True}, "timeout must be a number of seconds"),
    ({"backoff": 3}, "backoff must be a function"),
    ({"retry_on": ValueError}, "retry_on must be a tuple of exception classes"),
    ({"retry_on": [ValueError("instance")]}, "retry_on must be a tuple of exception classes"),
    ({"retry_on": [int]}, "retry_on must be a tuple of exception classes"),
    ({"give_up_on": "ValueError"}, "give_up_on must be a tuple of exception classes"),
    ({"give_up_on": None}, "give_up_on must be a tuple of exception classes"),
    ({"idempotency_key": ""}, "idempotency_key must have 1 to 255 characters; '' is empty"),
    ({"idempotency_key": "k" * (MAX_KEY + 1)}, "has 256 characters"),
    ({"idempotency_key": "a\0b"}, "idempotency_key .* has U\\+0000"),
    ({"idempotency_key": "a\ud800"}, "idempotency_key .* has a lone surrogate"),
    ({"idempotency_key": 7}, "idempotency_key must be a str, not int"),
    ({"queue_name": ""}, "queue_name must have 1 to 100 characters"),
    ({"queue_name": "q" * (MAX_QUEUE_NAME + 1)}, "has 101 characters"),
    ({"queue_name": "a\0b"}, "queue_name .* has U\\+0000"),
    ({"queue_name": "\udce9"}, "queue_name .* has a lone surrogate"),
    ({"queue_name": None}, "queue_name must be a str, not NoneType"),
    ({"priority": 101}, "priority must be a whole number"),
    ({"priority": 1.5}, "priority must be a whole number"),
    ({"run_after": timedelta(hours=1)}, "run_after must be a datetime, not timedelta: pass"),
    ({"run_after": date(2030, 1, 1)}, "run_after must be a datetime, not date: pass"),
    ({"run_after": 60}, "run_after must be a datetime, not int: pass"),
    ({"run_after": datetime(9999, 1, 1)}, "run_after must lie in the years 1970 to 9000, not 9999"),  # noqa: DTZ001
    ({"run_after": datetime(1969, 12, 31)}, "run_after must lie in the years"),  # noqa: DTZ001
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=lambda each: str(each)[:60])
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        Task(func=work, **options)


STORED = {
    "max_attempts",
    "timeout",
    "idempotency_key",
    "queue_name",
    "priority",
    "run_after",
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (options, words)
        for options, words in REFUSED
        if STORED.issuperset(options) and options != {"queue_name": None}
    ],
    ids=lambda each: str(each)[:60],
)
def test_using_refuses_the_same(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        sample.noop.using(**options)


def test_ours_is_checked_under_other_backends_too(settings: Any) -> None:
    settings.TASKS = IMMEDIATE
    with pytest.raises(InvalidTask, match="queue_name .* has U"):
        task(queue_name="a\0")(work)
    with pytest.raises(InvalidTask, match="max_attempts"):
        task(max_attempts=0)(work)


def test_an_atomic_task_is_sync() -> None:
    with pytest.raises(InvalidTask, match="atomic is for sync functions"):
        task(atomic=True)(async_work)


def test_atomic_tasks_are_known_to_the_check() -> None:
    assert "tests.tasks_sample.effect_atomically" in atomic_tasks
    assert "tests.tasks_sample.effect" not in atomic_tasks


def test_a_naive_run_after_is_refused_when_times_are_aware(settings: Any) -> None:
    settings.USE_TZ = True
    with pytest.raises(InvalidTask, match="run_after must be an aware datetime"):
        sample.noop.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_long_path_is_refused() -> None:
    def long_name() -> None: ...

    long_name.__module__, long_name.__qualname__ = "tests", "x" * (MAX_TASK_PATH - 5)
    with pytest.raises(InvalidTask, match="the task's path must have 1 to 400 characters"):
        task(long_name)


def nested() -> Callable[[], None]:
    def inside() -> None: ...

    return inside


@pytest.mark.parametrize(
    "function", [nested(), sample.not_a_function, print, sample.NotAFunction, sample.noop]
)
def test_only_module_level_functions(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTask, match="Task function must be defined at a module level"):
        task(function)


def test_a_lambda_has_no_path() -> None:
    nameless = task(MODULE_LEVEL_LAMBDA)
    with pytest.raises(InvalidTask, match="has no <lambda>"):
        checked_path(nameless)


def test_a_context_parameter_is_named_context() -> None:
    with pytest.raises(InvalidTask, match="context"):
        task(takes_context=True)(async_work)


# using, bind, policy


def test_using_changes_what_is_given_and_nothing_else() -> None:
    tomorrow = timezone.now() + timedelta(days=1)
    changed = sample.fail.using(
        priority=7, queue_name="other", run_after=tomorrow, max_attempts=9, timeout=1.5
    ).using(idempotency_key="key")
    assert (changed.priority, changed.queue_name, changed.run_after) == (7, "other", tomorrow)
    assert (changed.max_attempts, changed.timeout, changed.idempotency_key) == (9, 1.5, "key")
    assert changed.backoff is sample.fail.backoff
    assert type(changed) is Task
    assert (sample.fail.priority, sample.fail.max_attempts) == (0, 3)


def test_none_is_a_timeout_and_nothing_is_not() -> None:
    limited = sample.noop.using(timeout=5)
    assert limited.using().timeout == 5
    assert limited.using(timeout=None).timeout is None
    assert limited.using(max_attempts=None).max_attempts is None


def test_using_can_name_another_backend(settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "now": IMMEDIATE["default"]}
    assert sample.add.using(backend="now", queue_name="default", priority=0).backend == "now"


def test_a_bound_task_keeps_the_call() -> None:
    bound = sample.add.bind(1, b=2)
    assert bound == BoundTask(sample.add, (1,), {"b": 2})


def test_the_policy_of_a_task_that_says_nothing_is_the_settings(settings: Any) -> None:
    settings.TASKS = {
        "default": {**settings.TASKS["default"], "OPTIONS": {"max_attempts": 7, "timeout": 12}}
    }
    rules = policy(sample.noop)
    assert (rules.max_attempts, rules.timeout, rules.retry_on, rules.atomic) == (7, 12.0, (), False)
    assert policy(sample.noop.using(timeout=None, max_attempts=1)).timeout is None
    assert policy(sample.fail).max_attempts == 3
    assert policy(sample.fail).backoff is sample.fail.backoff


def test_a_task_of_another_class_has_the_defaults() -> None:
    foreign = AnyTask(func=work)
    assert policy(foreign) == policy(task(work))


# Copies


@pytest.mark.parametrize(
    "original",
    [sample.fail, sample.fail.using(timeout=None, idempotency_key="k"), sample.describe],
    ids=["with a lambda", "changed", "with context"],
)
def test_tasks_pickle_and_copy(original: Task[Any, Any]) -> None:
    assert pickle.loads(pickle.dumps(original)) == original
    assert copy.copy(original) == original
    assert copy.deepcopy([original]) == [original]


def test_not_given_pickles_to_itself() -> None:
    assert pickle.loads(pickle.dumps(NOT_GIVEN)) is NOT_GIVEN
    assert copy.deepcopy(NOT_GIVEN) is NotGiven.NOT_GIVEN


def test_a_task_that_is_gone_does_not_unpickle() -> None:
    stored = pickle.dumps(sample.noop).replace(
        b"tests.tasks_sample.noop", b"tests.tasks_sample.nope"
    )
    with pytest.raises(ValueError, match="Expected 'tests.tasks_sample.nope' to point to a Task"):
        pickle.loads(stored)


# Paths


def test_a_path_leads_to_its_task() -> None:
    assert resolve("tests.tasks_sample.noop") is sample.noop


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "'' is not the path"),
        ("noop", "'noop' is not the path"),
        ("os.system", "os.system is not a task, but builtin_function_or_method"),
        ("builtins.eval", "builtins.eval is not a task"),
        ("jobqueue.Task", "jobqueue.Task is not a task, but type"),
        ("tests.tasks_sample.not_a_task", "is not a task, but function"),
        ("tests.tasks_sample.another_name", "is another name of the task tests.tasks_sample.noop"),
        ("tests.tasks_sample.nothing", "The module tests.tasks_sample has no nothing"),
        ("tests.no_such_module.noop", "There is no module tests.no_such_module"),
        ("no_such_package.tasks.noop", "There is no module no_such_package "),
        ("tests.tasks_sample.NotAFunction.method", "cannot be imported|There is no module"),
        ("__main__.noop", "__main__.noop is in the script that was started"),
        ("..noop", "The module . cannot be imported"),
        ("a\0b.c", "no module|cannot be imported"),
        ("tests..noop", "no module|cannot be imported"),
    ],
)
def test_what_is_not_a_task_is_not_found(path: str, words: str) -> None:
    with pytest.raises(TaskNotFound, match=words):
        resolve(path)


@pytest.fixture
def module_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def (", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("raise KeyboardInterrupt", "cannot be imported: KeyboardInterrupt"),
        (
            "import boto_that_is_not_here",
            "cannot be imported: ModuleNotFoundError: No module named",
        ),
        ("from os import nothing_like_it", "cannot be imported: ImportError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_broken_module_is_named(module_folder: Path, source: str, words: str) -> None:
    name = f"broken_{uuid.uuid4().hex}"
    (module_folder / f"{name}.py").write_text(source)
    with pytest.raises(TaskNotFound, match=f"The module {name} {words}"):
        resolve(f"{name}.noop")


def test_a_module_that_arrives_later_is_found(module_folder: Path) -> None:
    name = f"late_{uuid.uuid4().hex}"
    with pytest.raises(TaskNotFound):
        resolve(f"{name}.noop")
    known = module_folder.stat().st_mtime_ns
    (module_folder / f"{name}.py").write_text(
        textwrap.dedent("""
            from jobqueue import task

            @task
            def noop(): ...
        """)
    )
    os.utime(module_folder, ns=(known, known))  # as where the clock is coarse
    assert resolve(f"{name}.noop").name == "noop"


def test_being_stopped_is_not_a_broken_module(module_folder: Path) -> None:
    name = f"slow_{uuid.uuid4().hex}"
    (module_folder / f"{name}.py").write_text("import jobqueue\nraise jobqueue.TimedOut")
    with pytest.raises(TimedOut):
        resolve(f"{name}.noop")


def test_a_task_that_is_gone_has_one_in_its_place() -> None:
    gone = find("tests.tasks_sample.renamed")
    assert isinstance(gone, AnyTask)
    assert gone.module_path == "tests.tasks_sample.renamed"
    assert gone.name == "renamed"
    with pytest.raises(TaskNotFound, match="has no renamed"):
        gone.call()
    with pytest.raises(InvalidTask):
        checked_path(gone)
    assert find("tests.tasks_sample.noop") is sample.noop


def test_a_path_must_lead_back_to_the_same_function() -> None:
    assert checked_path(sample.noop) == "tests.tasks_sample.noop"
    with pytest.raises(InvalidTask, match="A worker would not find this task: .* is not a task"):
        checked_path(task(sample.not_a_task))


def test_a_reloaded_module_is_seen(module_folder: Path) -> None:
    import importlib

    name = f"reloaded_{uuid.uuid4().hex}"
    source = "from jobqueue import task\n@task\ndef noop(): ...\n"
    (module_folder / f"{name}.py").write_text(source)
    before = resolve(f"{name}.noop")
    assert checked_path(before) == f"{name}.noop"
    importlib.reload(sys.modules[name])
    assert checked_path(sys.modules[name].noop) == f"{name}.noop"
    with pytest.raises(InvalidTask, match="another task has its path"):
        checked_path(before)


# Contexts


def test_a_task_runs_on_the_immediate_backend(settings: Any) -> None:
    settings.TASKS = IMMEDIATE
    result = sample.describe.using(idempotency_key="k").enqueue(word="now")
    assert result.return_value == {
        "job_id": result.id,
        "attempt": 1,
        "max_attempts": 1,
        "idempotency_key": "tests.tasks_sample.describe:k",
        "cancelled": False,
        "status": "RUNNING",
        "word": "now",
    }
    assert sample.describe.enqueue().return_value["idempotency_key"] != result.id
    assert sample.async_describe.enqueue().status == TaskResultStatus.SUCCESSFUL
    assert asyncio.run(sample.async_describe.aenqueue()).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize(
    "value",
    [{1}, Decimal(1), uuid.UUID(int=1), object(), b"\xff"],
    ids=lambda value: type(value).__name__,
)
def test_the_immediate_backend_refuses_what_ours_refuses(settings: Any, value: Any) -> None:
    settings.TASKS = IMMEDIATE
    with pytest.raises((TypeError, ValueError)):
        sample.echo.enqueue(value)


def test_the_immediate_backend_shares_nothing_with_its_caller(settings: Any) -> None:
    settings.TASKS = IMMEDIATE
    given = [1, (2, 3)]
    result = sample.echo.enqueue(given)
    assert result.return_value == [1, [2, 3]]
    assert result.return_value is not given


def test_progress_and_lines_go_to_the_logger_there(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TASKS = IMMEDIATE
    with caplog.at_level(logging.INFO, "jobqueue"):
        result = sample.tell.enqueue(2)
    assert result.status == TaskResultStatus.SUCCESSFUL
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    ours = [each for each in said if result.id in each[1] and "id=" not in each[1]]
    assert ours == [
        ("INFO", f"Job {result.id}: 1 of 2 done. step 1"),
        ("WARNING", f"Job {result.id}: did 1"),
        ("INFO", f"Job {result.id}: 2 of 2 done. step 2"),
        ("WARNING", f"Job {result.id}: did 2"),
    ]


def test_the_dummy_backend_stores_and_copies(settings: Any) -> None:
    settings.TASKS = DUMMY
    result = sample.fail.enqueue("x")
    assert result.task == sample.fail
    assert task_backends["default"].results == [result]


class Running:
    """A run for a context, as execution has one."""

    def __init__(self, **changes: Any) -> None:
        now = timezone.now()
        known: dict[str, Any] = {
            "id": uuid.uuid4(),
            "task_path": sample.describe.module_path,
            "args": [],
            "kwargs": {},
            "queue_name": "default",
            "priority": 0,
            "attempt": 3,
            "given_back": 1,
            "max_attempts": 6,
            "timeout": None,
            "idempotency_key": None,
            "run_after": now,
            "enqueued_at": now,
            "started_at": now,
            "attempted_at": now,
            "owner": uuid.uuid4(),
            "worker": "host:1:abc",
        }
        self.attempt = Attempt(**known | changes)
        self.stopped: type[Stopped] | None = None
        self.notes: list[Any] = []

    def note(self, note: Any) -> None:
        self.notes.append(note)


def context_of(run: Running) -> JobContext:
    return JobContext.of_run(run, sample.describe)


def test_the_context_knows_its_attempt() -> None:
    run = Running()
    context = context_of(run)
    assert isinstance(context, TaskContext)
    assert context.job_id == str(run.attempt.id) == context.idempotency_key
    assert (context.attempt, context.max_attempts) == (3, 6)
    result = context.task_result
    assert isinstance(result, JobResult)
    assert result.status == TaskResultStatus.RUNNING
    assert result.attempts == 3
    assert result.worker_ids[-1] == "host:1:abc"
    keyed = context_of(Running(idempotency_key="order-1"))
    assert keyed.idempotency_key == "tests.tasks_sample.describe:order-1"


@pytest.mark.parametrize("why", [Cancelled, TimedOut, LeaseLost])
def test_check_raises_what_the_task_was_told(why: type[Stopped]) -> None:
    run = Running()
    context = context_of(run)
    context.check()
    assert not context.cancelled
    run.stopped = why
    assert context.cancelled is (why is Cancelled)
    with pytest.raises(why) as raised:
        context.check()
    assert str(raised.value)


def test_progress_and_lines_are_notes() -> None:
    run = Running()
    context = context_of(run)
    context.progress(1, 3, "one\0")
    context.progress(Fraction(1, 2))
    context.log("hello", level="error")
    first, second, third = run.notes
    assert first.progress == {"done": 1, "total": 3, "message": "one\\x00"}
    assert second.progress == {"done": 0.5, "total": None, "message": ""}
    assert (third.message, third.level, third.progress) == ("hello", "error", None)
    assert all(note.attempt is run.attempt for note in run.notes)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c.progress(-1), ValueError, "done must be from 0"),
        (lambda c: c.progress(float("nan")), ValueError, "done must be from 0"),
        (lambda c: c.progress(float("inf")), ValueError, "done must be from 0"),
        (lambda c: c.progress(2**63), ValueError, "done must be from 0"),
        (lambda c: c.progress(1, -1), ValueError, "total must be from 0"),
        (lambda c: c.progress("1"), TypeError, "done must be a number, not str"),
        (lambda c: c.progress(True), TypeError, "done must be a number, not bool"),
        (lambda c: c.progress(Decimal(1)), TypeError, "done must be a number, not Decimal"),
        (lambda c: c.log("x", "loud"), ValueError, "level must be one of debug, info, warning"),
        (lambda c: c.log("x", 30), ValueError, "level must be one of debug, info, warning"),
    ],
)
def test_bad_input_to_a_context(
    call: Callable[[JobContext], None], error: type[Exception], words: str
) -> None:
    run = Running()
    with pytest.raises(error, match=words):
        call(context_of(run))
    assert run.notes == []


def test_the_levels_are_the_logs() -> None:
    from jobqueue.context import LEVELS
    from jobqueue.models import JobLog

    assert set(LEVELS) == set(JobLog.Level.values)


# The package


def test_the_public_names_are_there() -> None:
    assert all(hasattr(jobqueue, name) for name in jobqueue.__all__)
    assert {"task", "Task", "enqueue_many", "cancel", "requeue"} <= set(jobqueue.__all__)


def test_the_columns_hold_what_is_accepted() -> None:
    widths = {name: Job._meta.get_field(name).max_length for name in ("task_path", "queue_name")}
    assert widths == {"task_path": MAX_TASK_PATH, "queue_name": MAX_QUEUE_NAME}
