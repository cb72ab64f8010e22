"""What a repair says of one kind of thing that can disagree."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Finding:
    """What a pass found of one kind, and what became of it."""

    kind: str
    what: str
    found: int = 0
    repaired: int = 0
    left: dict[str, str] = field(default_factory=dict)  # id of a row: why it could not be repaired
