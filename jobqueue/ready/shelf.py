"""The sorted sets: one a queue, the highest priority first and among equals the oldest.

The score is -priority and the member the job's id. Equal scores are in the order of their members, and ids in that of
time, so the order is exact, with no arithmetic that could round. All keys share one hash tag, so that a cluster keeps
them together.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from jobqueue import conf
from jobqueue.ready.line import Command, Line

#: Members in one command: a server is busy with them for a millisecond at most.
BATCH = 1_000
#: Seconds for which the refill of an empty Redis is one worker's, unless it says that it goes on.
REFILL = 30

_FINISH_REFILL = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    redis.call('set', KEYS[2], ARGV[1])
    redis.call('del', KEYS[1])
    return 1
end
return 0
"""
_GO_ON = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('expire', KEYS[1], ARGV[2])
end
return 0
"""


class Ready(NamedTuple):
    """A job that can be claimed, as far as its place in the line goes."""

    id: UUID
    queue: str
    priority: int


class Shelf:
    """The sets of one site, asked over one line. Every method raises what the line raises."""

    def __init__(self, line: Line, prefix: str) -> None:
        self.line = line
        self.prefix = prefix

    def key(self, queue: str) -> str:
        """The key of a queue's set."""
        return f"{self.prefix}:ready:{queue}"

    def push(self, jobs: Collection[Ready]) -> None:
        """Put jobs in line. One that is there already moves to where its priority says."""
        for commands in self._pushes(jobs):
            self.line.ask(*commands)

    def post(self, jobs: Collection[Ready]) -> None:
        """`push`, without waiting for the last answer: the next call on the line gets it."""
        for commands in self._pushes(jobs):
            self.line.post(*commands)

    def _pushes(self, jobs: Collection[Ready]) -> Iterator[list[Command]]:
        by_queue = itertools.groupby(sorted(jobs, key=attrgetter("queue")), attrgetter("queue"))
        for queue, group in by_queue:
            members: list[str | int] = []
            for job in group:
                members += (-job.priority, str(job.id))
            for start in range(0, len(members), 2 * BATCH):
                yield [("ZADD", self.key(queue), *members[start : start + 2 * BATCH])]

    def pop(self, queue: str, count: int) -> tuple[list[UUID], int]:
        """Take the first `count` ids of a queue; returns them and how many members were there.

        A member that is no id is thrown away.
        """
        (answer,) = self.line.ask(("ZPOPMIN", self.key(queue), count))
        members = answer[::2]
        return read_ids(members), len(members)

    def missing(self, queue: str, jobs: Sequence[Ready]) -> list[Ready]:
        """Those of a queue's jobs that are not in line, or in a wrong place."""
        found: list[Ready] = []
        for start in range(0, len(jobs), BATCH):
            part = jobs[start : start + BATCH]
            names = [str(job.id) for job in part]
            (scores,) = self.line.ask(("ZMSCORE", self.key(queue), *names))
            found += [
                job
                for job, score in zip(part, scores, strict=True)
                if score is None or float(score) != -job.priority
            ]
        return found

    def size(self, queue: str) -> int:
        """How many members a queue's set has."""
        (answer,) = self.line.ask(("ZCARD", self.key(queue)))
        return int(answer)

    def remove(self, queue: str, members: Iterable[str | bytes]) -> None:
        """Take members out of a queue's set."""
        names = list(members)
        for start in range(0, len(names), BATCH):
            self.line.ask(("ZREM", self.key(queue), *names[start : start + BATCH]))

    def pages(self, queue: str) -> Iterator[list[tuple[bytes, float]]]:
        """All members of a queue with their scores, a page at a time; one may come twice."""
        cursor: bytes | str = "0"
        while True:
            ((cursor, flat),) = self.line.ask(("ZSCAN", self.key(queue), cursor, "COUNT", BATCH))
            if flat:
                yield list(zip(flat[::2], map(float, flat[1::2]), strict=True))
            if cursor in (b"0", "0"):
                return

    def queues(self) -> list[str]:
        """The queues that have a key of whatever type."""
        start = self.key("")
        names: set[str] = set()
        cursor: bytes | str = "0"
        while True:
            ((cursor, keys),) = self.line.ask(
                ("SCAN", cursor, "MATCH", _literally(start) + "*", "COUNT", BATCH)
            )
            names.update(key.decode(errors="replace").removeprefix(start) for key in keys)
            if cursor in (b"0", "0"):
                return sorted(names)

    def type_of(self, queue: str) -> str:
        """The type of what is under a queue's key: "zset", "none", or something else's."""
        (answer,) = self.line.ask(("TYPE", self.key(queue)))
        name: str = answer.decode()
        return name

    def clear(self, queue: str) -> None:
        """Remove a queue's key, whatever it holds."""
        self.line.ask(("DEL", self.key(queue)))

    # The memory of Redis

    @property
    def marker(self) -> str:
        """The key that is there as long as Redis has not lost its memory."""
        return f"{self.prefix}:marker"

    @property
    def _refill(self) -> str:
        return f"{self.prefix}:refill"

    def remembers(self) -> bool:
        """Whether Redis still has what it was given."""
        (answer,) = self.line.ask(("GET", self.marker))
        return answer is not None

    def begin_refill(self, token: str) -> bool:
        """Whether filling an empty Redis is now the task of who has this token."""
        (answer,) = self.line.ask(("SET", self._refill, token, "NX", "EX", REFILL))
        return answer is not None

    def go_on(self, token: str) -> bool:
        """Whether the refill is still the task of who has this token; if so it stays so for a while."""
        (answer,) = self.line.ask(("EVAL", _GO_ON, 1, self._refill, token, REFILL))
        return bool(answer)

    def finish_refill(self, token: str) -> bool:
        """Write the marker, unless Redis has lost its memory again meanwhile."""
        keys = (self._refill, self.marker)
        (answer,) = self.line.ask(("EVAL", _FINISH_REFILL, 2, *keys, token))
        return bool(answer)

    def may_evict(self) -> bool:
        """Whether Redis may throw keys away that have no expiry, when its memory is full."""
        (answer,) = self.line.ask(("INFO", "memory"))
        said = dict(line.split(":", 1) for line in answer.decode().splitlines() if ":" in line)
        policy = said.get("maxmemory_policy", "")
        return said.get("maxmemory") != "0" and policy.startswith("allkeys")

    # Cancellations

    @property
    def channel(self) -> str:
        """Where the ids of jobs are said that were cancelled while they ran."""
        return f"{self.prefix}:cancelled"


