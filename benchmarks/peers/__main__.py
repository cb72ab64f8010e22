"""Measure the peers and print a table.

    python -m benchmarks.peers [--only name,name] [--rounds 1] [--quick] [--cache FOLDER]

On a private PostgreSQL with fsync on and a private Redis, or those in DATABASE_URL and REDIS_URL.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers import PEERS, PROJECT, PeerFigures, measure


def main() -> None:
    """Measure on the servers that are there, or on private ones."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", metavar="NAMES", help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of each figure (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs: a smoke test")
    parser.add_argument("--cache", type=Path, default=PROJECT, help="where the environments are")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PEERS)
    if unknown := set(names) - PEERS.keys():
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        urls = servers(stack)
        found = measure(names, *urls, options.rounds, options.cache.resolve(), options.quick)
    print(table(found))


def servers(stack: ExitStack) -> tuple[str, str]:
    """The addresses of a PostgreSQL and a Redis, running until the stack closes."""
    # On a disk: in memory fsync would cost nothing.
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    from tests.servers import PrivatePostgres, PrivateRedis, ServerUnavailable

    postgres = os.environ.get("DATABASE_URL", "")
    if not postgres.startswith("postgres"):
        server = PrivatePostgres(
            fsync="on", full_page_writes="on", shared_buffers="256MB", max_wal_size="1GB"
        )
        postgres = stack.enter_context(server).url
    redis = os.environ.get("REDIS_URL", "")
    if not redis:
        try:
            private = PrivateRedis(appendonly="yes", appendfsync="everysec")
            redis = stack.enter_context(private).url
        except ServerUnavailable:
            redis = ""
    return postgres, redis


def table(found: list[PeerFigures]) -> str:
    """The figures in Markdown."""
    lines = [
        "| peer (settings) | enqueue/s | bulk/s | drain/s | pick-up p50 / p99 ms | durable |",
        "|---|---|---|---|---|---|",
    ]
    for figures in found:
        title = f"{figures.name.replace('_', '-')} {figures.version}".strip()
        if figures.reason:
            lines.append(f"| {title} ({figures.settings}) | skipped: {figures.reason} | | | | |")
            continue
        cells = [_cell(figures, key) for key in ("enqueue", "bulk", "drain")]
        picked = "–" if figures.p50 is None else f"{figures.p50:,.1f} / {figures.p99:,.1f}"
        if "pick-up" in figures.errors:
            picked = f"error: {figures.errors['pick-up']}"
        cells += [picked, figures.durable]
        lines.append(f"| {title} ({figures.settings}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(figures: PeerFigures, key: str) -> str:
    if key in figures.errors:
        return f"error: {figures.errors[key]}"
    value = getattr(figures, key)
    return "–" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    main()
