"""Tracebacks as people read them: their own frames stand out, and values in them are for those who may see them."""

from __future__ import annotations

import re
from itertools import groupby

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from jobqueue.admin import hiding, trees, words

#: Characters of a traceback that are shown.
SHOWN = 65_536

_FRAME = re.compile(r'\s*File "(?P<path>[^"]*)", line \d+(?:, in .*)?$')
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<frozen ")
_CLASS = re.compile(r"([A-Za-z_][\w.]*)(?::.*)?$")
#: What groups of exceptions draw in front of their lines.
_MARGIN = re.compile(r"^ *[|+] ?")


def draw(parts: tuple[str, ...], size: int, *, see: bool) -> SafeString:
    """The text of a `<pre>`: frames of libraries are quiet, the last line stands out.

    `parts` is the whole, or its beginning and its end. Without `see` there are only the frames
    and the class of the exception: source lines and messages may hold values.
    """
    left = size - sum(map(len, parts))
    mark = "\n\n" + _("… %s characters are left out …") % words.grouped(left) + "\n\n"
    text = mark.join(parts)
    text = hiding.hide_in_text(text) if see else frames(text)
    lines = trees.plain(text).rstrip().split("\n")
    pieces = [(quiet, "\n".join(part)) for quiet, part in _quieted(lines[:-1])]
    body = format_html_join("\n", "{}", ((_piece(*piece),) for piece in pieces))
    last = format_html("<strong>{}</strong>", lines[-1])
    return format_html("{}\n{}", body, last) if pieces else last


def frames(text: str) -> str:
    """A traceback without source lines and without messages: files, lines, functions, classes."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        bare = _MARGIN.sub("", line)
        if bare.rstrip().endswith("Traceback (most recent call last):"):
            kept += ["", bare.strip()] if kept else [bare.strip()]
            inside = True
        elif not inside:
            continue  # more of a message, whatever it looks like
        elif _FRAME.match(bare):
            kept.append("  " + bare.strip())
        elif bare and not bare[0].isspace():
            found = _CLASS.match(bare)
            kept += [found[1]] if found else []
            inside = False
    return "\n".join(kept) or _("Hidden.")


def split_error(error: str) -> tuple[str, str]:
    """The class and the message of an error's line, secrets hidden; no class if it has none."""
    error = trees.plain(hiding.hide_in_text(error))
    name, colon, message = error.partition(": ")
    if re.fullmatch(r"[A-Za-z_][\w.]*", name) and (colon or "." in name or name[0].isupper()):
        return name, message
    return "", error


def _quieted(lines: list[str]) -> list[tuple[bool, list[str]]]:
    """The lines in groups: those of libraries' frames, and the others."""
    marks: list[tuple[bool, str]] = []
    quiet = False
    for line in lines:
        if frame := _FRAME.match(line):
            quiet = _LIBRARY.search(frame["path"]) is not None
        elif not line.startswith(("   ", "\t")):
            quiet = False
        marks.append((quiet, line))
    grouped = groupby(marks, key=lambda mark: mark[0])
    return [(key, [line for _quiet, line in part]) for key, part in grouped]


def _piece(quiet: bool, text: str) -> SafeString:
    return format_html('<span class="jq-library">{}</span>', text) if quiet else escape(text)
