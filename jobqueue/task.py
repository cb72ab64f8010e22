"""What a task is: Django's Task with a job's options, its decorator, and how a path leads to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum
from inspect import iscoroutinefunction
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from jobqueue import conf
from jobqueue.attempts import MAX_KEY, MAX_QUEUE_NAME, MAX_TASK_PATH
from jobqueue.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    BaseTask,
    InvalidTask,
    TaskContext,
)
from jobqueue.compat import Task as AnyTask
from jobqueue.context import JobContext
from jobqueue.exceptions import TaskNotFound
from jobqueue.paths import resolve
from jobqueue.results import JobResult

P = ParamSpec("P")
R = TypeVar("R")

MAX_ATTEMPTS: Final = 32_767


class NotGiven(Enum):
    """The type of NOT_GIVEN, for options to which None means something."""

    NOT_GIVEN = "not given"


NOT_GIVEN: Final = NotGiven.NOT_GIVEN

Backoff = Callable[[int, BaseException], float | None]
"""From the number of spent attempts and the error to seconds until the next one; None gives up."""

Exceptions = Iterable[type[BaseException]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(BaseTask[P, R]):
    """Django's Task with the options of a job.

    `max_attempts`, `timeout` (seconds; None for none) and `idempotency_key` are stored with the job
    when it is enqueued; the rest is read from the task when it runs.
    """

    max_attempts: int | None = None
    """How often a job is tried; None: as the setting says."""

    timeout: float | NotGiven | None = NOT_GIVEN
    """Seconds that an attempt may run; None: without a limit; not given: as the setting says."""

    backoff: Backoff | None = None
    """Seconds to wait before the next attempt, from the number of spent ones and the error."""

    retry_on: tuple[type[BaseException], ...] = ()
    """The only errors after which it is tried again; empty: all."""

    give_up_on: tuple[type[BaseException], ...] = ()
    """Errors after which it is not tried again."""

    atomic: bool = False
    """Whether the task's writes and its completion are committed together, or not at all."""

    idempotency_key: str | None = None
    """Calls with the same key give one job."""

    def __post_init__(self) -> None:
        for name in ("retry_on", "give_up_on"):
            object.__setattr__(self, name, _exception_classes(name, getattr(self, name)))
        _validate_options(self)
        validate_names(self)
        super(Task, self).__post_init__()
        if self.atomic:
            atomic_tasks.add(self.module_path)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        timeout: float | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> Task[P, R]:
        """The same task with other values for what is stored with its jobs.

        None leaves a value as it is, except for `timeout`, to which it means that there is none.
        """
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "idempotency_key": idempotency_key,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        if timeout is not NOT_GIVEN:
            changes["timeout"] = timeout
        return replace(self, **changes)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundTask[P, R]:
        """A call that is not made yet, for `jobqueue.enqueue_many`."""
        return BoundTask(self, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobResult[P, R]:
        """Accept a call as a job, in the transaction that is open, if any.

        The result has `created` where jobqueue's backend is the alias's; others return their own.
        """
        result = self.get_backend().enqueue(self, cast(Any, args), kwargs)
        return cast("JobResult[P, R]", result)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobResult[P, R]:
        """`enqueue` from async code."""
        result = await self.get_backend().aenqueue(self, cast(Any, args), kwargs)
        return cast("JobResult[P, R]", result)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return super(Task, self).call(*_with_our_context(self, args), **kwargs)

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """`call` from async code."""
        return await super(Task, self).acall(*_with_our_context(self, args), **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # What `using` can change, and where to find the rest, which may be a lambda.
        stored = {name: getattr(self, name) for name in _STORED}
        return _reconstruct, (self.module_path, stored)

    def __copy__(self) -> Task[P, R]:
        return self  # nothing in it can change

    def __deepcopy__(self, memo: dict[int, Any]) -> Task[P, R]:
        return self


@dataclass(frozen=True, slots=True)
class BoundTask(Generic[P, R]):
    """A task and the arguments to call it with: one of the calls that `enqueue_many` accepts."""

    task: AnyTask[P, R]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


atomic_tasks: set[str] = set()
"""Paths of the atomic tasks that have been declared, for the check of their database."""

_STORED: Final = (
    "priority",
    "backend",
    "queue_name",
    "run_after",
    "max_attempts",
    "timeout",
    "idempotency_key",
)


def _reconstruct(path: str, stored: dict[str, Any]) -> Any:
    try:
        return replace(resolve(path), **stored)
    except TaskNotFound as error:
        raise ValueError(f"Expected {path!r} to point to a Task instance.") from error


def _with_our_context(task: Task[P, R], args: Any) -> Any:
    """The arguments with Django's own context made one of ours, as on its immediate backend."""
    if task.takes_context and args and isinstance(args[0], TaskContext):
        context = args[0]
        if not isinstance(context, JobContext):
            return (JobContext(task_result=context.task_result), *args[1:])
    return args


# The decorator


class Decorator(Protocol):
    """What `task(...)` returns: it makes a task of a function, sync or async."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ContextDecorator(Protocol):
    """What `task(..., takes_context=True)` returns: callers do not pass the first parameter."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[True],
    max_attempts: int | None = ...,
    timeout: float | NotGiven | None = ...,
    backoff: Backoff | None = ...,
    retry_on: Exceptions = ...,
    give_up_on: Exceptions = ...,
    atomic: bool = ...,
) -> ContextDecorator: ...
@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[False] = ...,
    max_attempts: int | None = ...,
    timeout: float | NotGiven | None = ...,
    backoff: Backoff | None = ...,
    retry_on: Exceptions = ...,
    give_up_on: Exceptions = ...,
    atomic: bool = ...,
) -> Decorator: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    max_attempts: int | None = None,
    timeout: float | NotGiven | None = NOT_GIVEN,
    backoff: Backoff | None = None,
    retry_on: Exceptions = (),
    give_up_on: Exceptions = (),
    atomic: bool = False,
) -> Any:
    """Make a task of a function at module level: `@task`, or `@task(queue_name="mail", ...)`.

    Always a `jobqueue.Task`, whatever backend the alias has, so that its options are there wherever
    it runs. What cannot work is an InvalidTask.
    """

    def declare(function: Callable[..., Any]) -> Task[..., Any]:
        return Task(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            max_attempts=max_attempts,
            timeout=timeout,
            backoff=backoff,
            retry_on=cast(Any, retry_on),
            give_up_on=cast(Any, give_up_on),
            atomic=atomic,
        )

    return declare if function is None else declare(function)


