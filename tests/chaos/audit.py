"""What the database itself keeps of a run: a trigger writes down every change of a job's row, in its transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

INSTALL = """
CREATE TABLE chaos_audit (
    seq bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job uuid NOT NULL, was jsonb, now jsonb NOT NULL);
CREATE FUNCTION chaos_state(r jobqueue_job) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_array(r.status, r.attempt, r.given_back, r.max_attempts, r.lease_owner,
        extract(epoch FROM r.lease_expires_at), r.worker,
        CASE WHEN r.status = 'completed' THEN r.return_value END) $$;
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_audit (job, was, now) VALUES (NEW.id,
        CASE WHEN TG_OP = 'UPDATE' THEN chaos_state(OLD) END, chaos_state(NEW));
    RETURN NULL; END $$;
CREATE TRIGGER chaos_audit AFTER INSERT OR UPDATE ON jobqueue_job
    FOR EACH ROW EXECUTE FUNCTION chaos_note();
"""


@dataclass(frozen=True, slots=True)
class State:
    """The part of a job's row that its moves are judged by."""

    status: str
    attempt: int
    given_back: int
    max_attempts: int
    owner: str | None
    expires_at: float | None
    worker: str
    returned: Any

    @property
    def pid(self) -> int:
        """The process that has the lease, or had it last."""
        return int(self.worker.split(":")[-2]) if self.worker else 0


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a row: at which time, from what (None: it is new) to what."""

    at: float
    was: State | None
    now: State

    def __str__(self) -> str:
        was = self.was.status if self.was else "(new)"
        left = (
            "" if self.now.expires_at is None else f", lease +{self.now.expires_at - self.at:.2f}"
        )
        return (
            f"{was} -> {self.now.status}, attempt {self.now.attempt} of {self.now.max_attempts}, "
            f"given back {self.now.given_back}, owner {self.now.owner}{left}, {self.now.worker}"
        )


def install() -> None:
    """Have the database write down what happens to jobs from now on."""
    with connection.cursor() as cursor:
        cursor.execute(INSTALL)


def moves() -> dict[UUID, list[Move]]:
    """Every change of every job's row, in order."""
    found: dict[UUID, list[Move]] = {}
    with connection.cursor() as cursor:
        # A row's changes follow each other under its lock, so their numbers are in their order.
        cursor.execute(
            "SELECT job, extract(epoch FROM at)::float8, was, now FROM chaos_audit ORDER BY seq"
        )
        while rows := cursor.fetchmany(5_000):
            for job, at, was, now in rows:
                found.setdefault(job, []).append(Move(at, _state(was), State(*_read(now))))
    return found


def _state(value: Any) -> State | None:
    return None if value is None else State(*_read(value))


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
