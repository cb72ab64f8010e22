"""How a task's path leads to the task: what is stored as a path runs as a task, or not at all."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

from jobqueue.compat import InvalidTask
from jobqueue.compat import Task as AnyTask
from jobqueue.exceptions import Stopped, TaskNotFound
from jobqueue.texts import describe_exception

# Two threads that do it at once meet a KeyError in Python's own code.
_invalidating = threading.Lock()

_resolved: dict[str, AnyTask[..., Any]] = {}


def resolve(path: str) -> AnyTask[..., Any]:
    """The task at `path`, a module's path and the task's name in it.

    Raises TaskNotFound, which says what was not found, for everything else: what is stored as a
    task's path runs as a task or not at all.
    """
    found = _resolved.get(path)
    if found is None:
        found = _resolved[path] = _load(path)
    return found


def checked_path(task: AnyTask[..., Any]) -> str:
    """The path of `task`, from which a worker will come to the same function; else InvalidTask."""
    path = task.module_path
    found = _resolved.get(path)
    if found is None or found.func is not task.func:
        _resolved.pop(path, None)  # the module may have been loaded again
        try:
            found = resolve(path)
        except TaskNotFound as error:
            raise InvalidTask(f"A worker would not find this task: {error}") from error
        if found.func is not task.func:
            raise InvalidTask(
                f"A worker would not find this task: another task has its path, {path}."
            )
    return path


def _load(path: str) -> AnyTask[..., Any]:
    module_path, _, name = path.rpartition(".")
    if not module_path:
        raise TaskNotFound(f"{path!r} is not the path of a module and a name in it.")
    if module_path == "__main__":
        raise TaskNotFound(f"{path} is in the script that was started, which is not a worker's.")
    if module_path not in sys.modules:
        with _invalidating:
            importlib.invalidate_caches()  # the file may have arrived since its folder was read
    try:
        module = importlib.import_module(module_path)
    except Stopped:
        raise
    except BaseException as error:  # a module may raise anything, even exit
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_path}.".startswith(f"{missing}."):
            raise TaskNotFound(f"There is no module {missing} (of {path}).") from error
        short = describe_exception(error).short
        raise TaskNotFound(f"The module {module_path} cannot be imported: {short}") from error
    try:
        found = getattr(module, name)
    except AttributeError as error:
        raise TaskNotFound(f"The module {module_path} has no {name}.") from error
    except Exception as error:  # of a __getattr__ of the module's own
        short = describe_exception(error).short
        raise TaskNotFound(f"{name} cannot be had from {module_path}: {short}") from error
    if not isinstance(found, AnyTask):
        raise TaskNotFound(f"{path} is not a task, but {type(found).__name__}.")
    if found.module_path != path:
        raise TaskNotFound(f"{path} is another name of the task {found.module_path}.")
    return found
