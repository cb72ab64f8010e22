"""What staff ask of workers: written to their rows, where each reads it in its next tick."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from jobqueue import clock, conf
from jobqueue.actors import Actor, kept_reason
from jobqueue.models import Worker


def ask(workers: QuerySet[Worker], order: str, *, actor: Any = None, reason: str = "") -> int:
    """Ask these workers to be `quiet` (to claim nothing more) or to `stop` (to leave as after
    SIGTERM, without being replaced). Returns how many were asked.

    Not asked are those that are gone, and those that do it already or were asked to: a worker that
    is to stop is not asked to be quiet. A worker's state says that it has heard.
    """
    order = Worker.Order(order)
    using = conf.options().database
    deaf = Q(state=Worker.State.GONE) | Q(asked=Worker.Order.STOP)
    if order == Worker.Order.QUIET:
        deaf |= Q(asked=order) | ~Q(state=Worker.State.RUNNING)
    with transaction.atomic(using):
        rows = workers.using(using).exclude(deaf).order_by("pk")
        asked = list(rows.select_for_update(no_key=True).values_list("pk", flat=True))
        return (
            Worker.objects.using(using)
            .filter(pk__in=asked)
            .update(
                asked=order,
                asked_at=clock.moment(using),
                asked_by=Actor.of(actor).name,
                asked_reason=kept_reason(reason),
            )
        )