# What a task may say


def validate_names(task: AnyTask[..., Any]) -> None:
    """InvalidTask if the path or queue name of a task, of any class, does not fit its column."""
    _check_text("queue_name", task.queue_name, MAX_QUEUE_NAME)
    # A class, or whatever else was declared: Django's own words tell that it is no function.
    if hasattr(task.func, "__qualname__"):
        _check_text("the task's path", task.module_path, MAX_TASK_PATH)


def _validate_options(task: Task[..., Any]) -> None:
    _check_number("max_attempts", task.max_attempts, 1, MAX_ATTEMPTS, whole=True)
    if task.timeout is not NOT_GIVEN:
        _check_number("timeout", task.timeout, 0, conf.CENTURY)
        if task.timeout == 0:
            raise InvalidTask("timeout must be more than 0 seconds; None means that there is none.")
    if task.backoff is not None and not callable(task.backoff):
        raise InvalidTask(
            "backoff must be a function that returns seconds, or None, from an attempt's number "
            f"and an error, not {task.backoff!r}."
        )
    if task.idempotency_key is not None:
        _check_text("idempotency_key", task.idempotency_key, MAX_KEY)
    if task.atomic and iscoroutinefunction(task.func):
        raise InvalidTask("atomic is for sync functions: a transaction does not span an await.")


def _check_text(name: str, value: Any, longest: int) -> None:
    if not isinstance(value, str):
        raise InvalidTask(f"{name} must be a str, not {type(value).__name__}.")
    if not 0 < len(value) <= longest:
        said = "is empty" if not value else f"has {len(value)} characters"
        raise InvalidTask(f"{name} must have 1 to {longest} characters; {value[:80]!r} {said}.")
    if not value.isascii() or "\0" in value:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidTask(f"{name} {value!r} has a lone surrogate in it.") from None
        if "\0" in value:
            raise InvalidTask(f"{name} {value!r} has U+0000 in it.")


def _check_number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    if value is None:
        return
    # True is an int to Python and a mistake to everyone else.
    if not isinstance(value, int if whole else int | float) or isinstance(value, bool):
        wanted = "a whole number" if whole else "a number of seconds or None"
        raise InvalidTask(f"{name} must be {wanted}, not {value!r}.")
    if math.isnan(value) or not low <= value <= high:
        raise InvalidTask(f"{name} must be from {low} to {high:,.0f}, not {value!r}.")


def _exception_classes(name: str, given: Any) -> tuple[type[BaseException], ...]:
    if isinstance(given, Iterable) and not isinstance(given, str | type):
        classes = tuple(given)
        if all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            return classes
    raise InvalidTask(f"{name} must be a tuple of exception classes, not {given!r}.")


@dataclass(frozen=True, slots=True)
class Policy:
    """A task's options with the settings' defaults: how its jobs are run and tried again."""

    max_attempts: int
    timeout: float | None
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    atomic: bool = False
    idempotency_key: str | None = None


def policy(task: AnyTask[..., Any]) -> Policy:
    """The options of any task; one that was made for another backend gets the defaults."""
    options = conf.options()
    if not isinstance(task, Task):
        return Policy(options.max_attempts, options.timeout)
    return Policy(
        options.max_attempts if task.max_attempts is None else task.max_attempts,
        options.timeout if task.timeout is NOT_GIVEN else task.timeout,
        task.backoff,
        task.retry_on,
        task.give_up_on,
        task.atomic,
        task.idempotency_key,
    )


def attempts_of(path: str) -> int:
    """How many attempts jobs of the task at `path` get: what a requeue may grant once more."""
    return policy(find(path)).max_attempts


# Where a task is gone


def find(path: str) -> AnyTask[..., Any]:
    """The task at `path`; where there is none any more, one in its place that cannot be called."""
    try:
        return resolve(path)
    except TaskNotFound as error:
        return _placeholder(path, str(error))


def _placeholder(path: str, words: str) -> Task[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise TaskNotFound(words)

    missing.__module__, _, missing.__qualname__ = path.rpartition(".")
    missing.__name__ = missing.__qualname__
    # Not validated: there is nothing to declare, and its queue may be gone as well.
    task: Task[..., Any] = object.__new__(Task)
    for field in fields(Task):
        # All but the function have a default.
        object.__setattr__(task, field.name, missing if field.name == "func" else field.default)
    return task
