"""`manage.py demo`: this site, a worker and a few hundred jobs, on files of its own."""

import argparse
import fcntl
import http.client
import secrets
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Count, Sum
from django.urls import reverse

from config.life import PAUSED, liven_up
from config.processes import GRACE, Child
from config.tasks import build_report, send_email, take_payment
from jobqueue import BoundTask, enqueue_many, queues
from jobqueue.models import FINAL, Job, Status

USER = "demo"
LOOK = 0.2  # seconds between two looks at the jobs, and at the processes
ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

WORDS = {
    Status.QUEUED: "queued",
    Status.PROCESSING: "running",
    Status.SCHEDULED: "waiting to retry",
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}


class Line:
    """The progress: one line that rewrites itself on a terminal, lines now and then elsewhere."""

    def __init__(self, out: Any, live: bool) -> None:
        self.out, self.live, self.last, self.written = out, live, "", 0.0

    def show(self, text: str) -> None:
        """Show the newest state, without flooding a log."""
        if text == self.last:
            return
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.out.write(f"\r{text[:width]}\x1b[K", ending="")
        elif time.monotonic() - self.written < 2:
            return
        else:
            self.out.write(text)
        self.out.flush()
        self.last, self.written = text, time.monotonic()

    def end(self) -> None:
        """Leave the line, so that what follows has one of its own."""
        if self.live and self.last:
            self.out.write("")
        self.last = ""


class Command(BaseCommand):
    """Started by `make demo`. Everything that it starts ends with it."""

    help = (
        "Shows the queue at work: starts this site and a worker on a SQLite file of their own, "
        "enqueues sample jobs, and shows how they do. On a terminal it keeps serving until Ctrl-C."
    )
    interrupted = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--jobs", type=_between(1, 5000), default=200, help="how many jobs")
        parser.add_argument(
            "--patience",
            type=_between(1, 86400),
            default=180,
            help="seconds after which jobs that are not final are an error",
        )

    def handle(self, *, jobs: int, patience: int, **options: Any) -> None:
        """Run the demo. Exit code 1 if a process dies or a job is not final in time."""
        folder: Path | None = getattr(settings, "DEMO_FOLDER", None)
        if folder is None:
            raise CommandError(
                "The demo keeps files of its own, so the settings must know of it from the start. "
                "Run it as: python manage.py demo"
            )
        with _alone_in(folder), self._noting_signals():
            call_command("migrate", verbosity=0, interactive=False)
            password = _make_user()
            port = _free_port()
            with ExitStack() as started:
                web = Child(folder, "web", ["runserver", "--noreload", f"127.0.0.1:{port}"])
                started.callback(web.stop)
                worker = Child(folder, "worker", ["runworker", "--grace", str(GRACE)])
                started.callback(worker.stop)
                self._await_page(web, port)
                self._introduce(port, password, [web, worker])
                self._run(jobs, patience, [web, worker])
                self._liven_up(patience, [web, worker])
                if self._on_terminal:
                    self._serve(port, password, [web, worker])

    @property
    def _on_terminal(self) -> bool:
        return self.stdout.isatty()

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """Note that the demo should end, instead of ending in the middle of starting a process."""

        def note(number: int, frame: FrameType | None) -> None:
            self.interrupted = True

        before = {number: signal.signal(number, note) for number in ASKED_TO_END}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pause(self, children: Sequence[Child]) -> None:
        """Let some time pass; raise CommandError if a process has died or the demo should end."""
        time.sleep(LOOK)
        if self.interrupted:
            raise CommandError("Interrupted before all jobs were final.", returncode=130)
        for child in children:
            child.check()

    def _await_page(self, web: Child, port: int) -> None:
        until = time.monotonic() + 60
        while (answer := _status_of_page(port)) != 200:
            if answer is not None or time.monotonic() > until:
                said = f"answers with {answer}" if answer else "does not answer"
                raise CommandError(f"The site {said}; see {web.log}.")
            self._pause([web])

    def _introduce(self, port: int, password: str, children: Sequence[Child]) -> None:
        self.stdout.write("A site and its worker are up, on SQLite and without Redis.")
        self._say_where(port, password)
        for child in children:
            self.stdout.write(f"  {child.name:<9} process {child.process.pid}, log {child.log}")
        self.stdout.write("")

    def _say_where(self, port: int, password: str) -> None:
        site = f"http://127.0.0.1:{port}"
        self.stdout.write(f"  page      {site}{reverse('index')}")
        self.stdout.write(f"  admin     {site}{reverse('admin:index')}")
        self.stdout.write(f"  log in    user {USER}, password {password}")

    def _run(self, number: int, patience: int, children: Sequence[Child]) -> None:
        """Enqueue the jobs and show how they do until all are final."""
        queues.resume([PAUSED], actor=None, reason="a new demo")  # an earlier one left it paused
        ids, mix = _enqueue(number)
        started = time.monotonic()
        self.stdout.write(f"Enqueued {number} jobs: {mix}.")
        line = Line(self.stdout, self._on_terminal)
        try:
            while True:
                counts = _counts(ids)
                final = sum(counts[status] for status in FINAL)
                line.show(_progress(number, final, counts))
                if final == number:
                    break
                if time.monotonic() - started > patience:
                    raise CommandError(f"{number - final} jobs are not final after {patience} s.")
                self._pause(children)
        finally:
            line.end()
        attempts = Job.objects.filter(pk__in=ids).aggregate(Sum("attempt"))["attempt__sum"]
        ends = ", ".join(f"{counts[status]} {WORDS[status]}" for status in Status if counts[status])
        self.stdout.write(
            f"All {number} jobs are final after {time.monotonic() - started:.1f} s: {ends}; "
            f"{attempts} attempts, {attempts - number} of them retries."
        )

    def _liven_up(self, patience: int, children: Sequence[Child]) -> None:
        """Leave something to look at in the admin."""
        until = time.monotonic() + patience
        for awaited, is_there in liven_up():
            while not is_there():
                if time.monotonic() > until:
                    raise CommandError(f"Waited {patience} s for {awaited}, in vain.")
                self._pause(children)
        self.stdout.write(
            "And some to look at in the admin: failed, retrying, cancelled, recovered, one that runs "
            f"for an hour, and the paused queue {PAUSED!r}."
        )

    def _serve(self, port: int, password: str, children: Sequence[Child]) -> None:
        """Keep the site and the worker up until somebody asks for the end."""
        self.stdout.write("\nThe site and its worker stay up. Ctrl-C ends them.\n")
        self._say_where(port, password)
        while not self.interrupted:
            time.sleep(LOOK)
            for child in children:
                child.check()
        self.stdout.write("\nStopping.")


