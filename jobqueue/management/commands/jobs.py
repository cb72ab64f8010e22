"""`manage.py jobs`: what staff can see and do at a terminal."""

from __future__ import annotations

import textwrap
from argparse import ArgumentTypeError
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError
from django.db.models import Q, QuerySet

from jobqueue import clock, conf, lifecycle
from jobqueue.management import stats
from jobqueue.management.commands.runworker import positive
from jobqueue.management.display import described, overview, told
from jobqueue.management.terminal import (
    PlainCommand,
    Stop,
    actor,
    counted,
    in_plain_words,
    interval,
    let_go,
)
from jobqueue.models import FINAL, Job, Status
from jobqueue.texts import storable_text
from jobqueue.timeline import Moment, last_traceback, timeline

#: Hexadecimal digits of an id that are taken for its beginning.
PREFIX = 8

NO_SUCH = "there is no such job"

#: The columns of a list in JSON, named as in the model.
LISTED = (
    *("id", "status", "task_path", "queue_name", "priority"),
    *("attempt", "max_attempts", "given_back"),
    *("run_after", "enqueued_at", "started_at", "attempted_at", "finished_at"),
    *("worker", "idempotency_key", "error"),
)


class Command(PlainCommand):
    """Look at jobs, cancel them, queue them again."""

    help = (
        "Shows jobs, cancels them and queues them again. Where an ID is asked for, its first "
        f"{PREFIX} or more hexadecimal digits do, if they belong to one job only."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be done, and the options of each."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        listing = actions.add_parser("list", help="the newest jobs", description=_LIST)
        listing.add_argument("--status", choices=Status.values, help="only these")
        listing.add_argument("--queue", type=plain_text, help="only those of this queue")
        listing.add_argument(
            "--task",
            type=plain_text,
            metavar="PATH",
            help="only those of this task: its path, or the end of it from a dot on",
        )
        listing.add_argument(
            "--limit", type=positive, default=20, metavar="N", help="how many (default: 20)"
        )
        listing.add_argument("--json", action="store_true", help="print one JSON array of jobs")

        showing = actions.add_parser(
            "show", help="one job, and what happened to it", description=_SHOW
        )
        showing.add_argument("id", metavar="ID", type=plain_text)
        showing.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object: the columns of the row, timeline and traceback, whole",
        )

        cancelling = actions.add_parser(
            "cancel", help="cancel jobs, at once and for good", description=_CANCEL
        )
        cancelling.add_argument("ids", metavar="ID", nargs="+", type=plain_text)
        cancelling.add_argument("--reason", default="", help="kept in the job's log")

        requeueing = actions.add_parser(
            "requeue", help="queue ended jobs once more", description=_REQUEUE
        )
        requeueing.add_argument("ids", metavar="ID", nargs="*", type=plain_text)
        requeueing.add_argument(
            "--status", choices=sorted(FINAL), help="instead of IDs: all that ended like this"
        )
        requeueing.add_argument(
            "--queue", type=plain_text, help="with --status: only those of this queue"
        )
        requeueing.add_argument("--reason", default="", help="kept in the job's log")

        counting = actions.add_parser(
            "stats", help="how the queues and the workers stand", description=_STATS
        )
        counting.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object, on one line: at, queues, workers, slots",
        )
        counting.add_argument(
            "--watch",
            type=interval,
            nargs="?",
            const=2.0,
            metavar="S",
            help="again every S seconds (default: 2) until Ctrl-C",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the first word says."""
        actions = {
            "list": self._list,
            "show": self._show,
            "cancel": self._cancel,
            "requeue": self._requeue,
            "stats": self._stats,
        }
        actions[options["action"]](options)

    # list

    def _list(self, options: dict[str, Any]) -> None:
        jobs = _jobs().only(*LISTED, "lease_owner").order_by("-pk")
        if options["status"]:
            jobs = jobs.filter(status=options["status"])
        if options["status"] == Status.PROCESSING:
            jobs = jobs.filter(lease_owner__isnull=False)  # says the same, and has an index
        if options["queue"] is not None:
            jobs = jobs.filter(queue_name=options["queue"])
        if options["task"] is not None:
            path = options["task"]
            jobs = jobs.filter(Q(task_path=path) | Q(task_path__endswith=f".{path}"))
        found = list(jobs[: options["limit"]])
        if options["json"]:
            self.say_json([_listed(job) for job in found])
        elif not found:
            self.say("No jobs.")
        else:
            self.say(overview(found, clock.now(conf.options().database)))
            if len(found) == options["limit"]:
                self.say(f"The newest {len(found):,}; --limit N shows more.")

    # show

    def _show(self, options: dict[str, Any]) -> None:
        try:
            job = _jobs().get(pk=_find(options["id"]))
        except Unknown as unknown:
            raise CommandError(f"{options['id']}: {unknown}") from unknown
        except Job.DoesNotExist as gone:
            raise CommandError(f"{options['id']}: {NO_SUCH}") from gone
        if options["json"]:
            row = {column.attname: getattr(job, column.attname) for column in job._meta.fields}
            row["stopping"] = job.is_stopping
            moments = [_moment_as_json(moment) for moment in timeline(job, newest=None)]
            self.say_json(row | {"timeline": moments, "traceback": last_traceback(job)})
            return
        for line in described(job):
            self.say(line)
        self.say("\nTimeline")
        for moment in timeline(job):
            self.say(told(moment))
        if text := last_traceback(job):
            self.say("\nTraceback of the last error\n" + textwrap.indent(text, "  "))

    # cancel, requeue

    def _cancel(self, options: dict[str, Any]) -> None:
        self._change_each(options["ids"], "cancelled", lifecycle.cancel_many, options["reason"])

    def _requeue(self, options: dict[str, Any]) -> None:
        if options["ids"]:
            if options["status"] or options["queue"] is not None:
                raise CommandError("Give either IDs, or --status (and --queue), not both.")
            self._change_each(options["ids"], "requeued", lifecycle.requeue_many, options["reason"])
            return
        if not options["status"]:
            raise CommandError(
                f"Name jobs by their IDs, or say which with --status ({', '.join(sorted(FINAL))}) "
                "and, if you like, --queue."
            )
        jobs = _jobs().filter(status=options["status"])
        if options["queue"] is not None:
            jobs = jobs.filter(queue_name=options["queue"])
        counts = lifecycle.requeue_many(jobs, actor=actor(), reason=options["reason"])
        self.say(f"{counted(counts.changed, 'job')} requeued.")
        for reason, number in sorted(counts.skipped.items()):
            self.say(f"{counted(number, 'job')} not requeued: {reason}")

    def _change_each(self, ids: list[str], done: str, change: Any, reason: str) -> None:
        """One job after the other, so that each that cannot be changed is named with its reason."""
        failed = 0
        by = actor()
        for text in dict.fromkeys(ids):
            try:
                pk = _find(text)
            except Unknown as unknown:
                refused = str(unknown)
            else:
                counts = change(_jobs().filter(pk=pk), actor=by, reason=reason)
                if counts.changed:
                    self.say(f"{pk} {done}")
                    continue
                refused = next(iter(counts.skipped), NO_SUCH)
            failed += 1
            self.mention(f"{text}: not {done}: {refused}")
        if failed:
            raise CommandError(f"{counted(failed, 'job')} could not be {done}.")

    # stats

    def _stats(self, options: dict[str, Any]) -> None:
        if options["watch"] is None:
            self._print(stats.gather(), options["json"])
            return
        away = False
        with Stop() as stop:
            while not stop.asked:
                try:
                    now = stats.gather()
                    if self.stdout.isatty() and not options["json"]:
                        self.stdout.write("\x1b[H\x1b[2J", ending="")
                    self._print(now, options["json"])
                    away = False
                except (DatabaseError, InterfaceError) as error:
                    if not away:
                        self.mention(f"{in_plain_words(error)}\nTrying again until it answers.")
                    away = True
                let_go()
                stop.wait(options["watch"])

    def _print(self, now: stats.Stats, as_json: bool) -> None:
        if as_json:
            self.say_json(now.as_json())
        else:
            self.say(now.as_text())
            self.stdout.flush()


_LIST = (
    "The newest jobs first. WHEN is when a job ended, when a running attempt began, or since or "
    "until when a waiting one waits. --task and --queue alone have no index over ended jobs: what "
    "is rare is searched for in the whole table."
)
_SHOW = "All about one job: its row, its arguments, what happened to it, its last error."
_CANCEL = (
    "What waits never starts. What runs is cancelled in this moment: its code is told to stop, "
    "and whatever it still does changes nothing. Exits 1 if one of the jobs could not be "
    "cancelled; the others are."
)
_REQUEUE = (
    "Ended jobs are queued once more, with one more attempt at least. Exits 1 if one of the named "
    "jobs could not be; the others are."
)
_STATS = (
    "Of each queue the jobs that wait (queued), that wait for their time (scheduled), that run, "
    "that are cancelled but still stopping, and that have failed; how long the one that has "
    "waited longest has (oldest); whether it is paused. Of each worker its busy slots, and what "
    "staff want of it. Completed and cancelled jobs are not counted, as that would read every one "
    "of them; how many attempts ended in the last hour is known from what workers have counted."
)


class Unknown(Exception):
    """What was given for an id names no job, or more than one; the reason is its text."""


def _find(text: str) -> UUID:
    """The id of the job that an id, or the beginning of one, names."""
    digits = text.strip().replace("-", "").lower()
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        raise Unknown("this is not the id of a job")
    if len(digits) < PREFIX:
        raise Unknown(f"too short, give {PREFIX} digits or more")
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    found = _jobs().filter(pk__gte=first, pk__lte=last).order_by("pk").values_list("pk", flat=True)
    match list(found[:2]):
        case []:
            raise Unknown(NO_SUCH)
        case [pk]:
            return pk
        case _:
            raise Unknown("more than one job's id begins like this, give more of it")


def plain_text(text: str) -> str:
    """Text that every database takes."""
    if storable_text(text, len(text)) != text:
        raise ArgumentTypeError(f"{text!r} is not valid text")
    return text


def _jobs() -> QuerySet[Job]:
    return Job.objects.using(conf.options().database).all()


def _listed(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in LISTED} | {"stopping": job.is_stopping}


def _moment_as_json(moment: Moment) -> dict[str, Any]:
    names = ("at", "event", "level", "attempt", "worker", "actor", "message", "data")
    return {name: getattr(moment, name) for name in names}
