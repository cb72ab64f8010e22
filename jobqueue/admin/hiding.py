"""What of a job's values staff may not see: keys that name a secret, at any depth, and the same in texts."""

from __future__ import annotations

import re
from typing import Any

#: What stands in the place of a hidden value.
HIDDEN = "•••• (hidden)"

#: The names of settings that Django hides, and a few more that jobs carry.
SECRETS = re.compile(
    r"API|TOKEN|KEY|SECRET|PASS|SIGNATURE|AUTH(?!OR)|COOKIE|SESSION|CREDENTIAL", re.IGNORECASE
)

_IN_TEXT = re.compile(
    r"""(?ix)
    ( ['"]? [\w.-]*
      (?:token|secret|passw|passphrase|api_?key|signature|authorization|cookie|session_?id|credential)
      [\w.-]* ['"]?
      \s* (?: = | : ) \s* )
    (?: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?:(?:Bearer|Basic)\s+)? [^\s,;)}\]]+ )
    """
)


def hide(value: Any) -> Any:
    """A copy of a JSON value in which the values of secret keys are hidden."""
    if isinstance(value, dict):
        return {key: HIDDEN if SECRETS.search(key) else hide(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [hide(inner) for inner in value]
    return value


def names_secret(path: list[str]) -> bool:
    """Whether a value at this path of keys is hidden, or inside of one that is."""
    return any(SECRETS.search(key) for key in path)


def hide_in_text(text: str) -> str:
    """A line of text in which what looks like `password=...` is hidden."""
    return _IN_TEXT.sub(lambda match: match.group(1) + HIDDEN, text)
