"""What was done to which process when, as far as it excuses that a job was taken from its worker."""

from __future__ import annotations

from tests.chaos.audit import Move
from tests.chaos.history import Past, spans

INFINITE = float("inf")


class Excuses:
    """Who was dead, stopped, or cut off, and when; `ended` are those who did not end of their own will."""

    def __init__(self, past: Past, lease: float, ended: set[int]) -> None:
        self._lease = lease
        self.dead: dict[int, float] = {}
        self.orphaned: dict[int, float] = {}
        for line in past.of("kill", "killed", "crashed", "ended", "exit"):
            own = line["process"] if line["event"] == "exit" else line["pid"]
            pids = line.get("pids", [own])
            for pid in pids:
                self.dead.setdefault(pid, line["at"])
            for pid in line.get("children", ()):
                self.orphaned.setdefault(pid, line["at"])
        self.ended = {*self.dead, *self.orphaned, *ended}
        self.stops: dict[int, list[tuple[float, float]]] = {}
        for line in past.of("stopped"):
            line["pids"] = [line["pid"]]
        stops = past.of("stop", "stopped", "go_on")
        renamed = [line | {"event": "stop"} if line["event"] != "go_on" else line for line in stops]
        for pid, since, until in spans(renamed, "stop", "go_on", "pids"):
            self.stops.setdefault(pid, []).append((since, until))
        faults = [
            line for line in past.of("fault", "fault_over") if line["name"].startswith("restart")
        ]
        self.outages = [
            (since, until) for _, since, until in spans(faults, "fault", "fault_over", "name")
        ]
        self.starved = [(line["since"], line["at"]) for line in past.of("starved")]

    def for_losing(self, move: Move) -> str:
        """Why a job was rightly taken from the owner it had; empty if there is no reason."""
        assert move.was is not None
        pid, expired_at = move.was.pid, move.was.expires_at or INFINITE
        if self.dead.get(pid, INFINITE) <= move.at:
            return "dead"
        if expired_at > move.at:
            return ""
        return self.for_expiry(pid, expired_at, move.at)

    def for_expiry(self, pid: int, expired_at: float, at: float) -> str:
        """Why a living process did not extend its lease."""
        since = expired_at - self._lease
        if any(a <= at and b >= since for a, b in self.stops.get(pid, ())):
            return "stopped"
        if any(a <= at and b >= since for a, b in self.outages):
            return "cut off"
        if any(a <= at and b >= since for a, b in self.starved):
            return "starved"
        if self.orphaned.get(pid, INFINITE) <= at:
            return "orphaned"
        return ""

    def in_outage(self, since: float, until: float) -> bool:
        """Whether the database was away then, or had just come back."""
        return any(a <= until and b + 2 >= since for a, b in self.outages)
