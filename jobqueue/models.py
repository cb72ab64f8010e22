"""What a job is: its tables, and the constraints that are the last guard of the design."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.db.models import F, Q

from jobqueue import ids
from jobqueue.attempts import MAX_KEY, MAX_QUEUE_NAME, MAX_TASK_PATH
from jobqueue.fields import ExactJSONField

if TYPE_CHECKING:
    from jobqueue.lifecycle import Counts


class Status(models.TextChoices):
    """Where a job stands. The last three are final."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
WAITING = frozenset({Status.SCHEDULED, Status.QUEUED})


class JobQuerySet(models.QuerySet["Job"]):
    """Many jobs at once. The changes go through the lifecycle, one short transaction a batch."""

    def cancel(self, actor: Any = None, reason: str = "") -> Counts:
        """Cancel those that are not final yet; see `jobqueue.cancel`."""
        from jobqueue import lifecycle  # the lifecycle is built on the models

        return lifecycle.cancel_many(self, actor=actor, reason=reason)

    def requeue(self, actor: Any = None, reason: str = "") -> Counts:
        """Queue those that are final once more; see `jobqueue.requeue`."""
        from jobqueue import lifecycle  # the lifecycle is built on the models

        return lifecycle.requeue_many(self, actor=actor, reason=reason)


class Job(models.Model):
    """One enqueued call of a task, from its acceptance to its end.

    `finished_at - attempted_at` is how long the last attempt ran, `attempted_at - run_after` how long it had
    waited. `attempt` counts claims and only goes up; `given_back` counts those that were not spent.
    `lease_owner` and `lease_expires_at` say who may write the outcome, and until when. On a cancelled row they
    mean that its code has not let go yet.
    """

    id = models.UUIDField(primary_key=True, default=ids.uuid7, editable=False)
    task_path = models.CharField(max_length=MAX_TASK_PATH)
    args = ExactJSONField(default=list)
    kwargs = ExactJSONField(default=dict)
    queue_name = models.CharField(max_length=MAX_QUEUE_NAME, default="default")
    priority = models.SmallIntegerField(default=0)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    run_after = models.DateTimeField()
    enqueued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    attempted_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    given_back = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField()
    timeout = models.FloatField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=200, default="", blank=True)
    idempotency_key = models.CharField(max_length=MAX_KEY, null=True, blank=True)
    return_value = ExactJSONField(null=True, blank=True)
    error = models.TextField(default="", blank=True)
    progress = ExactJSONField(null=True, blank=True)

    objects: ClassVar[models.Manager[Job]] = JobQuerySet.as_manager()

    if TYPE_CHECKING:
        log: models.Manager[JobLog]

    class Meta:
        default_permissions = ("view",)
        permissions = [
            ("view_job_args", "Can see jobs' arguments and results"),
            ("requeue_job", "Can requeue jobs and run them now"),
            ("cancel_job", "Can cancel jobs"),
            ("purge_job", "Can purge jobs"),
            ("bulk_job", "Can change all jobs that match"),
        ]
        # Partial, so that ten million finished rows cost the hot path nothing; none holds the lease's expiry, so
        # that a heartbeat changes no index.
        indexes = [
            models.Index(
                "queue_name",
                F("priority").desc(),
                "id",
                name="jobqueue_claimable",
                condition=Q(status="queued"),
            ),
            models.Index("run_after", name="jobqueue_due", condition=Q(status="scheduled")),
            models.Index("id", name="jobqueue_leased", condition=Q(lease_owner__isnull=False)),
            models.Index("id", name="jobqueue_failed", condition=Q(status="failed")),
            models.Index("id", name="jobqueue_cancelled", condition=Q(status="cancelled")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["task_path", "idempotency_key"],
                name="jobqueue_one_job_a_key",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(
                name="jobqueue_lease_iff_leased",
                condition=(
                    Q(
                        status="processing",
                        lease_owner__isnull=False,
                        lease_expires_at__isnull=False,
                    )
                    | Q(
                        status="cancelled",
                        lease_owner__isnull=False,
                        lease_expires_at__isnull=False,
                    )
                    | (
                        ~Q(status="processing")
                        & Q(lease_owner__isnull=True, lease_expires_at__isnull=True)
                    )
                ),
            ),
            models.CheckConstraint(
                name="jobqueue_finished_iff_final",
                condition=(
                    Q(status__in=["completed", "failed", "cancelled"], finished_at__isnull=False)
                    | Q(status__in=["scheduled", "queued", "processing"], finished_at__isnull=True)
                ),
            ),
            # A waiting job without an attempt left could never be claimed, and would stand in front of the rest.
            models.CheckConstraint(
                name="jobqueue_attempt_left",
                condition=~Q(status__in=["scheduled", "queued"]) | Q(attempt__lt=F("max_attempts")),
            ),
            models.CheckConstraint(
                name="jobqueue_priority_range", condition=Q(priority__gte=-100, priority__lte=100)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_path} {self.id}"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended: completed, failed or cancelled."""
        return self.status in FINAL

    @property
    def is_stopping(self) -> bool:
        """Whether the job is cancelled while its code has not let go yet."""
        return self.status == Status.CANCELLED and self.lease_owner is not None


class JobLog(models.Model):
    """What happened to a job, out of the ordinary: written in the transaction of the change it records."""

    class Event(models.TextChoices):
        """What a line is about. The names are those of the transitions, and three more."""

        ERRORED = "errored"
        TIMED_OUT = "timed_out"
        LOST = "lost"
        SNOOZED = "snoozed"
        NOT_FOUND = "not_found"
        RELEASED = "released"
        CANCELLED = "cancelled"
        REQUEUED = "requeued"
        REPAIRED = "repaired"
        FENCED = "fenced"  # a late outcome that was dropped
        NOTE = "note"  # a task's own line

    class Level(models.TextChoices):
        """How much it should worry the reader."""

        DEBUG = "debug"
        INFO = "info"
        WARNING = "warning"
        ERROR = "error"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="log")
    created_at = models.DateTimeField()
    event = models.CharField(max_length=10, choices=Event)
    level = models.CharField(max_length=7, choices=Level, default=Level.INFO)
    attempt = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=200, default="", blank=True)
    # As text: they outlive the user's row, and may come from another database.
    actor_id = models.CharField(max_length=64, default="", blank=True)
    actor_name = models.CharField(max_length=200, default="", blank=True)
    message = models.TextField(default="", blank=True)
    data = ExactJSONField(default=dict, blank=True)

    class Meta:
        default_permissions = ("view",)
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.event} (attempt {self.attempt}): {self.message}"


