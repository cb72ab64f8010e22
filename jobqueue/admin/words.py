"""How numbers and times are put into words: durations, ages, counts that stop somewhere."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

#: Numbers of jobs are counted up to here; what lies beyond is "more than".
CAP = 10_000

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(seconds: float) -> str:
    """How long: "820 ms", "4.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". Never negative."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        tenths = seconds < 10 and round(seconds, 1) % 1
        return f"{number_format(round(seconds, 1), 1 if tenths else 0)} s"
    whole = round(seconds)
    for size, unit, small, small_unit in _UNITS:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def age(moment: datetime, now: datetime) -> str:
    """How far `moment` lies behind or ahead of `now`: "11 min ago", "in 2 h", "now"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return _("now")
    words = duration(_coarse(abs(seconds)))
    return (_("%s ago") if seconds > 0 else _("in %s")) % words


def _coarse(seconds: float) -> float:
    """An age needs no two units, and no tenths."""
    for size in (86_400, 3_600, 60):
        if seconds >= 2 * size:
            return seconds // size * size
    return seconds // 1


def absolute(moment: datetime) -> str:
    """A time in full, in the current time zone, and the zone's name: "2026-11-29 13:03:53 CET"."""
    if timezone.is_naive(moment):
        return moment.isoformat(" ", "seconds")
    local = timezone.localtime(moment)
    return f"{local.replace(tzinfo=None).isoformat(' ', 'seconds')} {local.tzname()}"


def iso(moment: datetime) -> str:
    """A time for machines, with its offset from UTC in the current time zone."""
    if timezone.is_naive(moment):
        return timezone.make_aware(moment).isoformat(timespec="milliseconds")
    return timezone.localtime(moment).isoformat(timespec="milliseconds")


def relative_time(moment: datetime | None, now: datetime) -> SafeString | str:
    """A `<time>` that says how long ago; the whole time is in its title."""
    if moment is None:
        return "–"
    return format_html(
        '<time datetime="{}" title="{}" data-jq-age>{}</time>',
        iso(moment),
        absolute(moment),
        age(moment, now),
    )


def full_time(moment: datetime | None, now: datetime) -> SafeString | str:
    """The whole time first, then how long ago."""
    if moment is None:
        return "–"
    return format_html(
        '<time datetime="{}">{}</time> (<time datetime="{}" data-jq-age>{}</time>)',
        iso(moment),
        absolute(moment),
        iso(moment),
        age(moment, now),
    )


def zone(now: datetime) -> str:
    """The zone that times are shown in: "Europe/Berlin (CET, UTC+01:00)"."""
    if timezone.is_naive(now):
        return str(timezone.get_default_timezone_name())
    local = timezone.localtime(now)
    offset = local.strftime("%z")
    return (
        f"{timezone.get_current_timezone_name()} ({local.tzname()}, UTC{offset[:3]}:{offset[3:]})"
    )


def capped(number: int) -> str:
    """A count that stops at `CAP`: "10,000+" for more."""
    return f"{grouped(CAP)}+" if number > CAP else grouped(number)


def grouped(number: int) -> str:
    """A whole number with its thousands set apart, as the language does it."""
    return number_format(number, use_l10n=True, force_grouping=True)


def jobs(number: int) -> str:
    """ "1 job", "2 jobs"."""
    return ngettext("%s job", "%s jobs", number) % grouped(number)
