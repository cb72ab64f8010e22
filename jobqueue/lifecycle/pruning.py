"""How old final jobs leave the table: small batches, oldest first, never one that somebody holds."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import IntegrityError, models, transaction
from django.db.models import Q

from jobqueue import clock, conf, ids
from jobqueue.models import FINAL, Job, Status

logger = logging.getLogger("jobqueue")

BATCH = 500


@dataclass(slots=True)
class Pruned:
    """What a pass removed, by status, which rows it had to leave, and where to go on."""

    removed: dict[str, int] = field(default_factory=dict)
    held: list[UUID] = field(default_factory=list)
    after: UUID | None = None

    @property
    def total(self) -> int:
        """How many jobs were removed."""
        return sum(self.removed.values())


def prune(limit: int = BATCH, after: UUID | None = None) -> Pruned:
    """Remove up to `limit` final jobs that are older than the retention of their status.

    Goes through the table by id, from `after` on; `Pruned.after` is None when the end is reached.
    Rows that a foreign key of somebody else holds are left, and reported.
    """
    options = conf.options()
    using = options.database
    now = clock.now(using)
    kept = {status: options.retention[status] for status in FINAL}
    old = Q()
    for status, seconds in kept.items():
        if seconds is not None:
            old |= Q(status=status, finished_at__lt=now - timedelta(seconds=seconds))
    result = Pruned()
    limits = [seconds for seconds in kept.values() if seconds is not None]
    if not limits:
        return result
    # Ids carry the time of enqueueing, so nothing beyond this one can be old enough.
    newest = ids.first_at((now - timedelta(seconds=min(limits))).timestamp() + 3600)
    rows = Job.objects.using(using).filter(old, lease_owner__isnull=True, pk__lt=newest)
    if after is not None:
        rows = rows.filter(pk__gt=after)
    with transaction.atomic(using):
        found = list(
            rows.select_for_update(skip_locked=True)
            .order_by("pk")
            .values_list("pk", "status")[:limit]
        )
        if not found:
            return result
        held = held_by_others(using, [pk for pk, _ in found])
        result.held += held
        delete(using, [row for row in found if row[0] not in held], result)
    result.after = found[-1][0] if len(found) == limit else None
    return result


def held_by_others(using: str, pks: list[UUID]) -> list[UUID]:
    """The rows that a foreign key with DO_NOTHING points at: the database would refuse to delete
    them only at the commit, and all the others with them."""
    held: set[UUID] = set()
    # Those with related_name="+" are hidden, but hold a row like the others.
    for relation in Job._meta.get_fields(include_hidden=True):
        if not isinstance(relation, models.ManyToOneRel):
            continue
        if relation.on_delete is models.DO_NOTHING:
            name = relation.field.name
            pointing = relation.related_model._base_manager.using(using)
            held.update(pointing.filter(**{f"{name}__in": pks}).values_list(name, flat=True))
    return sorted(held)


def delete(using: str, rows: list[tuple[UUID, str]], result: Pruned) -> None:
    """Delete the rows; where one is held by a foreign key, find it by halves and leave it."""
    if not rows:
        return
    try:
        with transaction.atomic(using):
            # Rows are read before they go, and their arguments may be large.
            Job.objects.using(using).filter(pk__in=[pk for pk, _ in rows]).only("pk").delete()
    except IntegrityError:  # ProtectedError and RestrictedError are among them
        if len(rows) == 1:
            result.held.append(rows[0][0])
            return
        middle = len(rows) // 2
        delete(using, rows[:middle], result)
        delete(using, rows[middle:], result)
        return
    for _, status in rows:
        name = str(Status(status))
        result.removed[name] = result.removed.get(name, 0) + 1
