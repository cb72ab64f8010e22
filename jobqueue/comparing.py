"""How everything in Redis is compared with everything that is queued, both ways, page by page.

Both sides move meanwhile. So what seems wrong is looked at again before it is counted; what is pushed once too often
is refused by the claim; and what is removed is looked for in the database once more, and put back if it is queued now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from jobqueue import conf, healing, queues
from jobqueue.findings import Finding, Repaired
from jobqueue.models import Job, Status
from jobqueue.ready import Breaker, Line, Ready, Shelf, shelf_on
from jobqueue.ready.shelf import read_ids

#: Rows of a page: large, since mostly there is nothing to do about them.
PAGE = 5_000

#: What becomes of things that are found.
AFTER = {
    "forgotten": "filled again",
    "mistyped": "filled again",
    "undispatched": "in Redis",
    "misplaced": "moved",
    "stale": "removed",
    "alien": "removed",
}

KINDS = {
    "forgotten": "Redis has lost its memory",
    "mistyped": "key of another type in Redis",
    "undispatched": "queued, missing in Redis",
    "misplaced": "in Redis in a wrong place",
    "stale": "in Redis, not queued",
    "alien": "in Redis, no id of a job",
}


_T = TypeVar("_T")


class _Row(NamedTuple):
    id: UUID
    status: str
    queue: str
    priority: int


def own_shelf() -> Shelf | None:
    """The sets over a line of the caller's own; None where Redis is not used."""
    alias = conf.options().redis
    return None if alias is None else shelf_on(Line(alias, Breaker()))


def compare(shelf: Shelf, *, limit: int | None = None, dry_run: bool = False) -> list[Finding]:
    """One pass over Redis and the database. At most `limit` of a kind are counted and repaired;
    `dry_run` changes nothing. Raises Unreachable, and the database's errors."""
    return _Comparison(shelf, limit, dry_run).run()


class _Comparison:
    def __init__(self, shelf: Shelf, limit: int | None, dry_run: bool) -> None:
        self._shelf = shelf
        self._limit = limit
        self._dry_run = dry_run
        self._findings = {kind: Finding(kind, what) for kind, what in KINDS.items()}

    def run(self) -> list[Finding]:
        if not self._shelf.remembers():
            self._note("forgotten", ["marker"], lambda _: healing.refill(self._shelf))
        keys = self._shelf.queues()
        for queue in [name for name in keys if self._shelf.type_of(name) not in ("zset", "none")]:
            self._note("mistyped", [queue], self._rebuild)
            if self._dry_run:
                keys.remove(queue)
        for queue in sorted({*keys, *queues.claimable()}):
            if queue in keys or self._shelf.type_of(queue) in ("zset", "none"):
                right = self._look_for_what_is_queued(queue)
                # As many in line as are right: then there are no others.
                if self._shelf.size(queue) > right:
                    self._look_at_what_is_in_line(queue)
        return list(self._findings.values())

    def _look_for_what_is_queued(self, queue: str) -> int:
        """Push what is missing; returns how many jobs are in line where they belong."""
        right = 0
        for page in _pages(queue):
            missing = self._shelf.missing(queue, page)
            right += len(page) - len(missing)
            if missing:
                # Some may have been claimed since the page was read.
                still = _rows(job.id for job in missing)
                jobs = [job for job in missing if _is_claimable(still.get(job.id), queue)]
                self._note("undispatched", jobs, self._shelf.push)
        return right

    def _look_at_what_is_in_line(self, queue: str) -> None:
        for members in self._shelf.pages(queue):
            ids = {name: read_ids([name]) for name, _ in members}
            aliens = [name for name, found in ids.items() if not found]
            self._note("alien", aliens, lambda names: self._shelf.remove(queue, names))
            rows = _rows(found[0] for found in ids.values() if found)
            stale, misplaced = [], []
            for name, score in members:
                row = rows.get(ids[name][0]) if ids[name] else None
                if ids[name] and (row is None or row.status != Status.QUEUED):
                    stale.append(name)
                elif row is not None and (
                    row.queue != queue or score != -row.priority or name != str(row.id).encode()
                ):
                    misplaced.append(name)
            self._note("stale", stale, lambda names: self._remove(queue, names))
            self._note("misplaced", misplaced, lambda names: self._remove(queue, names))

    def _remove(self, queue: str, names: Sequence[bytes]) -> None:
        """Take members out of line, and put those back that are queued by now, where they belong."""
        self._shelf.remove(queue, names)
        rows = _rows(read_ids(names)).values()
        back = [Ready(row.id, row.queue, row.priority) for row in rows if row.status == "queued"]
        self._shelf.push(back)

    def _rebuild(self, queues: Sequence[str]) -> None:
        for queue in queues:
            self._shelf.clear(queue)
            for page in _pages(queue):
                self._shelf.push(page)

    def _note(
        self, kind: str, found: Sequence[_T], repair: Callable[[Sequence[_T]], object]
    ) -> None:
        finding = self._findings[kind]
        if self._limit is not None:
            found = found[: max(0, self._limit - finding.found)]
        finding.found += len(found)
        if found and not self._dry_run:
            repair(found)
            finding.note(Repaired(_name(each), finding.what, AFTER[kind]) for each in found)


def _name(found: object) -> str:
    """What a job's id, a member or a key is called."""
    if isinstance(found, Ready):
        return str(found.id)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def _is_claimable(row: _Row | None, queue: str) -> bool:
    return row is not None and row.status == Status.QUEUED and row.queue == queue


def _rows(ids: Iterable[UUID]) -> dict[UUID, _Row]:
    jobs = Job.objects.using(conf.options().database).filter(pk__in=list(ids))
    rows = jobs.values_list("id", "status", "queue_name", "priority")
    return {row[0]: _Row(*row) for row in rows}


def _pages(queue: str) -> Iterator[list[Ready]]:
    after: Ready | None = None
    while page := healing.first(queue, PAGE, after=after):
        yield page
        after = page[-1]
        if len(page) < PAGE:
            return
