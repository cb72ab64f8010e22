"""What a repair says of one kind of thing that can disagree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: Of the first so many rows that a pass repairs in one kind it tells what it did.
TOLD = 500


@dataclass(frozen=True, slots=True)
class Repaired:
    """One thing that was repaired, and how it stood before and after.

    Of an attempt that was taken back also which and whose it was, and how many seconds the job had
    waited for it.
    """

    id: Any
    before: str
    after: str
    attempt: int = 0
    queue_name: str = ""
    task_path: str = ""
    waited: float = 0.0
    error: str = ""


@dataclass(slots=True)
class Finding:
    """What a pass found of one kind, and what became of it."""

    kind: str
    what: str
    found: int = 0
    repaired: int = 0
    left: dict[str, str] = field(default_factory=dict)  # id of a row: why it could not be repaired
    repairs: list[Repaired] = field(default_factory=list)  # of the first
    taken: list[Repaired] = field(
        default_factory=list
    )  # attempts that were taken back, all of them

    def note(self, repaired: Iterable[Repaired]) -> None:
        """These have been repaired."""
        for each in repaired:
            self.repaired += 1
            if len(self.repairs) < TOLD:
                self.repairs.append(each)
            if each.attempt:
                self.taken.append(each)
