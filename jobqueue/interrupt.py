"""Raising an exception into another thread, and never into the wrong code.

CPython can be asked to raise in a thread at its next bytecode (PyThreadState_SetAsyncExc). Asked naively it now
and then comes too late and hits the code that follows: the next job, or our own. So each body runs behind a
gate of its own. Whoever raises must hold it, and the thread shuts it for good when the body has ended, taking
back what was raised and has not arrived.
"""

from __future__ import annotations

import _weakrefset
import ctypes
import gc
import logging
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress, starmap
from operator import attrgetter, itemgetter
from pathlib import Path
from types import CodeType
from typing import Any

from jobqueue.exceptions import Stopped

# The address instead of py_object, since NULL (take it back) has no py_object.
_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
_set_async_exc.restype = ctypes.c_int

_OURS = f"{Path(__file__).parent}{os.sep}"

#: Code in which an exception may leave a lock held for good, since it is taken before the `try`
#: that gives it back: these functions wherever they are, and all of these modules.
_LOCKING = frozenset(
    {"acquire", "release", "_acquireLock", "_releaseLock", "__enter__", "__exit__"}
)
_LOCKING_FILES = frozenset(
    {logging.__file__, threading.__file__, queue.__file__, "<frozen importlib._bootstrap>"}
)

#: Where the interpreter calls back when something is collected: what is raised there is swallowed.
_SWALLOWING_FILES = frozenset({_weakrefset.__file__, weakref.__file__})

_DELICATE_FILES = _LOCKING_FILES | _SWALLOWING_FILES


class Gate:
    """Lets others raise into the thread that made it, while that thread is in the body."""

    __slots__ = ("_lock", "_open", "_thread_id")

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._open = False

    def run(self, body: Callable[[], Any]) -> Any:
        """Call `body`. From its end on nothing is raised; what arrives meanwhile is swallowed."""
        try:
            self._open = True
            return body()
        finally:
            # In this very frame: on its way into a function the exception would arrive before
            # the lock is held, and the gate would stay open.
            try:
                self._lock.acquire()  # kept for good: the gate serves one body
                _set_async_exc(self._thread_id, None)
            except Stopped:
                pass  # the lock is held by now, so it was the last

    def raise_in_thread(self, exception: type[Stopped]) -> bool:
        """Have `exception` raised in the thread at its next bytecode. May be repeated.

        False if the body has ended, or is just where an exception does harm: ask again soon. It
        arrives when a call into C returns, not before.
        """
        # Never waits: the thread takes the lock only to shut the gate, and then keeps it.
        if not self._open or not self._lock.acquire(blocking=False):
            return False
        try:
            with _looking_alone():
                frame = sys._current_frames().get(self._thread_id)
                if frame is None or _is_delicate(frame.f_code):
                    return False
                return _raise_while_in(frame.f_code, self._thread_id, exception)
        finally:
            self._lock.release()


def _is_delicate(code: CodeType) -> bool:
    return (
        code.co_name in _LOCKING
        or code.co_filename in _DELICATE_FILES
        or code.co_filename.startswith(_OURS)
    )


def _raise_while_in(code: CodeType, thread_id: int, exception: type[Stopped]) -> bool:
    """Have `exception` raised in the thread if it is in `code` still; whether it was.

    The interpreter may let the thread go on between any two of our bytecodes, so it is looked at and
    told within one of them: what `list` draws its single item from is all written in C.
    """
    frames = starmap(sys._current_frames, ((),))
    codes = map(attrgetter("f_code"), map(itemgetter(thread_id), frames))
    told = compress(((thread_id, id(exception)),), map({code}.__contains__, codes))
    return bool(list(starmap(_set_async_exc, told)))


#: One thread at a time looks at where another is.
_looking = threading.Lock()


@contextmanager
def _looking_alone() -> Iterator[None]:
    """For looks at where another thread is.

    Up to Python 3.12 `sys._current_frames` holds a lock of the interpreter's while it makes objects. If
    that starts the garbage collector, whose callbacks let other threads run, the next of them to
    need the lock stops everything for good (CPython issue 106883).
    """
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
