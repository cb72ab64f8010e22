"""`python -m tests.chaos.enqueuer N SEED RATE KINDS`: one process that makes jobs, and unmakes some.

It says what it is about to ask for, and what became of that: `committed`, `rolled_back`, or `unknown` where the
answer was lost. A call has an argument of its own, by which its row is known whoever lived to see the job's id.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.chaos import record

#: Calls whose jobs wait: beyond that many an enqueuer holds back.
ENOUGH = 1_500

#: What jobs there are, and how often each comes beside the others.
KINDS: dict[str, float] = {
    "quick": 40,
    "quick_async": 15,
    "many": 6,
    "long": 3,
    "long_async": 3,
    "failing": 8,
    "hopeless": 2,
    "crashing": 0.3,
    "overrunning": 0.8,
    "stubborn": 0.1,
    "snoozing": 3,
    "writing": 8,
    "delayed": 4,
    "keyed": 5,
    "cancel": 5,
    "requeue": 4,
}

Ask = Callable[[], list[Any]]


class Refusal(Exception):
    """Raised to have a transaction rolled back."""


class Enqueuer:
    """Asks for jobs at a steady pace until the run is over."""

    def __init__(self, number: int, seed: str, rate: float, kinds: dict[str, float]) -> None:
        self._rng = random.Random(f"{seed} {number}")
        self._name = f"{number}.{os.getpid()}"
        self._rate = rate
        self._kinds = kinds or KINDS
        self._count = 0
        self._recent: deque[str] = deque(maxlen=300)
        folder = record.folder()
        assert folder is not None
        self._end: Path = folder / "enough"

    def run(self) -> None:
        """Ask for jobs, in turns of a transaction each."""
        began, asked, look_at = time.monotonic(), 0, 0.0
        while not self._end.exists():
            asked += self._turn()
            now = time.monotonic()
            if now > look_at:
                look_at = now + 0.5
                if self._is_enough():
                    began, asked = now + 0.5, 0
            time.sleep(max(0.0, began + asked / self._rate - now))
            if began + asked / self._rate < now - 2:
                began, asked = now, 0  # what a fault has cost is not made up for in one go

    def _is_enough(self) -> bool:
        from django.db import DatabaseError, InterfaceError, connection

        from jobqueue.models import WAITING, Job

        try:
            return Job.objects.filter(status__in=WAITING).count() > ENOUGH
        except (DatabaseError, InterfaceError):
            connection.close()
            time.sleep(0.2)
            return False

    def _turn(self) -> int:
        """One transaction, or one act on a job that there is already; returns how many were asked for."""
        kind = self._pick()
        if kind in ("cancel", "requeue"):
            self._act(kind)
            return 0
        how = self._rng.choices(["alone", "together", "back", "savepoint"], [6, 3, 1, 1])[0]
        if kind == "many":
            calls = [self._call() for _ in range(self._rng.randint(40, 120))]
            asks = [(calls, self._many(calls))]
        else:
            kinds = [kind] if how == "alone" else [kind, *(self._pick(jobs=True) for _ in range(2))]
            asks = [self._ask(each) for each in kinds]
        self._transact(how, asks)
        return sum(len(calls) for calls, _ in asks)

    def _pick(self, *, jobs: bool = False) -> str:
        names = [n for n in self._kinds if not (jobs and n in ("cancel", "requeue", "many"))]
        return self._rng.choices(names, [self._kinds[name] for name in names])[0]

    def _call(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    # Transactions

    def _transact(self, how: str, asks: list[tuple[list[str], Ask]]) -> None:
        from django.db import DatabaseError, InterfaceError, connection, transaction

        calls = [call for each, _ in asks for call in each]
        record.say("asked", calls=calls, how=how)
        within = False
        made: list[Any] = []
        kept: list[str] = []
        lost: list[str] = []
        try:
            if how == "alone":
                made, kept = asks[0][1](), calls
            else:
                with transaction.atomic():
                    within = True
                    for index, (each, ask) in enumerate(asks):
                        if how == "savepoint" and index == 1:
                            with contextlib.suppress(Refusal), transaction.atomic():
                                ask()
                                raise Refusal
                            lost = each
                        else:
                            made += ask()
                            kept += each
                    if how == "back":
                        raise Refusal
                    within = False
        except Refusal:
            record.say("rolled_back", calls=calls)
        except (DatabaseError, InterfaceError) as error:
            record.say("rolled_back" if within else "unknown", calls=calls, why=str(error)[:80])
            connection.close()
            time.sleep(0.1)
        else:
            jobs = [(result.id, result.created) for result in made]
            record.say("committed", calls=kept, jobs=jobs)
            if lost:
                record.say("rolled_back", calls=lost)
            self._recent.extend(job for job, _ in jobs)

    def _ask(self, kind: str) -> tuple[list[str], Ask]:
        from tests.chaos import tasks

        rng = self._rng
        call = self._call()
        priority = {"priority": rng.choice([0, 0, 0, 5, -5])}
        queue = {"queue_name": rng.choice(["default", "default", "urgent", "bulk"])}
        using: dict[str, Any] = priority | queue
        arguments: dict[str, Any] = {}
        match kind:
            case "long" | "long_async":
                # Some beyond a lease.
                arguments = {"seconds": rng.choice([0.2, 0.5, 1.0, 2.0, 5.0])}
            case "short":
                kind, arguments = "long", {"seconds": rng.uniform(0.2, 1.0)}
            case "steady":
                kind, arguments = "long", {"seconds": 3.5}
            case "failing":
                arguments = {"times": rng.choice([1, 2, 9])}
            case "slowly_failing":
                kind, arguments = "failing", {"times": rng.choice([1, 9]), "seconds": 1.0}
            case "crashing":
                arguments = {"times": rng.choice([1, 1, 9]), "hard": rng.random() < 0.5}
            case "snoozing":
                arguments = {"times": rng.choice([1, 2])}
            case "writing":
                arguments = {"fails": rng.random() < 0.2, "seconds": rng.choice([0, 0, 0, 0.3])}
            case "delayed":
                # By the machine's clock, not by this process's.
                later = datetime.fromtimestamp(record.moment(), UTC)
                using["run_after"] = later + timedelta(seconds=rng.uniform(0.1, 3.0))
                kind = "quick"
            case "keyed":
                # The same key for all who ask within some moments, and so the same call.
                call = f"key-{int(record.moment()) // 2}-{rng.randrange(3)}"
                using = {"idempotency_key": call}
                kind = "quick"
        task = getattr(tasks, kind).using(**using)
        return [call], lambda: [task.enqueue(call=call, **arguments)]

    def _many(self, calls: list[str]) -> Ask:
        from jobqueue import enqueue_many
        from tests.chaos.tasks import quick

        return lambda: list(enqueue_many([quick.bind(call=call) for call in calls]))

    # What is done to jobs that there are

    def _act(self, kind: str) -> None:
        from django.db import DatabaseError, InterfaceError, connection

        import jobqueue
        from jobqueue.models import Job

        if not self._recent:
            time.sleep(0.02)
            return
        # Mostly one of the last, which may just run.
        latest = len(self._recent) - 1
        index = max(0, latest - int(self._rng.expovariate(1 / 5)))
        job = self._recent[index]
        record.say(f"{kind}_asked", job=job)
        try:
            answer: bool | None = getattr(jobqueue, kind)(job, reason="the fault run")
        except Job.DoesNotExist:
            answer = False
        except (DatabaseError, InterfaceError):
            answer = None
            connection.close()
            time.sleep(0.1)
        record.say(f"{kind}_answered", job=job, answer=answer)


def main(number: str, seed: str, rate: str, kinds: str) -> None:
    """Make this an enqueuer of the run."""
    from tests.chaos.process import prepare

    prepare()
    Enqueuer(int(number), seed, float(rate), json.loads(kinds)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
