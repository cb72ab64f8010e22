"""Who acts, as text: it outlives the user's row, and may come from another database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobqueue.texts import storable_text

#: Characters of a name, an id and a reason that are kept.
MAX_NAME, MAX_ID, MAX_REASON = 200, 64, 2_000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked for a change; both are empty for the application itself."""

    id: str = ""
    name: str = ""

    @classmethod
    def of(cls, actor: Any) -> Actor:
        """From a user, a name, or None (the application itself)."""
        if actor is None:
            return cls()
        if isinstance(actor, Actor):
            return actor
        if isinstance(actor, str):
            return cls(name=storable_text(actor, MAX_NAME))
        key = getattr(actor, "pk", None)
        name = actor.get_username() if hasattr(actor, "get_username") else str(actor)
        return cls(id="" if key is None else str(key)[:MAX_ID], name=storable_text(name, MAX_NAME))


def kept_reason(reason: str) -> str:
    """A reason as it is kept: text that every database takes."""
    return storable_text(reason, MAX_REASON)
