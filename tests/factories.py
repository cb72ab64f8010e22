"""Rows as tests need them: jobs in every state, with the lease and the times that go with it."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

import factory
from factory.django import DjangoModelFactory

from jobqueue import clock, conf
from jobqueue.models import Job, JobLog, Queue, Status, Worker


def now() -> datetime:
    return clock.now(conf.options().database)


def ago(seconds: float) -> datetime:
    return now() - timedelta(seconds=seconds)


class JobFactory(DjangoModelFactory[Job]):
    """A queued job; the traits make one in another state, `stopping` one that was cancelled while
    it ran. A running one is in its first attempt and has half a minute left."""

    class Meta:
        model = Job

    class Params:
        scheduled = factory.Trait(
            status=Status.SCHEDULED, run_after=factory.LazyFunction(lambda: ago(-3600))
        )
        queued = factory.Trait(status=Status.QUEUED)
        started = factory.Trait(
            attempt=1,
            started_at=factory.LazyFunction(lambda: ago(10)),
            attempted_at=factory.LazyFunction(lambda: ago(10)),
            worker="host:1:00000000",
        )
        leased = factory.Trait(
            started=True,
            lease_owner=factory.LazyFunction(uuid.uuid4),
            lease_expires_at=factory.LazyFunction(lambda: ago(-30)),
        )
        ended = factory.Trait(started=True, finished_at=factory.LazyFunction(lambda: ago(5)))
        processing = factory.Trait(leased=True, status=Status.PROCESSING)
        completed = factory.Trait(ended=True, status=Status.COMPLETED)
        failed = factory.Trait(
            ended=True, status=Status.FAILED, max_attempts=1, error="ValueError: no"
        )
        cancelled = factory.Trait(ended=True, status=Status.CANCELLED)
        stopping = factory.Trait(leased=True, ended=True, status=Status.CANCELLED)

    task_path = "tests.tasks_sample.nothing"
    args = factory.LazyFunction(list)
    kwargs = factory.LazyFunction(dict)
    max_attempts = 5
    timeout = 60.0
    run_after = factory.LazyFunction(lambda: ago(60))
    enqueued_at = factory.LazyFunction(lambda: ago(60))


class JobLogFactory(DjangoModelFactory[JobLog]):
    class Meta:
        model = JobLog

    job = factory.SubFactory(JobFactory)
    event = JobLog.Event.NOTE
    created_at = factory.LazyFunction(now)


class WorkerFactory(DjangoModelFactory[Worker]):
    class Meta:
        model = Worker

    host = "host"
    pid = factory.Sequence(lambda number: number + 1)
    slots = 8
    version = "0"
    started_at = factory.LazyFunction(lambda: ago(3600))
    heartbeat_at = factory.LazyFunction(now)


class QueueFactory(DjangoModelFactory[Queue]):
    class Meta:
        model = Queue

    name = factory.Sequence("queue{}".format)