class Worker(models.Model):
    """One row a living worker process. Its id is the owner in every lease, new with every process."""

    class State(models.TextChoices):
        """What the process is doing about new jobs."""

        RUNNING = "running"
        QUIET = "quiet"
        STOPPING = "stopping"
        GONE = "gone"

    class Order(models.TextChoices):
        """What staff may ask of a worker."""

        QUIET = "quiet"
        STOP = "stop"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    queues = ExactJSONField(default=list, blank=True)  # empty: all of them
    slots = models.PositiveIntegerField()
    version = models.CharField(max_length=50)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=State, default=State.RUNNING)
    memory = models.BigIntegerField(null=True, blank=True)  # bytes, as it said last
    # What staff want of it, until its state says that it has heard.
    # Defaults of the database too: workers of the version before insert rows that lack these.
    asked = models.CharField(max_length=5, choices=Order, default="", db_default="", blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    asked_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    asked_reason = models.TextField(default="", db_default="", blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("control_worker", "Can quiet and stop workers")]

    def __str__(self) -> str:
        return worker_name(self.host, self.pid, self.id)


class Queue(models.Model):
    """One row a queue that a worker has seen, and whether staff have paused it."""

    name = models.CharField(max_length=MAX_QUEUE_NAME, primary_key=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=200, default="", blank=True)
    pause_reason = models.TextField(default="", blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("pause_queue", "Can pause queues")]

    def __str__(self) -> str:
        return self.name

    def is_paused(self, now: datetime) -> bool:
        """Whether the pause holds at `now`, by the database's clock; a pause whose end has passed is none."""
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > now)


