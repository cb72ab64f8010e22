"""What the dashboard's templates need beyond Django's own tags."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue.admin import states, trees, words
from jobqueue.models import Job

register = template.Library()


@register.simple_tag(takes_context=True)
def jobs_nonce(context: Context) -> SafeString | str:
    """The nonce of the page's content security policy as an attribute, where there is one: Django 6's
    context processor `csp` or django-csp."""
    request = context.get("request")
    nonce = context.get("csp_nonce") or getattr(request, "csp_nonce", None)
    return format_html('nonce="{}"', str(nonce)) if nonce else ""


@register.simple_tag(takes_context=True)
def state_badge(context: Context, job: Job) -> SafeString:
    """The job's state: a sign, a word and a colour."""
    return badge(states.state_of(job, context["now"]))


@register.simple_tag
def badge(state: states.State | str) -> SafeString:
    """A state, or the one of that key, as a badge."""
    if isinstance(state, str):
        state = states.STATES[state]
    return format_html(
        '<span class="jq-state jq-state-{}"><span aria-hidden="true">{}</span> {}</span>',
        state.key,
        state.glyph,
        state.label,
    )


@register.simple_tag(takes_context=True)
def ago(context: Context, moment: datetime | None) -> SafeString | str:
    """How long ago, or in how long; the whole time is its title."""
    return words.relative_time(moment, context["now"])


@register.simple_tag(takes_context=True)
def full_time(context: Context, moment: datetime | None) -> SafeString | str:
    """The whole time, then how long ago."""
    return words.full_time(moment, context["now"])


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
