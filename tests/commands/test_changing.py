"""`jobs cancel` and `jobs requeue`: what they change, and what they refuse."""

from __future__ import annotations

import os

import pytest

from jobqueue.models import Job, JobLog
from tests.commands.running import NOWHERE, run, shows
from tests.factories import JobFactory


@pytest.mark.django_db
@shows("jobs cancel --reason")
def test_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    waiting, running_job, done = JobFactory(), JobFactory(processing=True), JobFactory(failed=True)
    words = [waiting.pk, NOWHERE, "nonsense", done.pk, running_job.pk, waiting.pk]
    ran = run("jobs", "cancel", *words, "--reason", "wrong\0order")
    assert ran.out == f"{waiting.pk} cancelled\n{running_job.pk} cancelled\n"
    assert ran.err.splitlines() == [
        f"{NOWHERE}: not cancelled: there is no such job",
        "nonsense: not cancelled: this is not the id of a job",
        f"{done.pk}: not cancelled: it is failed; only these can be cancelled: "
        "processing, queued, scheduled",
    ]
    assert (ran.error, ran.code) == ("3 jobs could not be cancelled.", 1)
    for job in (waiting, running_job):
        line = JobLog.objects.get(job=job)
        assert (line.event, line.actor_name) == ("cancelled", "cli:ann")
        assert line.message == "wrong\\x00order"
    assert Job.objects.get(pk=running_job.pk).is_stopping
    assert run("jobs", "cancel", JobFactory().pk).code == 0


@pytest.mark.django_db
def test_actor_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the user may have a number only."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    job = JobFactory()
    assert run("jobs", "cancel", job.pk).code == 0
    assert JobLog.objects.get(job=job).actor_name == f"cli:{os.getuid()}"


@pytest.mark.django_db
@shows("jobs requeue --reason")
def test_requeue_by_id() -> None:
    failed, stopping = JobFactory(failed=True), JobFactory(stopping=True)
    ran = run("jobs", "requeue", stopping.pk, failed.pk, "--reason", "mended")
    assert ran.out == f"{failed.pk} requeued\n"
    assert ran.err == (
        f"{stopping.pk}: not requeued: its cancelled run has not let go yet; "
        "try again when it has\n"
    )
    assert (ran.error, ran.code) == ("1 job could not be requeued.", 1)
    failed.refresh_from_db()
    assert (failed.status, failed.attempt, failed.max_attempts) == ("queued", 1, 2)
    line = JobLog.objects.get(job=failed)
    assert line.message == "mended"
    assert line.actor_name.startswith("cli:")


@pytest.mark.django_db
@shows("jobs requeue --status", "jobs requeue --queue")
def test_requeue_by_filter() -> None:
    mail = JobFactory.create_batch(2, failed=True, queue_name="mail")
    other = JobFactory(failed=True)
    done = JobFactory(completed=True, queue_name="mail")
    ran = run("jobs", "requeue", "--status", "failed", "--queue", "mail")
    assert (ran.out, ran.code) == ("2 jobs requeued.\n", 0)
    assert set(Job.objects.filter(status="queued")) == set(mail)
    ran = run("jobs", "requeue", "--status", "failed", "--reason", "all")
    assert ran.out == "1 job requeued.\n"
    assert JobLog.objects.get(job=other).message == "all"
    assert Job.objects.get(pk=done.pk).status == "completed"
    JobFactory(stopping=True)
    ran = run("jobs", "requeue", "--status", "cancelled")
    assert ran.code == 0
    assert ran.out.startswith("0 jobs requeued.\n1 job not requeued: its cancelled run has not")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name jobs by their IDs"),
        (["--queue", "mail"], "Name jobs by their IDs"),
        ([NOWHERE, "--status", "failed"], "not both"),
        ([NOWHERE, "--queue", "mail"], "not both"),
        (["--status", "queued"], "invalid choice"),
        (["--status", "failed", "--queue", "\udcff"], "not valid text"),
    ],
)
@pytest.mark.django_db
def test_requeue_refuses(words: list[str], said: str) -> None:
    JobFactory(failed=True)
    ran = run("jobs", "requeue", *words)
    assert ran.code != 0
    assert said in str(ran.error)
    assert Job.objects.get().status == "failed"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list", "--limit", "0"],
        ["jobs", "stats", "--watch", "0"],
        ["jobs", "stats", "--watch", "nan"],
        ["jobs"],
        ["jobs", "cancel"],
        ["prunejobs", "--limit", "-1"],
        ["reconcile", "--every", "0"],
        ["reconcile", "--every", "soon"],
        ["reconcile", "--limit", "many"],
    ],
)
def test_words_that_make_no_sense(words: list[str]) -> None:
    assert run(*words).error
