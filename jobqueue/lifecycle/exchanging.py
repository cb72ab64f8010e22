"""How a worker hands in what has ended and takes what is next: in one statement, with one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction

from jobqueue import conf, postgres, sqlite
from jobqueue.attempts import Attempt, Ending, Outcome, Place, Wanted
from jobqueue.lifecycle.claiming import attempts, claim
from jobqueue.lifecycle.settling import Settled, settle
from jobqueue.models import Status


@dataclass(slots=True)
class Exchange:
    """What became of an exchange: outcomes that were `settled`, `rest`, to be settled in a way of
    its own, and the attempts that were `claimed`."""

    settled: Settled
    rest: list[Outcome] = field(default_factory=list)
    claimed: list[Attempt] = field(default_factory=list)


def exchange(
    outcomes: Sequence[Outcome],
    queue: str,
    owner: UUID,
    worker: str,
    limit: int,
    *,
    ids: Sequence[UUID] | None = None,
    behind: Place | None = None,
    above: int | None = None,
) -> Exchange:
    """`settle` and `claim` at once. All of it is committed, or, if it raises, nothing."""
    options = conf.options()
    using, wanted = options.database, Wanted(queue, limit, ids, behind, above)
    completed = [outcome for outcome in outcomes if outcome.ending is Ending.COMPLETED]
    if sqlite.serves(using):
        with transaction.atomic(using):
            settled = settle(outcomes)
            claimed = claim(queue, owner, worker, limit, ids=ids, behind=behind, above=above)
            return Exchange(settled, claimed=claimed)
    if not completed or wanted.is_nothing:
        claimed = claim(queue, owner, worker, limit, ids=ids, behind=behind, above=above)
        return Exchange(Settled(), list(outcomes), claimed)
    done, rows = postgres.exchange(using, completed, wanted, owner, worker, options.lease)
    written = [(each, Status.COMPLETED) for each in completed if each.attempt.pair in done]
    rest = [each for each in outcomes if each.attempt.pair not in done]
    return Exchange(Settled(written), rest, attempts(rows, owner, worker))
