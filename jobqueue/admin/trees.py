"""JSON values as staff see them."""

from __future__ import annotations

import json
from typing import Any

from jobqueue.admin import hiding
from jobqueue.texts import storable_text


def preview(args: Any, kwargs: Any) -> str:
    """A call's arguments in a line of at most 160 characters, secrets hidden."""
    parts = [json.dumps(hiding.hide(each), ensure_ascii=False) for each in args or []]
    parts += [
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in hiding.hide(kwargs or {}).items()
    ]
    return storable_text(", ".join(parts), 160)
