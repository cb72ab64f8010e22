"""What the dashboard's templates need beyond Django's own tags."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django import template
from django.contrib.admin.sites import all_sites
from django.template import Context
from django.utils.functional import SimpleLazyObject
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue.models import Job

if TYPE_CHECKING:
    from jobqueue.admin import base, states, trees, words
else:
    # Looked up when a tag is first used: any widget that a theme draws loads all tag libraries, even while that theme's
    # own admin, from which ours is made, is still being imported.
    base, states, trees, words = (
        SimpleLazyObject(partial(import_module, f"jobqueue.admin.{name}"))
        for name in ("base", "states", "trees", "words")
    )

register = template.Library()


@register.simple_tag(takes_context=True)
def jobs_nonce(context: Context) -> SafeString | str:
    """The nonce of the page's content security policy as an attribute, where there is one: Django 6's
    context processor `csp` or django-csp."""
    request = context.get("request")
    nonce = context.get("csp_nonce") or getattr(request, "csp_nonce", None)
    return format_html('nonce="{}"', str(nonce)) if nonce else ""


@register.simple_tag(takes_context=True)
def jobs_tabs(context: Context) -> list[dict[str, Any]]:
    """The tabs, for a page that is the admin's own."""
    request = context["request"]
    for site in all_sites:
        if site.name == request.current_app and site.is_registered(Job):
            page = site.get_model_admin(Job)
            assert isinstance(page, base.DashboardAdmin)
            return [tab | {"current": False} for tab in page.tabs(request)]
    return []


@register.simple_tag(takes_context=True)
def state_badge(context: Context, job: Job) -> SafeString:
    """The job's state: a sign, a word and a colour."""
    return badge(states.state_of(job, context["now"]))


@register.simple_tag
def badge(state: states.State | str) -> SafeString:
    """A state, or the one of that key, as a badge."""
    if isinstance(state, str):
        state = states.STATES[state]
    return states.badge(state)


@register.simple_tag(takes_context=True)
def ago(context: Context, moment: datetime | None) -> SafeString | str:
    """How long ago, or in how long; the whole time is its title."""
    return words.relative_time(moment, context["now"])


@register.simple_tag(takes_context=True)
def full_time(context: Context, moment: datetime | None) -> SafeString | str:
    """The whole time, then how long ago."""
    return words.full_time(moment, context["now"])


@register.simple_tag
def moment(value: datetime | None) -> SafeString | str:
    """The whole time alone."""
    if value is None:
        return "–"
    return format_html('<time datetime="{}">{}</time>', words.iso(value), words.absolute(value))


@register.filter
def duration(seconds: Any) -> str:
    """A number of seconds in words; a dash for none."""
    return "–" if seconds is None else words.duration(float(seconds))


@register.filter
def capped(number: int) -> str:
    """A count that stops somewhere."""
    return words.capped(number)


@register.filter
def grouped(number: int) -> str:
    """A whole number with its thousands set apart."""
    return words.grouped(number)


@register.filter
def plain(text: str) -> str:
    """A text in which nothing is invisible or turns the direction of the page."""
    return trees.plain(text)


@register.filter
def unlocalized(number: int) -> str:
    """A whole number for an address."""
    return str(number)


@register.simple_tag
def not_allowed() -> SafeString:
    """What stands in the place of values for those who may not see them."""
    return trees.not_allowed()
