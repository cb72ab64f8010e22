"""`prunejobs`: what it removes, and what it keeps."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from django.db.models.signals import post_delete

from jobqueue.models import Job
from tests.app.models import Note
from tests.commands.running import long_ago, many, run, shows
from tests.factories import JobFactory


@pytest.mark.django_db
@shows("prunejobs --json")
def test_prune() -> None:
    for _ in range(2):
        long_ago(completed=True)
    long_ago(cancelled=True)
    long_ago(failed=True)
    kept = [JobFactory(completed=True), JobFactory(), long_ago(20, failed=True)]
    assert run("prunejobs", "--json").json == {
        "dry_run": False,
        "interrupted": False,
        "removed": {"completed": 2, "cancelled": 1, "failed": 1},
        "total": 4,
        "held": 0,
        "held_ids": [],
    }
    assert set(Job.objects.all()) == set(kept)
    ran = run("prunejobs")
    assert ran.code == 0
    assert "Nothing was old enough" in ran.out
    assert re.search(r"^completed +7d +0$", ran.out, re.MULTILINE)


@pytest.mark.django_db
@shows("prunejobs --dry-run")
def test_prune_dry_run_tells_what_would_be_removed() -> None:
    Note.objects.create(text="mine", job=long_ago(completed=True))
    for _ in range(3):
        long_ago(completed=True)
    long_ago(cancelled=True)
    JobFactory(failed=True)
    dry = run("prunejobs", "--dry-run", "--json").json
    assert "A dry run: nothing was removed." in run("prunejobs", "--dry-run").out
    limited = run("prunejobs", "--dry-run", "--json", "--limit", 2).json
    assert limited["total"] == 2
    assert Job.objects.count() == 6
    real = run("prunejobs", "--json").json
    assert dry["dry_run"] is True
    assert (dry["removed"], dry["held"]) == (real["removed"], real["held"])
    assert dry["held"] == 1


@pytest.mark.django_db
@shows("prunejobs --limit")
def test_prune_limit() -> None:
    for _ in range(5):
        long_ago(completed=True)
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 2
    assert Job.objects.count() == 3
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 2
    assert run("prunejobs", "--limit", 2, "--json").json["total"] == 1


@pytest.mark.django_db
def test_prune_leaves_what_others_hold_and_says_so() -> None:
    held = [long_ago(completed=True) for _ in range(12)]
    for job in held:
        Note.objects.create(text="mine", job=job)
    long_ago(completed=True)
    ran = run("prunejobs", "--limit", 5)
    assert re.search(r"^completed +7d +1$", ran.out, re.MULTILINE)
    assert "Left, held by a foreign key of another table: 12 jobs" in ran.out
    assert "and 2 more (--json lists them all)" in ran.out
    assert ran.code == 0
    answer = run("prunejobs", "--json").json
    assert (answer["total"], answer["held"]) == (0, 12)
    assert set(answer["held_ids"]) == {str(job.pk) for job in held}


@pytest.mark.django_db
def test_prune_keeps_what_the_settings_keep(settings: Any) -> None:
    options = {"retention": {"completed": None, "failed": None, "cancelled": None}}
    backend = {"BACKEND": "jobqueue.backend.JobQueueBackend", "OPTIONS": options}
    settings.TASKS = {"default": backend}
    long_ago(completed=True)
    ran = run("prunejobs")
    assert re.search(r"^completed +for ever +0$", ran.out, re.MULTILINE)
    assert run("prunejobs", "--dry-run", "--json").json["total"] == 0
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_prune_interrupted_keeps_what_is_done() -> None:
    """The signal comes during the first batch: that one is finished, and no other is begun."""
    many(1_100, long_ago(completed=True))

    def interrupt(**kwargs: Any) -> None:
        post_delete.disconnect(interrupt, sender=Job)
        os.kill(os.getpid(), signal.SIGTERM)

    post_delete.connect(interrupt, sender=Job)
    ran = run("prunejobs", "--json")
    assert ran.code == 143
    assert ran.json["interrupted"] is True
    assert ran.json["total"] == 500
    assert ran.err == "Stopped early; what was removed stays removed.\n"
    assert Job.objects.count() == 601
