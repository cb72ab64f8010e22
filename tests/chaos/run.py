"""One run from start to verdict: load, faults, a quiet time in which everything may end, and the checks."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from django.core.management import call_command
from django.db import connection

from jobqueue.models import FINAL, Job, Worker
from jobqueue.ready import pushing
from tests.chaos import audit, checks, ground, killpoints, record, tasks
from tests.chaos.excuses import Excuses
from tests.chaos.faults import ProcessFaults, ServerFaults
from tests.chaos.fleet import Fleet
from tests.chaos.history import History, Past
from tests.chaos.plan import Plan
from tests.servers import PrivatePostgres, PrivateRedis

#: Seconds between two looks of the driver.
PACE = 0.05
#: A driver that comes so much too late was not the only one who got no time.
STARVED = 1.0
#: Seconds after the last fault in which every job must end: leases, backoffs, and what is in line.
QUIET = 60.0
#: Jobs of an idle site, each of which must begin at once although nobody looks for it for a long time.
CANARIES = 5
LONG_TICK, AT_ONCE = 8.0, 3.0
#: Whole histories that are printed.
SHOWN = 4


class Run:
    """What `python -m tests.chaos` does."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        postgres: PrivatePostgres,
        redis: PrivateRedis | None,
        variables: dict[str, str],
    ) -> None:
        self._plan = plan
        self._postgres = postgres
        self._redis = redis
        self._fleet = Fleet(plan, folder, variables)
        self._processes = ProcessFaults(self._fleet)
        self._servers = ServerFaults(postgres, redis, "chaos")
        self._violations: list[str] = []
        self._broken: list[tuple[str, History]] = []
        self._executions = 0

    def whole(self) -> int:
        """The run, and its exit code."""
        plan = self._plan
        said = f", focus {plan.focus}" if plan.focus else ""
        store = "with Redis" if self._redis else "without Redis"
        print(f"chaos: seed {plan.seed}, {plan.seconds:g} s{said}, {store}", flush=True)
        call_command("migrate", verbosity=0, interactive=False)
        audit.install()
        try:
            self._fleet.start_all()
            self._await_workers(len(plan.groups))
            self._disturb()
            self._calm_down()
            if plan.has_canaries:
                self._try_canaries()
            self._stop()
            jobs = self._judge()
        finally:
            self._servers.end()
            self._fleet.end_all()
        return self._tell(jobs)

    def _await_workers(self, count: int) -> None:
        until = time.monotonic() + QUIET
        while Worker.objects.filter(state="running").values("pid").distinct().count() < count:
            if time.monotonic() > until:
                raise RuntimeError("the workers did not start")
            time.sleep(PACE)

    # The faults

    def _disturb(self) -> None:
        connection.close()
        acts = list(self._plan.processes)
        began = before = time.monotonic()
        self._servers.start(self._plan.servers, began)
        while (now := time.monotonic()) < began + self._plan.seconds:
            self._watch_the_clock(before, now)
            before = now
            while acts and acts[0].at <= now - began:
                self._processes.do(acts.pop(0))
            self._processes.tend()
            self._fleet.tend()
            time.sleep(PACE)

    def _watch_the_clock(self, before: float, now: float) -> None:
        if now - before > STARVED:
            record.say("starved", since=record.moment() - (now - before))

    def _calm_down(self) -> None:
        """End all faults, and wait until everything that was accepted has ended."""
        self._servers.end()
        killpoints.disarm(self._fleet.folder)
        self._fleet.continue_all()
        (self._fleet.folder / "enough").touch()
        for member in self._fleet.of("enqueuer"):
            member.asked = "end"
        for member in self._fleet.of("reconcile"):
            self._fleet.kill(member.pid, member=member)
        began = before = time.monotonic()
        while time.monotonic() < began + QUIET:
            now = time.monotonic()
            self._watch_the_clock(before, now)
            before = now
            self._fleet.tend(replace=["group"])
            if not self._fleet.of("enqueuer") and not self._open():
                break
            time.sleep(4 * PACE)
        print(f"all is quiet after {time.monotonic() - began:.1f} s", flush=True)

    def _open(self) -> int:
        return Job.objects.exclude(status__in=FINAL).count() + (
            Job.objects.filter(lease_owner__isnull=False).count()
        )

    # An idle site

    def _try_canaries(self) -> None:
        """A worker that hardly ever looks by itself starts a job at once: word of it gets through."""
        self._end_groups()
        self._fleet.start_group(0, tick=LONG_TICK)
        self._await_workers(1)
        waited = []
        for number in range(CANARIES):
            call = f"canary-{number}"
            record.say("asked", calls=[call], how="alone")
            job = tasks.quick.enqueue(call=call)
            began = time.monotonic()
            record.say("committed", calls=[call], jobs=[(job.id, True)])
            while not Job.objects.filter(pk=job.id, status__in=FINAL).exists():
                if time.monotonic() > began + QUIET:
                    break
                time.sleep(0.01)
            waited.append(time.monotonic() - began)
            time.sleep(0.2)  # until the worker has nothing to look for any more
        if sum(each > AT_ONCE for each in waited) > 1:
            each = ", ".join(f"{seconds:.1f}" for seconds in waited)
            self._violations.append(f"jobs of an idle site waited {each} s")

    def _end_groups(self) -> None:
        for member in self._fleet.of("group"):
            self._fleet.terminate(member)
        until = time.monotonic() + QUIET
        while self._fleet.of("group") and time.monotonic() < until:
            self._fleet.tend(replace=())
            time.sleep(PACE)
        self._fleet.tend(replace=())

    def _stop(self) -> None:
        self._end_groups()
        self._violations += ground.reconciled()
        if self._redis is not None:
            pushing.forget()  # the driver's own connection
            gc.collect()
            self._violations += ground.redis_is_empty(self._redis, "chaos")
        self._violations += ground.nothing_is_left(self._fleet, self._postgres)

    # The verdict

    def _judge(self) -> int:
        past = Past(self._fleet.folder)
        excuses = Excuses(past, self._plan.options["lease"], ground.ended(self._fleet))
        self._violations += [f"a fault failed: {each}" for each in self._servers.problems]
        self._violations += ground.calls(past)
        self._violations += ground.exits(past, self._fleet, excuses)
        for job in past.jobs.values():
            self._broken += [(words, job) for words in checks.check(job, excuses)]
            self._executions += len(job.executions)
        jobs = [job for job in past.jobs.values() if job.row]
        self._describe(jobs, past, excuses)
        return len(jobs)

    def _describe(self, jobs: Iterable[History], past: Past, excuses: Excuses) -> None:
        statuses = Counter(job.row["status"] for job in jobs)
        events = Counter(line["event"] for job in jobs for line in job.log)
        points = Counter(line["point"] for line in past.of("killed", "stopped", "cut"))
        faults = Counter(line["name"] for line in past.of("fault"))
        crashes = len(past.of("crashed"))
        lost = Counter(
            excuses.for_losing(move)
            for job in jobs
            for move in job.moves
            if checks.ends(move)
            and move.was
            and checks.ending(job, move.was.attempt, move) == "lost"
        )
        print(f"jobs: {_counted(statuses)}; executions: {self._executions}; crashes: {crashes}")
        print(f"log: {_counted(events)}")
        print(f"lost, since their worker was: {_counted(lost)}")
        print(f"kill points: {_counted(points)}")
        print(f"server faults: {_counted(faults)}", flush=True)

    def _tell(self, jobs: int) -> int:
        for number, (words, job) in enumerate(self._broken):
            print(f"VIOLATION: job {job.id} ({job.kind}) {words}")
            if number < SHOWN:
                print(job)
        # Last, where who sees only the end of it looks: what is true of a process is the cause of the rest.
        for words in self._violations:
            print(f"VIOLATION: {words}")
        violations = len(self._violations) + len(self._broken)
        kills = self._fleet.kills + len(self._fleet.self_kills)
        print(
            f"chaos: {jobs} jobs, {kills} kills, {self._servers.count} server faults, "
            f"{violations} violations, seed {self._plan.seed}",
            flush=True,
        )
        return 1 if violations else 0


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"