def _between(low: int, high: int) -> Any:
    """A type for argparse: a whole number in a range."""

    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low} and {high}")
        return value

    return number


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder: a second demo on the same file would change the first one's password."""
    with (folder / "lock").open("w") as lock:
        _hold(lock, folder)
        yield


def _hold(lock: TextIO, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(f"A demo is running in {folder} already.") from None


def _make_user() -> str:
    """Make the staff user, or give it a new password (people share machines), and return that."""
    password = secrets.token_urlsafe(6)
    user, _ = get_user_model().objects.get_or_create(username=USER)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _status_of_page(port: int) -> int | None:
    """The HTTP status of the site's page, None while nothing listens. Proxies are not asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", reverse("index"))
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def _enqueue(number: int) -> tuple[list[UUID], str]:
    """Enqueue a mix of the sample tasks, in one transaction; their ids, and the mix in words."""
    calls: list[BoundTask[..., Any]] = []
    for n in range(number):
        if n % 7 == 3:
            calls.append(build_report.bind(month=f"2025-{n % 12 + 1:02}", seconds=1.0 + n % 3 / 2))
        elif n % 4 == 1:
            calls.append(take_payment.bind(order_id=1000 + n, amount=f"{10 + n % 90}.00"))
        else:
            calls.append(send_email.bind(address=f"user{n}@example.com", subject=f"Hello {n}"))
    of = Counter(call.task.name for call in calls)
    mix = (
        f"{of['send_email']} e-mails (1 attempt in 10 fails), {of['take_payment']} payments "
        f"(3 in 10 fail), {of['build_report']} reports (each blocks a thread)"
    )
    return [UUID(result.id) for result in enqueue_many(calls)], mix


def _counts(ids: Sequence[UUID]) -> dict[Status, int]:
    found = dict(
        Job.objects.filter(pk__in=ids).order_by().values_list("status").annotate(Count("pk"))
    )
    return {status: found.get(status.value, 0) for status in Status}


def _progress(number: int, final: int, counts: dict[Status, int]) -> str:
    width = 24
    done = width * final // number
    waiting = (Status.QUEUED, Status.PROCESSING, Status.SCHEDULED)
    rest = ", ".join(f"{counts[status]} {WORDS[status]}" for status in waiting if counts[status])
    bar = "#" * done + "-" * (width - done)
    return f"[{bar}] {final}/{number} final" + (f"; {rest}" if rest else "")
