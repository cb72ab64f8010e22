"""`manage.py prunejobs`: removes ended jobs that have been kept for long enough."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser
from django.db import models
from django.db.models import Q

from jobqueue import clock, conf, lifecycle
from jobqueue.management.commands.runworker import positive
from jobqueue.management.terminal import PlainCommand, Stop, counted, duration, table
from jobqueue.models import Job, Status

#: Jobs that one transaction removes.
BATCH = 500

#: Ids of held rows that are printed for people.
SHOWN = 10

STATUSES = (Status.COMPLETED, Status.CANCELLED, Status.FAILED)


class Command(PlainCommand):
    """Remove what is older than `OPTIONS["retention"]` says."""

    help = (
        "Removes ended jobs, and their log, that are older than OPTIONS['retention'] keeps them. "
        "Workers do so by themselves, a little at a time; this removes all there is, in small "
        "batches that each stand for themselves: whatever interrupts it, what is done is done. "
        "Jobs that a foreign key of another table holds are left and reported."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--limit", type=positive, metavar="N", help="remove no more than N jobs"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="count what would be removed; change nothing"
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object: dry_run, interrupted, removed (by status), total, held "
            "(number of jobs that a foreign key holds) and held_ids (none in a dry run)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Prune batch after batch, until nothing is left, N are removed or a signal comes."""
        removed = {str(status): 0 for status in STATUSES}
        held: list[UUID] = []
        with Stop() as stop:
            if options["dry_run"]:
                count = self._look(removed, options["limit"])
            else:
                self._prune(stop, removed, held, options["limit"])
                count = len(held)
        if options["json"]:
            self.say_json(
                {
                    "dry_run": options["dry_run"],
                    "interrupted": stop.asked,
                    "removed": removed,
                    "total": sum(removed.values()),
                    "held": count,
                    "held_ids": [str(pk) for pk in held],
                }
            )
        else:
            self._show(removed, count, held, options["dry_run"])
        if stop.asked:
            self.mention("Stopped early; what was removed stays removed.")
            sys.exit(stop.exit_code)

    def _prune(
        self, stop: Stop, removed: dict[str, int], held: list[UUID], limit: int | None
    ) -> None:
        after: UUID | None = None
        while not stop.asked:
            room = BATCH if limit is None else min(BATCH, limit - sum(removed.values()))
            if room < 1:
                return
            batch = lifecycle.prune(room, after)
            for status, number in batch.removed.items():
                removed[status] += number
            held += batch.held
            after = batch.after
            if after is None:
                return

    def _look(self, removed: dict[str, int], limit: int | None) -> int:
        """Count what is old enough; returns how many of these a foreign key holds."""
        using = conf.options().database
        now = clock.moment(using)
        held_by_others = _held(using)
        room, held = limit, 0
        for status in STATUSES:
            kept = conf.options().retention[status]
            if kept is None:
                continue
            old = Job.objects.using(using).filter(
                status=status, finished_at__lt=now - timedelta(seconds=kept), lease_owner=None
            )
            held += old.filter(held_by_others).count()
            free = old.exclude(held_by_others)
            removed[status] = free.count() if room is None else free[:room].count()
            room = None if room is None else room - removed[status]
        return held

    def _show(
        self, removed: Mapping[str, int], count: int, held: list[UUID], dry_run: bool
    ) -> None:
        retention = conf.options().retention
        verb = "To remove" if dry_run else "Removed"
        rows = [(status, _kept(retention[status]), number) for status, number in removed.items()]
        self.say(table(("Status", "Kept for", verb), rows, right={verb}))
        if dry_run:
            self.say("A dry run: nothing was removed.")
        elif not any(removed.values()):
            self.say("Nothing was old enough, or free, to be removed.")
        if count:
            self.say(f"Left, held by a foreign key of another table: {counted(count, 'job')}")
            for pk in held[:SHOWN]:
                self.say(f"  {pk}")
            if len(held) > SHOWN:
                self.say(f"  and {len(held) - SHOWN:,} more (--json lists them all)")


def _kept(seconds: float | None) -> str:
    return "for ever" if seconds is None else duration(seconds)


def _held(using: str) -> Q:
    """Jobs that a row elsewhere points at in a way that forbids their removal."""
    forbidding = {models.PROTECT, models.RESTRICT, models.DO_NOTHING}
    held = Q(pk__in=[])
    for relation in Job._meta.get_fields(include_hidden=True):
        if isinstance(relation, models.ManyToOneRel) and relation.on_delete in forbidding:
            name = relation.field.name
            pointing = relation.related_model._base_manager.using(using)
            held |= Q(pk__in=pointing.filter(**{f"{name}__isnull": False}).values(name))
    return held
