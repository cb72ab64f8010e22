"""Rows to look at: jobs of every state, workers, queues, and values that a page might stumble over."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from jobqueue.models import AuditEntry, Job, JobLog, Queue, Sweep, Tally, Worker, worker_name
from tests.factories import JobFactory, QueueFactory, WorkerFactory, ago, now

EVIL = (
    '<script>window.__xss=1</script><img src=x onerror="window.__xss=2">\'">'
    '<svg onload="window.__xss=3">'
)
RIGHT_TO_LEFT = "\u202eשלום עולם مرحبا 🜁"
EXACT = 9007199254740993
SECRET = "hush-hush-7319"
CANARY = "canary-5417"

TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/shop/mail.py", line 12, in send
    server.deliver(message, note="{CANARY}")
  File "/usr/lib/python3/site-packages/smtp/client.py", line 88, in deliver
    raise ServerBusy("451 try again later")
shop.mail.ServerBusy: 451 try again later
"""


@dataclass(slots=True)
class Seeded:
    """What there is, by name."""

    jobs: dict[str, Job] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)


def seed(*, failed: int = 130, large: int = 14_000_000) -> Seeded:
    """Fill the tables as a site in use would have filled them."""
    seeded = Seeded()
    for name in ("default", "mail", EVIL[:60]):
        QueueFactory(name=name)
    Queue.objects.filter(name="mail").update(
        paused_at=ago(2_520), paused_by="Ada", pause_reason="the provider is down"
    )
    _workers(seeded)
    _jobs(seeded, failed, large)
    _sweeps(seeded)
    _tallies()
    AuditEntry.objects.create(
        at=ago(300),
        actor_id="7",
        actor_name="Ada",
        verb="requeue",
        target_kind="job",
        target="state=failed",
        reason=f"again {EVIL}",
        chosen=3,
        changed=2,
        skipped={"it is queued": 1},
    )
    return seeded


def _workers(seeded: Seeded) -> None:
    for name, age, state in (
        ("alive", 1, "running"),
        ("late", 22, "running"),
        ("silent", 200, "running"),
        ("gone", 4_000, "gone"),
        ("quiet", 1, "quiet"),
    ):
        seeded.workers[name] = WorkerFactory(
            host=f"{name}.example", heartbeat_at=ago(age), state=state, memory=81_000_000
        )
    WorkerFactory(host=EVIL[:100], heartbeat_at=ago(2), queues=[EVIL[:60]], version="<b>9</b>")


def _jobs(seeded: Seeded, failed: int, large: int) -> None:
    jobs = seeded.jobs
    for number in range(failed):
        JobFactory(
            failed=True,
            task_path="shop.mail.send",
            args=[number],
            kwargs={"to": f"user{number}@example.com", "note": CANARY},
            error="ServerBusy: 451 try again later",
        )
    for state in ("queued", "scheduled", "completed", "cancelled", "stopping"):
        for number in range(4):
            jobs[state] = JobFactory(
                **{state: True}, task_path="shop.orders.charge", kwargs={"order": number}
            )
    jobs["completed"].return_value = {"charged": [1, 2, CANARY]}
    jobs["completed"].save()
    jobs["paused"] = JobFactory(queue_name="mail", task_path="shop.mail.send")
    jobs["retrying"] = JobFactory(
        scheduled=True, started=True, attempt=2, error="ServerBusy: 451 try again later"
    )
    alive = seeded.workers["alive"]
    for name, owner, expires, begun in (
        ("processing", alive, -25, 180),
        ("lost", seeded.workers["silent"], 200, 400),
    ):
        jobs[name] = JobFactory(
            processing=True,
            task_path="shop.reports.build",
            lease_owner=owner.pk,
            lease_expires_at=ago(expires),
            attempted_at=ago(begun),
            started_at=ago(begun),
            run_after=ago(begun + 60),
            worker=worker_name(owner.host, owner.pid, owner.pk),
            progress={"done": 3, "total": 20, "message": "page 4 of 20"},
        )
    jobs["failed"] = JobFactory(
        failed=True,
        attempt=3,
        max_attempts=3,
        task_path="shop.mail.send",
        args=[1, 2.5, None, True, "text"],
        kwargs={
            "to": "ada@example.com",
            "exact": EXACT,
            "deep": {"list": [{"password": SECRET, "kept": CANARY}]},
            "many": list(range(1_000)),
        },
        error="ServerBusy: 451 try again later",
    )
    for attempt in (1, 2, 3):
        _line(jobs["failed"], attempt, 40 - attempt * 10)
    jobs["evil"] = JobFactory(
        failed=True,
        task_path=f"shop.{EVIL}"[:300],
        queue_name=EVIL[:60],
        args=[EVIL, RIGHT_TO_LEFT],
        kwargs={EVIL: EVIL, RIGHT_TO_LEFT: [EVIL]},
        error=f"Wrong: {EVIL}",
        worker=EVIL[:150],
        idempotency_key=EVIL[:200],
    )
    _line(jobs["evil"], 1, 5, EVIL)
    jobs["tried"] = JobFactory(
        failed=True, attempt=500, max_attempts=500, task_path="shop.mail.retry"
    )
    JobLog.objects.bulk_create(
        JobLog(
            job=jobs["tried"],
            event=JobLog.Event.ERRORED,
            created_at=ago(6_000 - attempt * 10),
            attempt=attempt,
            level="error",
            worker="host:1:00000000",
            message="ServerBusy: 451 try again later",
            data={"exception": "shop.mail.ServerBusy", "traceback": TRACEBACK, "delay": 2.0},
        )
        for attempt in range(1, 501)
    )
    if large:
        jobs["large"] = JobFactory(failed=True, kwargs={"text": "x" * large, "exact": EXACT})


def _line(job: Job, attempt: int, age: float, text: str = "") -> None:
    JobLog.objects.create(
        job=job,
        event=JobLog.Event.ERRORED,
        created_at=ago(age),
        attempt=attempt,
        level="error",
        worker=text[:150] or "host:1:00000000",
        message=f"ServerBusy: 451 try again later{text}",
        data={"exception": "shop.mail.ServerBusy", "traceback": TRACEBACK + text, "delay": 2.0},
    )


def _sweeps(seeded: Seeded) -> None:
    quiet = {"finished_at": now(), "passes": 41, "worker": "host:1:00000000"}
    Sweep.objects.create(started_at=ago(45), took=0.004, found={"due": 3}, **quiet)
    Sweep.objects.create(
        started_at=ago(90),
        finished_at=ago(90) + timedelta(milliseconds=80),
        took=0.08,
        worker="host:1:00000000",
        found={"lost": 1},
        repaired={"lost": 1},
        repairs=[
            ["lost", str(seeded.jobs["retrying"].pk), "processing", "scheduled"],
            ["lost", str(uuid.uuid4()), "processing", "failed"],
        ],
        left=[["lost", str(seeded.jobs["evil"].pk), EVIL]],
        eventful=True,
    )


def _tallies() -> None:
    """One span of an hour's chart in which something ended, and the same for the longer ones."""
    for span in (60, 900, 7_200):
        start = now()
        start -= timedelta(seconds=start.timestamp() % span)
        for path, queue in (("shop.mail.send", "mail"), (f"shop.{EVIL}"[:300], EVIL[:60])):
            Tally.objects.create(
                span=span,
                starts_at=start,
                queue_name=queue,
                task_path=path,
                completed=40,
                failed=5,
                retried=9,
                waits={"4": 54},
                runs={"6": 54},
                last_error=f"ServerBusy: 451 {EVIL}",
            )