class Sweep(models.Model):
    """Passes of the clock's repairs by one worker, or one that somebody asked for.

    Passes that repair nothing out of the ordinary share a row, in which `passes` counts them and `finished_at` is
    when the last one ended; each of the others has a row of its own.
    """

    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    passes = models.PositiveIntegerField(default=1)
    took = models.FloatField(default=0.0)  # seconds, of the last pass
    worker = models.CharField(max_length=200, default="", blank=True)
    actor_name = models.CharField(max_length=200, default="", blank=True)
    found = ExactJSONField(default=dict, blank=True)  # kind: how many
    repaired = ExactJSONField(default=dict, blank=True)
    repairs = ExactJSONField(default=list, blank=True)  # [kind, id, before, after] of the first
    left = ExactJSONField(default=list, blank=True)  # [kind, id, reason] of what was not repaired
    eventful = models.BooleanField(default=False)

    class Meta:
        default_permissions = ("view",)
        permissions = [("run_sweep", "Can run a sweep")]
        indexes = [
            models.Index("id", name="jobqueue_eventful", condition=Q(eventful=True)),
        ]

    def __str__(self) -> str:
        return f"#{self.pk}"


class Tally(models.Model):
    """How the attempts of a task in a queue ended within a span of time: what charts are drawn from.

    Written by workers once a tick, for each length of `span` (seconds), so that a chart of any range reads few rows.
    `waits` and `runs` count attempts by how long they waited and ran: the keys are numbers of buckets, whose bounds
    `tallies` knows.
    """

    span = models.PositiveIntegerField()
    starts_at = models.DateTimeField()
    queue_name = models.CharField(max_length=MAX_QUEUE_NAME)
    task_path = models.CharField(max_length=MAX_TASK_PATH)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0)
    waits = ExactJSONField(default=dict, blank=True)
    runs = ExactJSONField(default=dict, blank=True)
    last_error = models.CharField(max_length=300, default="", blank=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["span", "starts_at", "queue_name", "task_path"],
                name="jobqueue_one_tally_a_span",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_path} in {self.queue_name}, {self.span} s from {self.starts_at}"


class AuditEntry(models.Model):
    """Who did what, or was refused it: one row an operation, written with the change and never altered by people."""

    class Result(models.TextChoices):
        """What became of it."""

        RUNNING = "running"
        DONE = "done"
        REFUSED = "refused"

    at = models.DateTimeField()
    # As text: they outlive the user's row, and may come from another database.
    actor_id = models.CharField(max_length=64, default="", blank=True)
    actor_name = models.CharField(max_length=200, default="", blank=True)
    verb = models.CharField(max_length=20)
    target_kind = models.CharField(max_length=10)  # job, queue, worker, sweep, audit
    target = models.CharField(max_length=400, default="", blank=True)  # an id, a name, or a filter
    reason = models.TextField(default="", blank=True)
    result = models.CharField(max_length=7, choices=Result, default=Result.DONE)
    chosen = models.PositiveIntegerField(default=0)
    changed = models.PositiveIntegerField(default=0)
    skipped = ExactJSONField(default=dict, blank=True)  # why: how many
    message = models.TextField(default="", blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("export_audit", "Can export the audit log")]
        verbose_name_plural = "audit log"
        indexes = [
            models.Index("actor_name", "id", name="jobqueue_audit_actor"),
            models.Index("target", "id", name="jobqueue_audit_target"),
            models.Index("at", name="jobqueue_audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.target}"


class Overview(models.Model):
    """The dashboard's first page. It has no table."""

    class Meta:
        managed = False
        default_permissions = ()
        verbose_name_plural = "overview"


def worker_name(host: str, pid: int, owner: uuid.UUID) -> str:
    """How people read of a worker: host, pid, and enough of its UUID to tell two with the same pid apart."""
    return f"{host[:180]}:{pid}:{owner.hex[:8]}"
