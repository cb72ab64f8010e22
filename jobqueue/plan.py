"""What `runworker` was asked for: the same for the supervisor and all its workers."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue import conf


@dataclass(frozen=True, slots=True)
class Plan:
    """`queues` empty means all of them; `max_rss` is in bytes, `grace` in seconds (None: as the
    option says)."""

    queues: tuple[str, ...] = ()
    processes: int = 1
    concurrency: int = 8
    burst: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    grace: float | None = None

    @property
    def grace_time(self) -> float:
        """Seconds that running jobs get to finish when the worker is told to stop."""
        return conf.options().grace if self.grace is None else self.grace

    @property
    def board_size(self) -> int:
        """Room on the board: for every slot, and for outcomes that wait for a locked row."""
        return 2 * self.concurrency + 16