def shelf_on(line: Line) -> Shelf:
    """The sets of this site, over `line`."""
    return Shelf(line, prefix())


def prefix() -> str:
    """What all keys begin with: the option, else the cache's own prefix, else "jobqueue"."""
    options = conf.options()
    return _prefix(options.redis, options.redis_prefix)


def marker_key() -> str:
    """A key that is on the node of a cluster that has all others, too."""
    return f"{prefix()}:marker"


@functools.lru_cache
def _prefix(alias: str | None, given: str | None) -> str:
    from django.conf import settings

    cache = settings.CACHES.get(alias, {}) if alias else {}
    name = str(given or cache.get("KEY_PREFIX") or "jobqueue")
    # Braces of its own would end the hash tag too soon, and a cluster would spread the keys.
    return f"{{{name.translate(_NO_BRACES)}}}"


_NO_BRACES = str.maketrans("{}", "()")


def read_ids(members: Iterable[bytes]) -> list[UUID]:
    """The ids among members; what is none is left out."""
    found = []
    for member in members:
        try:
            found.append(UUID(member.decode()))
        except ValueError:  # also of bytes that are no text
            continue
    return found


def _literally(text: str) -> str:
    """A pattern of Redis's that matches just this text."""
    return "".join(f"\\{each}" if each in "*?[]^\\" else each for each in text)
