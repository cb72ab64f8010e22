"""How each fault of a plan is done."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from tests.chaos import killpoints, record
from tests.chaos.fleet import Fleet, Member
from tests.chaos.plan import Act
from tests.servers import PrivatePostgres, PrivateRedis

_T = TypeVar("_T")


def _pick(among: Sequence[_T], choice: float) -> _T | None:
    return among[min(int(choice * len(among)), len(among) - 1)] if among else None


class ProcessFaults:
    """What is done to processes, by the driver's own loop."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._reconciles: list[tuple[float, Member]] = []

    def do(self, act: Act) -> None:
        """Do one of them, if there is somebody to do it to."""
        getattr(self, f"_{act.name}")(act)

    def tend(self) -> None:
        """Kill the `reconcile` whose time has come."""
        now = time.monotonic()
        for at, member in list(self._reconciles):
            if now >= at:
                self._reconciles.remove((at, member))
                if member.runs:
                    self._fleet.kill(member.pid, member=member)

    def _group(self, act: Act) -> Member | None:
        return _pick(self._fleet.of("group"), act.choice)

    def _worker(self, act: Act) -> int | None:
        workers = [pid for group in self._fleet.of("group") for pid in group.workers]
        return _pick(workers, act.choice)

    def _kill_worker(self, act: Act) -> None:
        if pid := self._worker(act):
            self._fleet.kill(pid)

    def _late_repair(self, act: Act) -> None:
        killpoints.arm(self._fleet.folder, "recover.locked", "stop")
        self._kill_worker(act)

    def _kill_supervisor(self, act: Act) -> None:
        if group := self._group(act):
            self._fleet.kill(group.pid, member=group)

    def _kill_group(self, act: Act) -> None:
        if group := self._group(act):
            self._fleet.kill(group.pid, *group.workers, member=group)

    def _kill_enqueuer(self, act: Act) -> None:
        if member := _pick(self._fleet.of("enqueuer"), act.choice):
            self._fleet.kill(member.pid, member=member)

    def _stop_worker(self, act: Act) -> None:
        if pid := self._worker(act):
            self._fleet.stop([pid], act.seconds)

    def _stop_supervisor(self, act: Act) -> None:
        if group := self._group(act):
            self._fleet.stop([group.pid], act.seconds)

    def _stop_group(self, act: Act) -> None:
        if group := self._group(act):
            self._fleet.stop([group.pid, *group.workers], act.seconds)

    def _terminate(self, act: Act) -> None:
        if group := self._group(act):
            self._fleet.terminate(group)
            if act.choice * 10 % 1 < 0.3:  # once more: in haste
                self._fleet.terminate(group)

    def _reconcile(self, act: Act) -> None:
        member = self._fleet.start_reconcile("--every", "0.1")
        self._reconciles.append((time.monotonic() + 1.0 + act.seconds, member))

    def _point(self, act: Act) -> None:
        killpoints.arm(self._fleet.folder, *act.words)


class ServerFaults:
    """What is done to servers, one after the other, in a thread: some take their time."""

    def __init__(self, postgres: PrivatePostgres, redis: PrivateRedis | None, prefix: str) -> None:
        self._postgres = postgres
        self._redis = redis
        self._prefix = prefix
        self.count = 0
        self.problems: list[str] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, acts: Sequence[Act], began: float) -> None:
        """Begin to do them, each at its time."""
        self._thread = threading.Thread(target=self._run, args=(acts, began))
        self._thread.start()

    def end(self) -> None:
        """Do no more of them; everything is up again when it returns."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, acts: Sequence[Act], began: float) -> None:
        for act in acts:
            if self._over.wait(max(0.0, began + act.at - time.monotonic())):
                return
            try:
                record.say("fault", name=act.name, seconds=act.seconds)
                self._do(act)
                self.count += 1
            except Exception as error:
                self.problems.append(f"{act.name}: {error!r}")
            finally:
                record.say("fault_over", name=act.name)

    def _do(self, act: Act) -> None:
        faults: dict[str, Callable[[Act], Any]] = {
            "cut_all": lambda _: self._postgres.cut_connections(),
            "cut_some": self._cut_some,
            "restart_fast": lambda act: self._postgres.restart("fast", down_for=act.seconds),
            "restart_immediate": lambda a: self._postgres.restart("immediate", down_for=a.seconds),
            "redis_stop": self._redis_stop,
            "redis_restart": self._redis_stop,
            "redis_flush": lambda _: self._ask_redis(("FLUSHALL",)),
            "redis_fill": self._redis_fill,
            "redis_lie": self._redis_lie,
        }
        faults[act.name](act)

    def _cut_some(self, act: Act) -> None:
        self._postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND random() < %s",
            0.2 + act.choice / 2,
        )

    def _redis_stop(self, act: Act) -> None:
        assert self._redis is not None
        longer = 2.0 if act.name == "redis_stop" else 0.0
        self._redis.restart(down_for=act.seconds + longer)

    def _ask_redis(self, *commands: tuple[Any, ...]) -> None:
        assert self._redis is not None
        import redis

        with contextlib.closing(redis.Redis.from_url(self._redis.url)) as client:
            for command in commands:
                client.execute_command(*command)

    def _redis_fill(self, act: Act) -> None:
        self._ask_redis(("CONFIG", "SET", "maxmemory", "1"))
        time.sleep(act.seconds)
        self._ask_redis(("CONFIG", "SET", "maxmemory", "0"))

    def _redis_lie(self, act: Act) -> None:
        """Ids of nobody, text that is none, a key of another type."""
        key = f"{{{self._prefix}}}:ready:"
        lies: list[Any] = []
        for _ in range(50):
            lies += [-5, str(uuid4()), 0, secrets.token_hex(8)]
        self._ask_redis(("DEL", key + "bulk"), ("SET", key + "bulk", "not a set"))
        self._ask_redis(("ZADD", key + "default", *lies), ("ZADD", key + "nobody", *lies))
