"""`manage.py runworker`: a supervisor and its workers."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from jobqueue import conf
from jobqueue.attempts import MAX_QUEUE_NAME
from jobqueue.plan import Plan
from jobqueue.supervisor import Supervisor


def positive(text: str) -> int:
    """A whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def queue_names(text: str) -> tuple[str, ...]:
    """Names of queues, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if not 1 <= len(name) <= MAX_QUEUE_NAME:
            raise ArgumentTypeError(
                f"{text!r} is not a list of queues: names have 1 to {MAX_QUEUE_NAME} characters "
                f"and are separated by commas"
            )
    return names


class Command(BaseCommand):
    """Run jobs until told to stop."""

    help = (
        "Runs jobs: a supervisor and its worker processes. SIGTERM or SIGINT: running jobs get the "
        "grace time to finish, the rest is handed back; a second one hands back at once. SIGUSR1: "
        "no new jobs are claimed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queues",
            type=queue_names,
            default=(),
            metavar="A,B",
            help="take jobs of these queues only, in turns (default: all, new ones too)",
        )
        parser.add_argument(
            "--processes", type=positive, default=1, help="worker processes (default: 1)"
        )
        parser.add_argument(
            "--concurrency",
            type=positive,
            default=8,
            help="slots of each process: jobs that run at the same time (default: 8)",
        )
        parser.add_argument(
            "--burst",
            action="store_true",
            help="exit when nothing can be claimed and nothing runs; later jobs are not waited for",
        )
        parser.add_argument(
            "--max-jobs",
            type=positive,
            metavar="N",
            help="replace a worker process after N jobs",
        )
        parser.add_argument(
            "--max-rss",
            type=positive,
            metavar="MB",
            help="replace a worker process that takes more than this much memory",
        )
        parser.add_argument(
            "--grace",
            type=seconds,
            metavar="S",
            help="seconds that running jobs get to finish at a stop (default: OPTIONS['grace'])",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Check what must be there, then run the supervisor in this process."""
        using = conf.options().database
        if not hasattr(os, "fork"):
            raise CommandError("runworker needs a system with fork(), such as Linux or macOS.")
        _require_file_database(using)
        _require_migrations(using)
        # Those of the database too: they are not among what runs before each command.
        self.check(databases=[using])
        _log_to_stderr_by_default(options["verbosity"])
        plan = Plan(
            queues=options["queues"],
            processes=options["processes"],
            concurrency=options["concurrency"],
            burst=options["burst"],
            max_jobs=options["max_jobs"],
            max_rss=options["max_rss"] * 1024 * 1024 if options["max_rss"] else None,
            grace=options["grace"],
        )
        connections.close_all()
        code = Supervisor(plan).run()
        if code:
            sys.exit(code)


def _require_file_database(using: str) -> None:
    connection = connections[using]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]
        raise CommandError(
            f"The database {using!r} is SQLite in memory, which no other process can see. Give it "
            f"a file, or use jobqueue.testing.run_jobs() in tests."
        )


def _require_migrations(using: str) -> None:
    """A plain word instead of SQL errors in a loop. A database that cannot be reached is waited for."""
    try:
        executor = MigrationExecutor(connections[using])
        app = apps.get_app_config("jobqueue").label
        plan = executor.migration_plan(
            [node for node in executor.loader.graph.leaf_nodes() if node[0] == app]
        )
    except DatabaseError:
        return
    missing = [migration.name for migration, _ in plan if migration.app_label == app]
    if missing:
        raise CommandError(
            f"The tables of jobqueue are not up to date on the database {using!r} "
            f"({', '.join(missing)}). Run: manage.py migrate --database {using}"
        )


def _log_to_stderr_by_default(verbosity: int) -> None:
    """Print the log `jobqueue` when nothing handles it; what the site has configured is left alone."""
    log = logging.getLogger("jobqueue")
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))
