"""The commands on any terminal, any pipe, any database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobqueue.models import Queue
from tests.commands.running import manage, run, running
from tests.factories import JobFactory, JobLogFactory, QueueFactory, WorkerFactory

HOSTILE = "\x1b[2J\x1b]0;owned\x07evil\u202e.tåsk😀"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.django_db(transaction=True)
def test_nothing_hostile_reaches_the_terminal(
    child_environment: Callable[..., dict[str, str]], encoding: str
) -> None:
    job = JobFactory(task_path=HOSTILE, queue_name="q\nq", failed=True, error=f"E: {HOSTILE}")
    JobLogFactory(job=job, message=HOSTILE, actor_name=HOSTILE, data={"traceback": HOSTILE})
    QueueFactory(name=HOSTILE)
    WorkerFactory(host=HOSTILE, queues=[HOSTILE])
    environment = child_environment(PYTHONIOENCODING=encoding)
    script = (
        "import django, sys; django.setup()\n"
        "from django.core.management import call_command as call\n"
        f"call('jobs', 'list'); call('jobs', 'show', '{job.pk}'); call('jobs', 'stats')\n"
        f"call('jobs', 'show', '{job.pk}', '--json'); call('jobs', 'list', '--json')\n"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env=environment, capture_output=True, check=True)
    out = ran.stdout.decode(encoding)
    assert not set(out) & set("\x1b\x07\u202e")
    assert "\\x1b[2J" in out
    assert ("😀" in out) is (encoding == "utf-8")
    assert ran.stderr == b""


@pytest.mark.parametrize("words", [["jobs", "list"], ["jobs", "stats", "--watch", "0.01"]])
@pytest.mark.django_db(transaction=True)
def test_reader_of_the_pipe_leaves(
    child_environment: Callable[..., dict[str, str]], words: list[str]
) -> None:
    JobFactory.create_batch(50)
    read, write = os.pipe()
    os.close(read)
    with running(manage(child_environment(), *words, stdout=write)) as process:
        os.close(write)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, "")


@pytest.mark.parametrize("words", [["jobs", "list"], ["reconcile"], ["prunejobs"]])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://nobody@127.0.0.1:1/nothing", "The database 'default' cannot be reached: "),
        (
            "sqlite:///{folder}/empty.sqlite3",
            "The tables of jobqueue are missing on the database 'default'. "
            "Run: manage.py migrate --database default",
        ),
    ],
)
def test_no_database(
    child_environment: Callable[..., dict[str, str]],
    tmp_path: Path,
    words: list[str],
    url: str,
    said: str,
) -> None:
    environment = child_environment() | {"DATABASE_URL": url.format(folder=tmp_path)}
    with running(manage(environment, *words)) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"CommandError: {said}")
    assert "Traceback" not in err


def test_queue_without_rows_is_not_made_by_looking(db: None) -> None:
    JobFactory(queue_name="new")
    run("jobs", "stats")
    assert not Queue.objects.exists()
