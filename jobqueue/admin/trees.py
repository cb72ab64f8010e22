"""A job's values as people read them: a tree of `<details>` for one job, a line for the list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue.admin import hiding, words

#: What is shown of one level, of one string, and of the whole; beyond that there is the download.
ITEMS = 200
CHARACTERS = 2_000
DEPTH = 100
ROOM = 60_000

#: The longest line for the list.
LINE = 160

#: Characters that turn the direction of what follows, or that nobody sees.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


class Digits(str):
    """A whole number that is too long to be made one: its digits."""

    __slots__ = ()


def loads(text: str) -> Any:
    """JSON as Python has it; whole numbers of any length are kept exactly. ValueError or
    RecursionError for what cannot be read."""
    return json.loads(text, parse_int=_whole)


def tree(value: Any, *, see: bool, download: str = "") -> SafeString:
    """A JSON value as nested `<details>`, secret keys hidden; `see` says whether it may be seen.

    Where something is left out the words for it lead to `download`, if there is one.
    """
    if not see:
        return not_allowed()
    pieces = list(_Tree(download).draw(value))
    return mark_safe("".join(pieces))  # each is escaped or made by format_html


def not_allowed() -> SafeString:
    """What stands in the place of values for those who may not see them."""
    said = _("Hidden. You need the right “%s”.") % _("Can see jobs' arguments and results")
    return format_html('<p class="jq-quiet" data-jq="not-allowed">{}</p>', said)


def preview(args: Any, kwargs: Any) -> str:
    """A call's arguments on one line of at most 160 characters, secret keys hidden."""
    parts: list[str] = []
    room = LINE
    positional = args if isinstance(args, list) else [] if args is None else [args]
    named = kwargs if isinstance(kwargs, dict) else {} if kwargs is None else {"": kwargs}
    for key, value in [*((None, each) for each in positional[:LINE]), *named.items()]:
        if room < 0:
            break
        shown = hiding.HIDDEN if key and hiding.is_secret(key) else _short(value, room)
        parts.append(f"{plain(key[:LINE])}={shown}" if key else shown)
        room -= len(parts[-1]) + 2
    return _cut(", ".join(parts))


def preview_of_json(args: str, kwargs: str) -> str:
    """The same from the texts of the two columns, which may have been cut off after some hundred
    characters: no payload needs to be loaded for it."""
    shown = []
    for text, begin, end in ((args, "[", "]"), (kwargs, "{", "}")):
        text = "".join(hiding.hide_in_json(text)).strip()
        if text.startswith(begin):
            text = text[1:-1] if text.endswith(end) else text[1:]
        shown += [text.strip()] if text.strip() not in ("", "null") else []
    return _cut(plain(", ".join(shown)))


def plain(text: str) -> str:
    """A text in which nothing is invisible or turns the direction of the page."""
    return _UNSEEN.sub(lambda match: _named(match[0]), text)


def scalar(value: Any) -> str:
    """A value that has no parts, as JSON writes it: texts in quotes, numbers exact."""
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, str):
        return plain(json.dumps(value, ensure_ascii=False))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if value.bit_length() < 2_000 else hex(value)
    return repr(value)


class _Tree:
    """Draws one value; `room` is what is left of the characters that a page may have of it."""

    def __init__(self, download: str) -> None:
        self.download = download
        self.room = ROOM

    def draw(self, value: Any) -> Iterator[str]:
        if isinstance(value, dict | list) and value:
            yield from self._items(value, 0)
        else:
            yield f'<p class="jq-json">{self._leaf(value)}</p>'

    def _items(self, value: dict[str, Any] | list[Any], depth: int) -> Iterator[str]:
        yield '<ul class="jq-json">'
        pairs: list[tuple[Any, Any]]
        if isinstance(value, dict):
            pairs = [(key, value[key]) for key in sorted(value)[:ITEMS]]
        else:
            pairs = list(enumerate(value[:ITEMS]))
        shown = 0
        for key, item in pairs:
            if self.room < 0:
                break
            yield from self._item(key, item, depth)
            shown += 1
        if left := len(value) - shown:
            said = ngettext("and %s more", "and %s more", left) % words.grouped(left)
            yield f"<li>{self._left_out(said)}</li>"
        yield "</ul>"

    def _item(self, key: Any, item: Any, depth: int) -> Iterator[str]:
        named = isinstance(key, str)
        name = scalar(key[:CHARACTERS]) if named else str(key)
        label = f'<span class="jq-{"key" if named else "quiet"}">{escape(name)}</span>: '
        self.room -= len(label) + 30
        if named and hiding.is_secret(key):
            yield f'<li>{label}<span class="jq-quiet">{escape(hiding.HIDDEN)}</span></li>'
        elif not isinstance(item, dict | list) or not item:
            yield f"<li>{label}{self._leaf(item)}</li>"
        elif depth + 1 >= DEPTH:
            yield f"<li>{label}{self._left_out(_('deeper'))}</li>"
        else:
            yield f"<li><details><summary>{label}{escape(_counted(item))}</summary>"
            yield from self._items(item, depth + 1)
            yield "</details></li>"

    def _leaf(self, value: Any) -> str:
        length = len(value) if isinstance(value, str) else 0
        long = length > CHARACTERS
        if long:
            value = type(value)(value[:CHARACTERS])
        kind = "number"
        if isinstance(value, str) and not isinstance(value, Digits):
            kind = "string"
        elif value is None or isinstance(value, bool | dict | list):
            kind = "word"
        text = json.dumps(value) if isinstance(value, dict | list) else scalar(value)
        drawn = f'<span class="jq-{kind}">{escape(text)}</span>'
        if long:
            said = _("shortened, %s characters") % words.grouped(length)
            drawn += f" {self._left_out(said)}"
        self.room -= len(drawn)
        return drawn

    def _left_out(self, said: str) -> str:
        if not self.download:
            return format_html('<span class="jq-quiet">… {}</span>', said)
        link = format_html('<a href="{}">{}</a>', self.download, _("download"))
        return format_html('<span class="jq-quiet">… {} – {}</span>', said, link)


def _whole(digits: str) -> int | Digits:
    # Python refuses to read longer ones, and a site may have set a lower limit.
    return int(digits) if len(digits) <= 640 else Digits(digits)


def _counted(value: dict[str, Any] | list[Any]) -> str:
    number = len(value)
    if isinstance(value, dict):
        return ngettext("{%s key}", "{%s keys}", number) % words.grouped(number)
    return ngettext("[%s item]", "[%s items]", number) % words.grouped(number)


def _short(value: Any, room: int, depth: int = 0) -> str:
    """A value on one line, of not much more than `room` characters."""
    if isinstance(value, str):
        return scalar(type(value)(value[: room + 1]))
    if not isinstance(value, dict | list):
        return scalar(value)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    if depth >= 3 and value:
        return f"{begin}…{end}"
    parts: list[str] = []
    pairs: Iterable[tuple[Any, Any]]
    pairs = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for key, item in pairs:
        if room < 0:
            parts.append("…")
            break
        secret = key is not None and hiding.is_secret(key)
        part = hiding.HIDDEN if secret else _short(item, room, depth + 1)
        parts.append(part if key is None else f"{scalar(key[:LINE])}: {part}")
        room -= len(parts[-1]) + 2
    return begin + ", ".join(parts) + end


def _cut(line: str) -> str:
    return line if len(line) <= LINE else line[: LINE - 1] + "…"


def _named(character: str) -> str:
    return f"\\u{ord(character):04x}"
