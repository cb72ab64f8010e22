"""What all pages of the dashboard share: rows that are only read, rights, tabs, and the frame they are drawn in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connections, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from jobqueue import clock, conf
from jobqueue.admin import words
from jobqueue.models import AuditEntry, Job, Overview, Queue, Sweep, Worker

if TYPE_CHECKING:
    AdminBase = admin.ModelAdmin[Any]
elif apps.is_installed("unfold"):
    # Its pages draw the bar of actions only for its own class.
    from unfold.admin import ModelAdmin as AdminBase
else:
    AdminBase = admin.ModelAdmin

#: The right (codename in `jobqueue`) that each thing a person may do takes.
RIGHTS = {
    "view_job": "view_job",
    "view_args": "view_job_args",
    "requeue": "requeue_job",
    "run_now": "requeue_job",
    "cancel": "cancel_job",
    "purge": "purge_job",
    "bulk": "bulk_job",
    "view_queue": "view_queue",
    "pause": "pause_queue",
    "resume": "pause_queue",
    "view_worker": "view_worker",
    "quiet": "control_worker",
    "stop": "control_worker",
    "view_sweep": "view_sweep",
    "sweep": "run_sweep",
    "view_audit": "view_auditentry",
    "export": "export_audit",
}

#: The tabs: what they are called, the model whose list they are, and the verb that shows it.
TABS: tuple[tuple[str, str | Promise, type[Model], str], ...] = (
    ("overview", _("Overview"), Overview, "view_job"),
    ("jobs", _("Jobs"), Job, "view_job"),
    ("queues", _("Queues"), Queue, "view_queue"),
    ("workers", _("Workers"), Worker, "view_worker"),
    ("reconcile", _("Reconcile"), Sweep, "view_sweep"),
    ("audit", _("Audit log"), AuditEntry, "view_audit"),
)

#: Seconds that one panel of a page may keep the database busy.
PATIENCE = 2


class DashboardAdmin(AdminBase):
    """A page, or several, about one model. Nothing is edited: whatever changes, changes through a confirmation.

    To limit what a person may do beyond their rights, override `may`; to limit which jobs they see
    and change, override `JobAdmin.get_queryset`, which every page, count and change goes through.
    """

    #: Which tab is the current one, and the verb that its pages take.
    tab = ""
    view_verb = ""

    show_facets = admin.ShowFacets.NEVER  # each would be a count of the whole table
    show_full_result_count = False
    view_on_site = False

    class Media:
        css = {"all": ["jobqueue/jobqueue.css"]}
        js = ["jobqueue/jobqueue.js"]

    # Rights

    def may(self, request: HttpRequest, verb: str, obj: Model | None = None) -> bool:
        """Whether this person may do `verb` (a key of `RIGHTS`), to `obj` if one is named.

        The one place to override for rules of the site's own.
        """
        return bool(request.user.has_perm(f"jobqueue.{RIGHTS[verb]}"))

    def demand(self, request: HttpRequest, verb: str, obj: Model | None = None) -> None:
        """Raise PermissionDenied, naming the right, unless this person may do `verb`."""
        if not self.may(request, verb, obj):
            raise PermissionDenied(f"You need the right jobqueue.{RIGHTS[verb]}.")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the model stands in the side bar."""
        return self.may(request, self.view_verb)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether its pages may be seen."""
        return self.may(request, self.view_verb, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are enqueued by code; the other rows are the queue's own."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing is edited: what may be done to a row are verbs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows leave by pruning, and jobs by purging."""
        return False

    def get_view_on_site_url(self, obj: Any = None) -> None:
        """There is no page of the site for a row."""

    # Data

    @property
    def using(self) -> str:
        """The database that holds the queue."""
        return conf.options().database

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows, on the queue's database."""
        return super().get_queryset(request).using(self.using)

    def jobs(self, request: HttpRequest) -> QuerySet[Job]:
        """The jobs that this person may see: those of the registered JobAdmin."""
        registered: QuerySet[Job] = self.site_admin(Job).get_queryset(request)
        return registered

    def site_admin(self, model: type[Model]) -> DashboardAdmin:
        """What this site has registered for a model of ours."""
        found = self.admin_site.get_model_admin(model)
        assert isinstance(found, DashboardAdmin), f"{model} is registered with {found!r}"
        return found

    # Pages

    def page(self, route: str, view: Callable[..., Any], name: str) -> URLPattern:
        """An address of its own below the model's list: `admin:jobqueue_<model>_<name>`."""
        whole = f"jobqueue_{self.model._meta.model_name}_{name}"
        return path(route, self.admin_site.admin_view(view), name=whole)

    def url(self, name: str, *args: Any, model: type[Model] | None = None) -> str:
        """The address of a page of ours on this site: `url("changelist")`."""
        name = f"admin:jobqueue_{(model or self.model)._meta.model_name}_{name}"
        return reverse(name, args=args, current_app=self.admin_site.name)

    def frame(self, request: HttpRequest, title: Any) -> dict[str, Any]:
        """What every page of ours is drawn with. `opts` is left out: themes would show it as title."""
        now = clock.now(self.using)
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "app_label": "jobqueue",
            "media": self.media,
            "now": now,
            **self.surroundings(request, now),
        }

    def surroundings(self, request: HttpRequest, now: Any) -> dict[str, Any]:
        """The part of the frame that the stock list of jobs needs, too."""
        return {
            "now": now,
            "jq_now": words.iso(now),
            "jq_zone": words.zone(now),
            "jq_tabs": self.tabs(request),
        }

    def tabs(self, request: HttpRequest) -> list[dict[str, Any]]:
        """The tabs that this person may open."""
        return [
            {
                "name": name,
                "label": label,
                "url": self.url("changelist", model=model),
                "current": name == self.tab,
            }
            for name, label, model, verb in TABS
            if self.admin_site.is_registered(model) and self.site_admin(model).may(request, verb)
        ]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What was done to a row stands in the audit log."""
        self.demand(request, self.view_verb)
        query = urlencode({"target": unquote(object_id)})
        return HttpResponseRedirect(f"{self.url('changelist', model=AuditEntry)}?{query}")

    def draw(
        self, request: HttpRequest, template: str, title: Any, status: int = 200, **more: Any
    ) -> TemplateResponse:
        """A page of ours: `template` lies in `admin/jobqueue/` and extends `page.html`."""
        request.current_app = self.admin_site.name
        context = self.frame(request, title) | more
        return TemplateResponse(request, f"admin/jobqueue/{template}", context, status=status)


class TooSlow(Exception):
    """The database did not answer within `PATIENCE` seconds."""


@contextmanager
def in_time(using: str, seconds: float = PATIENCE) -> Iterator[None]:
    """Let no statement inside take longer than so many seconds; raise TooSlow for one that would.

    PostgreSQL keeps to it; SQLite knows no such limit.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        yield
        return
    try:
        with transaction.atomic(using):
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config('statement_timeout', %s, true),"
                    " set_config('lock_timeout', %s, true)",
                    [f"{int(seconds * 1000)}"] * 2,
                )
            yield
            with connection.cursor() as cursor:  # where it is not the outermost transaction
                cursor.execute(
                    "SELECT set_config('statement_timeout', '0', true),"
                    " set_config('lock_timeout', '0', true)"
                )
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) in ("57014", "55P03"):
            raise TooSlow from error
        raise
