"""The side bar of the job list. What a choice finds is the listing's affair; the choices come from small tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.cache import cache
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue.admin.listing import ATTEMPTS, PERIODS
from jobqueue.admin.windows import REMEMBERED
from jobqueue.models import Queue, Tally

#: Queues that are offered, and tasks; what is beyond is reached by a search.
QUEUES_OFFERED = 100
TASKS_OFFERED = 50

#: The span, in seconds, of the tallies that name the tasks of late, and how many of them are looked at.
_SPAN = 900
_TALLIES = 500


class Choice(admin.SimpleListFilter):
    """A parameter of the list's address and the values that are offered for it."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """All: the listing has read the address itself."""
        return queryset

    def with_current(self, names: list[str]) -> list[tuple[str, str]]:
        """The names as choices, and the chosen one, whatever it is."""
        value = self.value()
        return [
            (name, name) for name in (names if not value or value in names else [*names, value])
        ]


class QueueFilter(Choice):
    """The queues that workers have seen, without asking every job for its own."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """A choice for each."""
        names = Queue.objects.using(model_admin.using).order_by("name")
        return self.with_current(list(names.values_list("name", flat=True)[:QUEUES_OFFERED]))


class TaskFilter(Choice):
    """The tasks of which an attempt ended lately."""

    title = gettext_lazy("task")
    parameter_name = "task"
    template = "admin/jobqueue/job/task_filter.html"
    more = False

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """A choice for each, unless there are too many."""
        using = model_admin.using
        names = cache.get_or_set(f"jobqueue:tasks:{using}", lambda: _tasks(using), REMEMBERED) or []
        self.more = len(names) > TASKS_OFFERED
        return self.with_current(names[:TASKS_OFFERED])


def _tasks(using: str) -> list[str]:
    latest = Tally.objects.using(using).filter(span=_SPAN).order_by("-starts_at")
    return sorted(set(latest.values_list("task_path", flat=True)[:_TALLIES]))


class PeriodFilter(Choice):
    """When a job was enqueued: within so long, or from one time to another."""

    title = gettext_lazy("time enqueued")
    parameter_name = "within"
    template = "admin/jobqueue/job/period_filter.html"

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in ("from", "to"):
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]
        #: What the form for a period of one's own keeps of the address.
        self.kept: list[tuple[str, str]] = []

    def expected_parameters(self) -> list[str | None]:
        """The three."""
        return ["within", "from", "to"]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The usual periods."""
        return [(key, str(label)) for key, (label, _seconds) in PERIODS.items()]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """The usual periods; each takes the place of one's own."""
        self.kept = [
            (name, value)
            for name, value in changelist.params.items()
            if name not in self.expected_parameters()
        ]
        own = {"from": None, "to": None}
        is_own = any(self.used_parameters.get(name) for name in own)
        yield {
            "selected": self.value() is None and not is_own,
            "query_string": changelist.get_query_string(own | {"within": None}),
            "display": _("All"),
        }
        for key, label in self.lookup_choices:
            yield {
                "selected": self.value() == key,
                "query_string": changelist.get_query_string(own | {"within": key}),
                "display": label,
            }

    @property
    def start(self) -> str:
        """What was given as the beginning."""
        return str(self.used_parameters.get("from", ""))

    @property
    def stop(self) -> str:
        """What was given as the end."""
        return str(self.used_parameters.get("to", ""))


class AttemptFilter(Choice):
    """How often a job has been tried."""

    title = gettext_lazy("attempt")
    parameter_name = "attempt"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The three kinds."""
        return [(key, str(label)) for key, (label, _q) in ATTEMPTS.items()]
