"""Exact places to die: named functions of the queue, patched from outside in the processes of a run.

A file in the run's folder arms a place, and the first process that passes takes the file and does what it says:
`kill` (SIGKILL itself), `stop` (SIGSTOP itself, until the driver lets it go on) or `cut` (lose its connection to the
database).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos import record

if TYPE_CHECKING:
    from jobqueue.child import Child

#: Every place, in the order in which a job comes past them, and what may be done there.
POINTS: dict[str, tuple[str, ...]] = {
    "enqueue.inserted": ("kill", "cut"),
    "dispatch.committed": ("kill", "kill", "stop"),
    "claim.popped": ("kill", "stop"),
    "claim.claimed": ("kill", "kill", "stop"),
    "body": ("kill", "stop"),
    "settle.before": ("kill", "stop", "cut"),
    "settle.inside": ("kill", "stop", "cut"),
    "settle.after": ("kill", "stop"),
    "heartbeat": ("kill", "cut"),
    "recover.found": ("kill", "stop"),
    "recover.locked": ("kill", "stop", "cut"),
    "cancel.heard": ("kill", "stop"),
    "release": ("kill", "stop", "cut"),
    "supervisor.repair": ("kill", "stop"),
}


def armed(room: Path) -> Path:
    """Where the files lie that arm places."""
    return room / "armed"


def arm(room: Path, point: str, action: str) -> None:
    """Have the first process that passes do it."""
    # Put in place whole: who passes takes the file as soon as it has its name.
    written = room / f"arming-{point}"
    written.write_text(action)
    written.rename(armed(room) / point)


def disarm(room: Path) -> None:
    """Nobody is to do anything any more."""
    for path in armed(room).iterdir():
        path.unlink(missing_ok=True)


def hit(point: str) -> None:
    """This process passes a place."""
    named = os.environ.get(record.VARIABLE)
    if named is None:
        return
    path = f"{named}/armed/{point}"
    taken = f"{path}.{os.getpid()}"
    try:
        os.rename(path, taken)
    except FileNotFoundError:
        return
    action = Path(taken).read_text()
    os.unlink(taken)
    _ACTIONS[action](point)


def children(pid: int) -> list[int]:
    """The processes right below one."""
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _kill(point: str) -> None:
    record.say("killed", point=point, children=children(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(point: str) -> None:
    record.say("stopped", point=point)
    os.kill(os.getpid(), signal.SIGSTOP)


def _cut(point: str) -> None:
    from django.db import connection

    if connection.connection is not None and not connection.connection.closed:
        record.say("cut", point=point)
        with socket.socket(fileno=os.dup(connection.connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


_ACTIONS: dict[str, Callable[[str], None]] = {"kill": _kill, "stop": _stop, "cut": _cut}


def install() -> None:
    """Patch the places into this process and what it forks."""
    from django.db import connections

    import jobqueue.lifecycle as lifecycle
    from jobqueue import dispatch, reconcile
    from jobqueue.child import Child
    from jobqueue.lifecycle import enqueueing, recovering, settling
    from jobqueue.popping import Popper
    from jobqueue.slots import Slots
    from jobqueue.supervisor import Supervisor
    from jobqueue.worker import Worker

    def in_transaction(using: str, *_: Any) -> bool:
        return connections[using].in_atomic_block

    _after(enqueueing, "_insert", "enqueue.inserted", unless=lambda _, *a: not in_transaction(*a))
    _before(dispatch, "_tell", "dispatch.committed")
    _after(Popper, "take", "claim.popped", unless=lambda taken, *_: not taken)
    _after(lifecycle, "claim", "claim.claimed", unless=lambda claimed, *_: not claimed)
    _after(lifecycle, "exchange", "claim.claimed", unless=lambda done, *_: not done.claimed)
    _after(lifecycle, "exchange", "settle.after", unless=lambda done, *_: not done.settled.written)
    _after(Slots, "take_ended", "settle.before", unless=lambda ended, *_: not ended)
    _after(settling, "_settle_plainly", "settle.inside")
    _after(settling, "_write", "settle.inside", unless=lambda done, *_: not done)
    _after(lifecycle, "settle", "settle.after", unless=lambda settled, *_: not settled.written)
    _before(lifecycle, "heartbeat", "heartbeat")
    _before(reconcile, "_attempt", "recover.found")
    _after(recovering, "_lock", "recover.locked", unless=lambda rows, *_: not rows)
    _before(Worker, "_on_tell", "cancel.heard", unless=lambda _, told: not told)
    _before(lifecycle, "hand_back", "release")
    _before(Worker, "_leave", "release")
    _before(Supervisor, "_repair_one", "supervisor.repair")
    _tell_of_kills(Child)


def _tell_of_kills(child: type[Child]) -> None:
    """A supervisor ends a worker: no place to die, but to be known afterwards."""
    original = child.kill

    def patched(self: Child) -> None:
        record.say("ended", pids=[self.pid])
        original(self)

    child.kill = patched  # type: ignore[method-assign]


def _before(
    owner: Any, name: str, point: str, *, unless: Callable[..., bool] | None = None
) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        if unless is None or not unless(*args):
            hit(point)
        return original(*args, **kwargs)

    setattr(owner, name, patched)


def _after(owner: Any, name: str, point: str, *, unless: Callable[..., bool] | None = None) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        if unless is None or not unless(answer, *args):
            hit(point)
        return answer

    setattr(owner, name, patched)
