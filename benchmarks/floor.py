"""The floor: what the database itself allows, with plain drivers and no queue library.

    python -m benchmarks.floor drain DATABASE_URL BATCH

claims and completes rows of its own small table in batches until there are none, in this process.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg

TABLE = """
CREATE TABLE floor (
    id {uuid} PRIMARY KEY, payload {json} NOT NULL, status text NOT NULL, owner {uuid},
    expires {time}, finished {time}, attempt int NOT NULL DEFAULT 0)
"""
INDEX = "CREATE INDEX floor_queued ON floor (id) WHERE status = 'queued'"
PAYLOAD = '{"order": "1234567", "kind": "noop"}'

CLAIM = """
UPDATE floor SET status = 'processing', attempt = attempt + 1, owner = %s,
    expires = statement_timestamp() + interval '30 s'
WHERE id = ANY (ARRAY (
    SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, attempt
"""
COMPLETE = """
UPDATE floor SET status = 'completed', owner = NULL, expires = NULL,
    finished = statement_timestamp()
WHERE id = ANY (%s) AND owner = %s AND status = 'processing'
"""


def make(url: str, rows: int) -> None:
    """Make the table afresh, with so many queued rows."""
    ids = sorted(uuid.uuid4() for _ in range(rows))
    if url.startswith("sqlite"):
        database = _sqlite(url)
        database.execute("DROP TABLE IF EXISTS floor")
        database.execute(TABLE.format(uuid="text", json="text", time="text"))
        database.execute(INDEX)
        values = [(key.hex, PAYLOAD) for key in ids]
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO floor VALUES (?, ?, 'queued', NULL, NULL, NULL, 0)", values
        )
        database.execute("COMMIT")
        database.close()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS floor")
        connection.execute(TABLE.format(uuid="uuid", json="jsonb", time="timestamptz").encode())
        connection.execute(INDEX)
        with connection.cursor().copy("COPY floor (id, payload, status) FROM STDIN") as copy:
            for key in ids:
                copy.write_row((key, PAYLOAD, "queued"))
        connection.execute("ANALYZE floor")


def insert_one_by_one(url: str, rows: int) -> float:
    """Rows a second, each an INSERT with a commit of its own."""
    make(url, 0)
    if url.startswith("sqlite"):
        database = _sqlite(url)
        begin = time.perf_counter()
        for _ in range(rows):
            statement = "INSERT INTO floor VALUES (?, ?, 'queued', NULL, NULL, NULL, 0)"
            database.execute(statement, (uuid.uuid4().hex, PAYLOAD))
        seconds = time.perf_counter() - begin
        database.close()
        return rows / seconds
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        cursor = connection.cursor()
        begin = time.perf_counter()
        for _ in range(rows):
            statement = "INSERT INTO floor (id, payload, status) VALUES (%s, %s, 'queued')"
            cursor.execute(statement, (uuid.uuid4(), PAYLOAD))
        return rows / (time.perf_counter() - begin)


def copy(url: str, rows: int) -> float:
    """Rows a second by COPY; by one executemany on SQLite."""
    make(url, 0)
    begin = time.perf_counter()
    make(url, rows)
    return rows / (time.perf_counter() - begin)


def drain(url: str, batch: int) -> None:
    """Claim and complete all rows, a commit each a batch: what one worker process would do."""
    owner: Any = uuid.uuid4()
    with psycopg.connect(url, autocommit=True) as connection:
        while rows := connection.execute(CLAIM, (owner, batch)).fetchall():
            connection.execute(COMPLETE, ([row[0] for row in rows], owner))


def drain_sqlite(url: str, batch: int) -> None:
    """The same on SQLite."""
    owner = uuid.uuid4().hex
    database = _sqlite(url)
    while True:
        database.execute("BEGIN IMMEDIATE")
        statement = "SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT ?"
        ids = [row[0] for row in database.execute(statement, (batch,))]
        marks = ", ".join("?" * len(ids))
        claim = f"UPDATE floor SET status = 'processing', owner = ?, attempt = attempt + 1 WHERE id IN ({marks})"
        database.execute(claim, (owner, *ids))
        database.execute("COMMIT")
        if not ids:
            break
        done = f"UPDATE floor SET status = 'completed', owner = NULL WHERE owner = ? AND id IN ({marks})"
        database.execute(done, (owner, *ids))
    database.close()


def _sqlite(url: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        Path(url.removeprefix("sqlite:///")), timeout=60, isolation_level=None
    )
    database.execute("PRAGMA journal_mode=WAL")
    return database


if __name__ == "__main__":
    _, where, size = sys.argv[1:]
    (drain_sqlite if where.startswith("sqlite") else drain)(where, int(size))
