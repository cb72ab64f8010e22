"""What each worker does for all, once a tick: repair what the clock or a death has left, and remove what is old."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from uuid import UUID

from jobqueue import conf, lifecycle, reconcile, sweeps, tallies
from jobqueue.findings import Finding

logger = logging.getLogger("jobqueue")

#: Rows a kind that a worker's tick repairs; what is left waits for the next.
TICK_LIMIT = 1_000
#: The part of its time that a worker spends at most on looking for leases to take: one in so many.
SWEEP_SHARE = 20
#: Seconds between two looks for jobs that are old enough to be removed.
PRUNE_EVERY = 60.0
#: Kinds of repairs that the log tells of: whoever was meant to do the work did not.
TOLD = ("lost", "stopping", "silent")


class Chores:
    """One worker's share of them. All of it raises the database's errors."""

    def __init__(self, worker: str) -> None:
        self._recorder = sweeps.Recorder(worker=worker)
        # From when on leases may be taken from others.
        self._take_leases_at = float("inf")
        self._next_prune = time.monotonic() + PRUNE_EVERY
        self._prune_after: UUID | None = None

    def let_owners_come_first(self) -> None:
        """Take nobody's lease before all have had a heartbeat's time to extend theirs."""
        self._take_leases_at = time.monotonic() + conf.options().heartbeat

    def sweep(self, at: datetime | None) -> list[Finding]:
        """Repair what there is to repair; `at` is the database's time, if that is known."""
        began = time.monotonic()
        take_leases = began >= self._take_leases_at
        findings = reconcile.sweep(limit=TICK_LIMIT, take_leases=take_leases)
        now = time.monotonic()
        if at is not None:
            self._recorder.record(findings, at, now - began)
        if take_leases:
            # Under an old snapshot the index holds every lease that there was since.
            self._take_leases_at = max(self._take_leases_at, now + SWEEP_SHARE * (now - began))
        for finding in findings:
            if finding.repaired and finding.kind in TOLD:
                logger.info("Repaired %s: %s", finding.what, finding.repaired)
        return findings

    def prune(self) -> None:
        """Remove a batch of what is old enough, if it is time to look."""
        if time.monotonic() < self._next_prune:
            return
        pruned = lifecycle.prune(after=self._prune_after)
        self._prune_after = pruned.after
        full = tallies.prune() == tallies.BATCH, sweeps.prune() == sweeps.PRUNED
        more = pruned.after is not None or any(full)
        self._next_prune = time.monotonic() + (conf.options().tick if more else PRUNE_EVERY)

    def close(self) -> None:
        """Write down what has not been written yet."""
        self._recorder.close()
