"""How others hear that jobs have ended: after the commit, and where the process wants it told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import transaction

Listener = Callable[[Sequence[UUID]], None]

# One listener: the room that builds results and sends django.tasks' signals stands above this one, and puts
# itself here when the app is ready. A worker puts its announcer here, to keep receivers off its own loop.
_listener: Listener | None = None


def listen(listener: Listener | None) -> Listener | None:
    """Make `listener` the one that is told of ended jobs; returns the one before it."""
    global _listener
    before, _listener = _listener, listener
    return before


def ended(using: str, job_ids: Sequence[UUID]) -> None:
    """Tell of these jobs once the current transaction has committed, and never if it does not."""
    listener, told = _listener, list(job_ids)
    if told and listener is not None:
        # A function: of a partial that fails Django 5.2 wants to say the name, and raises.
        transaction.on_commit(lambda: listener(told), using=using, robust=True)
