"""What a job was called with and what it returned: on the page as far as it is small, whole as a download."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue.admin import hiding, trees
from jobqueue.excerpts import Beginning, Start
from jobqueue.models import Job

#: The columns, by the names that they have in addresses.
COLUMNS: dict[str, tuple[str, str | Promise]] = {
    "args": ("args", gettext_lazy("Arguments")),
    "kwargs": ("kwargs", gettext_lazy("Keyword arguments")),
    "result": ("return_value", gettext_lazy("Result")),
}

#: Characters of JSON that are read and drawn as a tree, and those that are shown of more.
LIMIT = 32_000
SHOWN = 2_000

#: All of a column; no database keeps more in one.
WHOLE = 2**30


@dataclass(slots=True)
class Payload:
    """One column on the page: as a tree, or, if it is large or odd, the beginning of its text."""

    name: str
    label: str | Promise
    download: str
    tree: SafeString | str = ""
    raw: str = ""
    note: str = ""
    copy: str = ""


def read(job: QuerySet[Job], downloads: dict[str, str]) -> list[Payload]:
    """What the columns hold; empty arguments are left out, and what is large is not loaded. `job` is
    the queryset of the one row."""
    parts: dict[str, Any] = {
        f"start_{name}": Beginning(COLUMNS[name][0], LIMIT + 1) for name in downloads
    }
    row = job.annotate(**parts).values(*parts).first() or {}
    starts: dict[str, Start | None] = {name: row.get(f"start_{name}") for name in downloads}
    return [
        _payload(name, start, downloads[name])
        for name, start in starts.items()
        if name == "result" or start is None or start.text not in ("[]", "{}")
    ]


def _payload(name: str, start: Start | None, download: str) -> Payload:
    payload = Payload(name, COLUMNS[name][1], download)
    text, size = start or ("null", 4)
    if len(text) > LIMIT:
        payload.note = _("%s in all; this is the beginning.") % filesizeformat(size)
        payload.raw = _shown(text)
        return payload
    try:
        value = trees.loads(text)
    except ValueError:
        payload.note = _("This is not JSON.")
        payload.raw = _shown(hiding.hide_in_text(text))
    except RecursionError:
        payload.note = _("This is nested too deeply to be shown as a tree.")
        payload.raw = _shown(text)
    else:
        payload.tree = trees.tree(value, see=True, download=download)
        copy = "".join(hiding.hide_in_json(text))
        # The page holds it beside the tree, so not every size will do.
        payload.copy = copy if len(copy) <= LIMIT // 2 else ""
    return payload


def _shown(text: str) -> str:
    """The beginning of a text as it was stored."""
    text = "".join(hiding.hide_in_json(text[: 2 * SHOWN]))
    text = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return trees.plain(text)


def whole(job: QuerySet[Job], name: str) -> str | None:
    """All of a column as it was stored; None for NULL."""
    parts: dict[str, Any] = {"whole": Beginning(COLUMNS[name][0], WHOLE)}
    row = job.annotate(**parts).values(*parts).first() or {}
    start: Start | None = row.get("whole")
    return start and start.text


def as_download(text: str, filename: str) -> StreamingHttpResponse:
    """JSON, or what should have been, as a file: as it was stored, but for the values of secret keys."""
    pieces = hiding.hide_in_json(text)
    if not (readable := _is_json(text)):
        pieces = iter([hiding.hide_in_text("".join(pieces))])
    kind, ending = ("application/json", "json") if readable else ("text/plain", "txt")
    return file(pieces, f"{filename}.{ending}", f"{kind}; charset=utf-8")


def as_text(text: str, filename: str) -> StreamingHttpResponse:
    """Prose as a file, secrets hidden."""
    return file(iter([hiding.hide_in_text(text)]), f"{filename}.txt", "text/plain; charset=utf-8")


def file(pieces: Iterator[str], filename: str, kind: str) -> StreamingHttpResponse:
    """Text as a file that no browser opens or takes for something else."""
    response = StreamingHttpResponse(_encoded(pieces), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _encoded(pieces: Iterator[str], size: int = 65_536) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), size):
            yield piece[start : start + size].encode("utf-8", "backslashreplace")


def _is_json(text: str) -> bool:
    try:
        trees.loads(text)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True
