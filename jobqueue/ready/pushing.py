"""How those who make jobs claimable tell Redis: from any thread, after the commit, and without ever raising."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from uuid import UUID

from jobqueue import conf
from jobqueue.ready.line import Breaker, Line, Unreachable
from jobqueue.ready.shelf import Ready, Shelf, shelf_on


class _Phones(threading.local):
    """Each thread's shelf, by the alias that it was made for."""

    def __init__(self) -> None:
        self.by_alias: dict[tuple[str, str | None], Shelf] = {}


_phones = _Phones()
_breakers: dict[str, Breaker] = {}


def push(jobs: Collection[Ready]) -> bool:
    """Put jobs in line. False if there is no Redis, or it did not take them: then workers have to
    be told in another way."""
    shelf = _shelf()
    if shelf is None:
        return False
    try:
        shelf.post(jobs)
    except Unreachable:
        return False
    return True


def cancelled(job_ids: Sequence[UUID]) -> None:
    """Say that these jobs were cancelled while they ran; who runs them finds out sooner then."""
    shelf = _shelf()
    if shelf is not None:
        try:
            shelf.line.post(*[("PUBLISH", shelf.channel, str(each)) for each in job_ids])
        except Unreachable:
            return  # the next heartbeat tells


def breaker(alias: str) -> Breaker:
    """What keeps this process from a failing Redis."""
    found = _breakers.get(alias)
    if found is None:
        found = _breakers[alias] = Breaker()
    return found


def _shelf() -> Shelf | None:
    options = conf.options()
    if options.redis is None:
        return None
    key = (options.redis, options.redis_prefix)
    shelf = _phones.by_alias.get(key)
    if shelf is None:
        line = Line(options.redis, breaker(options.redis))
        shelf = _phones.by_alias[key] = shelf_on(line)
    return shelf


def forget() -> None:
    """Make all connections anew: after a fork, where the old ones are the parent's, or for other
    settings."""
    global _phones
    _phones = _Phones()
    _breakers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
