"""The one room that knows which `django.tasks` this is: Django's own, or the backport.

Django 6.0 and later carry `django.tasks`; Django 5.2 gets the same from the distribution
`django-tasks` (module `django_tasks`). Everything else in jobqueue imports Django 6.1's names from
here. Nothing here imports a model or needs loaded apps: a task may be declared in an app's
`__init__`.

`Task`, `TaskResult` and `TaskContext` are the classes to compare and annotate with; `BaseTask`,
`BaseTaskResult` and `BaseTaskContext` are the ones to inherit from. To a type checker they are the
same classes, generic in the parameters and the return type of the task's function. At run time
Django's are not generic and the backport's result has one parameter instead of two, so the bases
add what is missing, and nothing else.

A subclass that is itself a dataclass with `slots=True` must call `super(Name, self)`: the decorator
replaces the class, and the short `super()` would still mean the first one.
"""

from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypeVar

import django
from django.core.exceptions import ImproperlyConfigured

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "TASKS_MODULE",
    "TASK_MAX_PRIORITY",
    "TASK_MIN_PRIORITY",
    "BaseTask",
    "BaseTaskBackend",
    "BaseTaskContext",
    "BaseTaskResult",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

TASKS_MODULE: Final[str] = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
"""The package in use; its `backends.immediate.ImmediateBackend` is the other backend at hand."""

# A type checker reads django-stubs, which describe django.tasks whatever Django is installed.
if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        import django_tasks  # noqa: F401  (alone, so that only its absence is reported as such)
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ImproperlyConfigured(
            f"jobqueue needs django.tasks, which Django {django.get_version()} does not have; the "
            'backport is not installed. Install it with: pip install "django-jobqueue[backport]"'
        ) from error
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

if TYPE_CHECKING:
    BaseTask = Task
    BaseTaskResult = TaskResult
    BaseTaskContext = TaskContext
else:
    P = ParamSpec("P")
    R = TypeVar("R")

    class BaseTask(Task, Generic[P, R]):
        """`Task` that can be written `BaseTask[P, R]`."""

        __slots__ = ()

    class BaseTaskResult(TaskResult, Generic[P, R]):
        """`TaskResult` that can be written `BaseTaskResult[P, R]`."""

        __slots__ = ()

    class BaseTaskContext(TaskContext, Generic[P, R]):
        """`TaskContext` that can be written `BaseTaskContext[P, R]`."""

        __slots__ = ()
