"""How others hear that jobs have ended: after the commit, and where the process wants it told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
    if job_ids and _listener is not None:
        transaction.on_commit(partial(_listener, list(job_ids)), using=using, robust=True)
