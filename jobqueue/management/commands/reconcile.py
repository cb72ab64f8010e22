"""`manage.py reconcile`: the pass that workers make in their tick, by hand or by a timer."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from jobqueue import clock, comparing, conf, lifecycle, reconcile, sweeps
from jobqueue.findings import Finding
from jobqueue.management.commands.runworker import positive
from jobqueue.management.terminal import (
    PlainCommand,
    Stop,
    actor,
    clock_time,
    counted,
    in_plain_words,
    interval,
    let_go,
    table,
)
from jobqueue.models import Queue
from jobqueue.ready import Unreachable


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass, and when and how long it was."""

    at: datetime
    seconds: float
    dry_run: bool
    findings: Sequence[Finding]

    @property
    def failed(self) -> int:
        """How many rows could not be repaired."""
        return sum(len(finding.left) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints; every kind is there, whatever was found."""
        return {
            "at": self.at.isoformat(),
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
            "kinds": {
                finding.kind: {
                    "found": finding.found,
                    "repaired": finding.repaired,
                    "skipped": 0 if self.dry_run else _skipped(finding),
                    "failed": len(finding.left),
                }
                for finding in self.findings
            },
            "failures": [
                {"kind": finding.kind, "id": row, "reason": reason}
                for finding in self.findings
                for row, reason in finding.left.items()
            ],
        }


class Command(PlainCommand):
    """Repair what the clock or a death has left behind."""

    help = (
        "Repairs what disagrees: jobs whose worker is gone, jobs whose time has come, workers that "
        "fell silent, and, where Redis is used, what it lacks or has too much of. Workers do most "
        "of it all the time; this is safe beside them, at any time and in any number. Rows that "
        "somebody else holds at the moment, or repairs first, are skipped and no failure. Exits 0 "
        "when all could be repaired, 1 when something could not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--every",
            type=interval,
            metavar="S",
            help="one pass every S seconds until SIGTERM or SIGINT; then the pass under way is "
            "finished and the exit code is 0. A database that is away is waited for",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be repaired and change nothing"
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object a pass, on one line: at, seconds, dry_run, kinds (of each "
            "kind found, repaired, skipped, failed) and failures (kind, id, reason)",
        )
        parser.add_argument(
            "--limit", type=positive, metavar="N", help="look at no more than N rows of each kind"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """One pass, or one after the other."""
        self._recorder = sweeps.Recorder(actor=actor())
        with Stop() as stop:
            if options["every"] is not None:
                self._repeat(stop, options)
                return
            self._let_owners_come_first(stop, options["dry_run"])
            if stop.asked:
                sys.exit(stop.exit_code)
            done = self._pass(options)
        if done.failed:
            raise CommandError(f"{counted(done.failed, 'row')} could not be repaired.")

    def _repeat(self, stop: Stop, options: dict[str, Any]) -> None:
        using = conf.options().database
        away = blocked = False
        while not stop.asked:
            begun = time.monotonic()
            try:
                if away:
                    Queue.objects.using(using).exists()  # raises while it is still away
                    self.mention("The database is back.")
                self._let_owners_come_first(stop, options["dry_run"], was_away=away or blocked)
                away = blocked = False
                if not stop.asked:
                    blocked = lifecycle.was_held_up(self._pass(options).seconds)
            except (DatabaseError, InterfaceError) as error:
                if not away:
                    self.mention(f"{in_plain_words(error)}\nTrying again until it answers.")
                away = True
            let_go()
            stop.wait(options["every"] - (time.monotonic() - begun))
        with contextlib.suppress(DatabaseError, InterfaceError):
            self._recorder.close()

    def _let_owners_come_first(self, stop: Stop, dry_run: bool, was_away: bool = False) -> None:
        """After an outage a healthy worker needs one heartbeat to say that its jobs still run."""
        if dry_run:
            return
        pause, why = reconcile.hold_off(), "PostgreSQL has just been started"
        if was_away and pause < conf.options().heartbeat:
            pause, why = conf.options().heartbeat, "The database has been away or blocked"
        if pause > 0:
            self.mention(
                f"{why}: for {pause:.1f} s workers may extend their leases before any is taken."
            )
            stop.wait(pause)

    def _pass(self, options: dict[str, Any]) -> Pass:
        at = clock.now(conf.options().database)
        begun = time.monotonic()
        findings = reconcile.sweep(limit=options["limit"], dry_run=options["dry_run"])
        findings += self._compare(options)
        done = Pass(at, time.monotonic() - begun, options["dry_run"], findings)
        if not done.dry_run:
            self._recorder.record(findings, at, done.seconds)
            sweeps.count(findings, at)
        if options["json"]:
            self.say_json(done.as_json())
        else:
            self._show(done, options["every"] is not None)
        return done

    def _compare(self, options: dict[str, Any]) -> list[Finding]:
        """What disagrees between Redis and the database, where there is a Redis."""
        shelf = comparing.own_shelf()
        if shelf is None:
            return []
        try:
            return comparing.compare(shelf, limit=options["limit"], dry_run=options["dry_run"])
        except Unreachable as error:
            self.mention(f"Redis was not looked at: {error}\nJobs go by the database meanwhile.")
            return []
        finally:
            shelf.line.close()

    def _show(self, done: Pass, repeated: bool) -> None:
        if repeated:
            self.say(clock_time(done.at))
        if done.dry_run:
            rows = [(each.kind, each.what, each.found) for each in done.findings]
            self.say(table(("Kind", "What", "Found"), rows, right={"Found"}))
        else:
            header = ("Kind", "What", "Found", "Repaired", "Skipped", "Failed")
            counts = [
                (each.kind, each.what, each.found, each.repaired, _skipped(each), len(each.left))
                for each in done.findings
            ]
            self.say(table(header, counts, right=header[2:]))
        found = sum(each.found for each in done.findings)
        if not found:
            self.say("Nothing to repair.")
        elif done.dry_run:
            self.say("A dry run: nothing was changed.")
        for each in done.findings:
            for row, reason in each.left.items():
                self.say(f"Not repaired: {each.kind} {row}: {reason}")
        if repeated:
            self.say()
            self.stdout.flush()


def _skipped(finding: Finding) -> int:
    """Rows that somebody else held, or had repaired by the time it was their turn."""
    return finding.found - finding.repaired - len(finding.left)
