"""What of a job's values staff may not see: keys that name a secret, at any depth, and the same in texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jobqueue import conf

#: What stands in the place of a hidden value.
HIDDEN = "•••• (hidden)"

#: Words that are too common in prose: what they stand for in a text.
_IN_PROSE = {
    "API": "api_?key",
    "KEY": "(?:api|access|private|secret|signing)_?key",
    "PASS": "passw|passphrase",
    "AUTH": "authorization",
    "SESSION": "session_?(?:id|key)",
}

#: A string of JSON, and the colon behind it if it is a key. What is never closed ends with the text.
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?\Z)(\s*+:)?', re.DOTALL)
#: The parts of a JSON value that tell where it ends.
_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_SCALAR = re.compile(r'\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[^\s,\]}]*+)', re.DOTALL)
_SPACE = re.compile(r"\s*+")

#: The password in an address: `postgres://user:password@host`.
_IN_ADDRESS = re.compile(r"(://[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)")


def hide(value: Any) -> Any:
    """A copy of a JSON value in which the values of secret keys are hidden."""
    # Not by recursion: what is nested too deeply for that is hidden, too.
    top = [value]
    todo: list[tuple[Any, Any]] = [(top, 0)]
    while todo:
        holder, place = todo.pop()
        inner = holder[place]
        if isinstance(inner, dict):
            copy: Any = {key: HIDDEN if is_secret(key) else item for key, item in inner.items()}
            todo += [(copy, key) for key, item in copy.items() if isinstance(item, dict | list)]
        elif isinstance(inner, list):
            copy = list(inner)
            todo += [(copy, at) for at, item in enumerate(copy) if isinstance(item, dict | list)]
        else:
            continue
        holder[place] = copy
    return top[0]


def is_secret(key: object) -> bool:
    """Whether the value of this key is hidden."""
    pattern = _keys(conf.options().redact)
    return pattern is not None and pattern.search(str(key)) is not None


def names_secret(path: list[str]) -> bool:
    """Whether a value at this path of keys is hidden, or inside of one that is."""
    return any(is_secret(key) for key in path)


def hide_in_json(text: str) -> Iterator[str]:
    """JSON as it was stored, character by character, but for the values of secret keys, in pieces.

    The text is not parsed, so that numbers stay exact, depth is no matter, and what was cut off
    somewhere, or is not quite JSON, is hidden all the same.
    """
    pattern = _keys(conf.options().redact)
    if pattern is None:
        yield text
        return
    done = at = 0
    while match := _STRING.search(text, at):
        at = match.end()
        if match[2] and pattern.search(_unescaped(match[1])):
            yield text[done:at] + _SPACE.match(text, at)[0] + f'"{HIDDEN}"'  # type: ignore[index]
            done = at = _end_of_value(text, at)
    yield text[done:]


def hide_in_text(text: str) -> str:
    """A text in which what looks like `password=...` is hidden."""
    pattern = _in_text(conf.options().redact)
    if pattern is None:
        return text
    text = pattern.sub(lambda match: match[1] + HIDDEN, text)
    return _IN_ADDRESS.sub(lambda match: match[1] + HIDDEN, text)


def _unescaped(inside: str) -> str:
    """The text of a JSON string; the letters of a key may have been written as numbers."""
    if "\\" not in inside:
        return inside
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return inside


def _end_of_value(text: str, start: int) -> int:
    """Where the JSON value ends that begins at `start`, or behind the space there."""
    at = _SPACE.match(text, start).end()  # type: ignore[union-attr]
    if text[at : at + 1] not in ("{", "["):
        return _SCALAR.match(text, at).end()  # type: ignore[union-attr]
    depth = 0
    for part in _PART.finditer(text, at):
        if part[0] in "{[":
            depth += 1
        elif part[0] in "}]":
            depth -= 1
            if depth == 0:
                return part.end()
    return len(text)


@lru_cache(maxsize=8)
def _keys(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """What finds one of the words in a key; None when there are none."""
    # An author is no secret, an authorization is.
    found = [
        re.escape(word) + ("(?!or(?!i))" if word.lower() == "auth" else "") for word in set(words)
    ]
    return re.compile("|".join(found), re.IGNORECASE) if found else None


@lru_cache(maxsize=8)
def _in_text(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """What finds a name with one of the words in it, the sign behind it, and its value."""
    if not words:
        return None
    found = "|".join({_IN_PROSE.get(word.upper(), re.escape(word)) for word in words})
    # Nothing is looked at twice, so that no text, however odd, takes long.
    return re.compile(
        rf"""(?isx)
        ( (?:{found}) [\w.-]{{0,60}}+ ['"]? \s{{0,8}} (?: => | = | : ) \s{{0,8}} )
        (?! •••• )
        (?: [bru]{{0,2}} " [^"\\]*+ (?:\\.[^"\\]*+)*+ (?: " | \\?\Z )
          | [bru]{{0,2}} ' [^'\\]*+ (?:\\.[^'\\]*+)*+ (?: ' | \\?\Z )
          | \{{ [^{{}}]*+ \}} | \[ [^\[\]]*+ \] | \( [^()]*+ \)
          | (?:(?:Bearer|Basic|Token)\s+)? [^\s,;)}}\]]+ )
        """
    )
