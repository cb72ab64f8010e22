"""Renders the pages that are made from the code: `python docs/render.py` writes them afresh.

The tests compare them with what this would write, so a page cannot fall behind the code.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import sys
import textwrap
from dataclasses import MISSING, fields
from pathlib import Path

HERE = Path(__file__).resolve().parent


EXPLORED = """\
## Explored

`tests/model/` searches every state that this table can lead to, within bounds: two workers that die, are stopped
or lose answers, those who repair, people, and a Redis that forgets, repeats and invents. In each state at most one
worker runs the job under a lease that holds; no step undoes a cancellation, counts an attempt twice or lets a
late outcome change anything; and from each state the job comes to an end by what happens sooner or later anyway.
A move that the table has and the model lacks is an error. The mistakes of other queues (finishing by id alone,
reading and then writing, and two dozen more) are made there one at a time, and each is found.
`python -m tests.model` prints the steps that lead to the harm.

`tests/lifecycle/test_pairs.py` lets every event of the table meet every other on a real row: after it, and while
its transaction holds the row and then commits or rolls back.
"""


def state_machine() -> str:
    """The page on the state machine, from the lifecycle's own table."""
    from jobqueue.lifecycle import TRANSITIONS
    from jobqueue.models import FINAL, Status

    lines = [
        "# The states of a job",
        "",
        "Rendered from `jobqueue/lifecycle/states.py` by `docs/render.py`; do not edit by hand.",
        "",
        "```mermaid",
        "stateDiagram-v2",
    ]
    for row in TRANSITIONS:
        for source in _ordered(row.sources) or ["[*]"]:
            lines += [f"    {source} --> {target}: {row.event}" for target in _ordered(row.targets)]
    lines += [f"    {status} --> [*]" for status in Status if status in FINAL]
    lines += [
        "```",
        "",
        "| event | from | to | guard | who | spends the attempt |",
        "|---|---|---|---|---|---|",
    ]
    for row in TRANSITIONS:
        sources = ", ".join(_ordered(row.sources)) or "(nothing)"
        spends = "no" if row.gives_back else ("yes" if Status.PROCESSING in row.sources else "")
        if row.event == "cancelled":
            spends = "yes, if it was running"
        lines.append(
            f"| {row.event} | {sources} | {', '.join(_ordered(row.targets))} | {row.guard} "
            f"| {row.by} | {spends} |"
        )
    lines += [
        "",
        "What the states mean:",
        "",
        "- `scheduled` waits for `run_after`: it is delayed, or waits to be tried again.",
        "- `queued` may be claimed now.",
        "- `processing` is leased: `lease_owner` and `lease_expires_at` say to whom and until when.",
        "- `completed`, `failed` and `cancelled` are final and have `finished_at`.",
        "",
        "A heartbeat changes no state: it extends the lease of exactly the attempts (id and attempt) that their",
        "owner names. A cancelled job keeps its lease until its code has let go; until then it is",
        '"cancelled, still stopping" and cannot be queued again.',
        "",
        *EXPLORED.splitlines(),
        "",
    ]
    return "\n".join(lines)


def settings() -> str:
    """The page on the settings, from the docstrings of the options and the table of check codes."""
    from jobqueue import checks, conf

    lines = [
        "# Settings",
        "",
        "Rendered from `jobqueue/conf.py` and `jobqueue/checks.py` by `docs/render.py`; do not edit by hand.",
        "",
        "All settings are keys of `OPTIONS` of the one alias in `TASKS` that uses the backend:",
        "",
        "```python",
        "TASKS = {",
        '    "default": {',
        '        "BACKEND": "jobqueue.backend.JobQueueBackend",',
        '        "QUEUES": [],  # any name; a list of names allows only those',
        '        "OPTIONS": {"lease": 30, "max_attempts": 5},',
        "    }",
        "}",
        "```",
        "",
        "They hold for workers, models, admin and commands, and are read when they are used. Where no alias uses",
        "the backend the defaults hold.",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    ]
    meanings = _field_docs(conf.Options)
    for each in fields(conf.Options):
        default = each.default if each.default is not MISSING else dict(conf.RETENTION)
        shown = "lease / 3" if each.name == "heartbeat" else f"`{default!r}`"
        lines.append(f"| `{each.name}` | {shown} | {meanings[each.name]} |")
    lines += ["", "## What the system checks find", "", "| code | what |", "|---|---|"]
    lines += [f"| `{code}` | {what} |" for code, what in checks.CODES.items()]
    lines.append("")
    return "\n".join(lines)


PAGES = {"state-machine.md": state_machine, "settings.md": settings}


def _ordered(statuses: frozenset[str]) -> list[str]:
    from jobqueue.models import Status

    return [str(status) for status in Status if status in statuses]


def _field_docs(cls: type) -> dict[str, str]:
    """The texts that stand below the fields of a dataclass."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    docs = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            docs[field.target.id] = " ".join(text.value.value.split())  # type: ignore[attr-defined,union-attr]
    return docs


def main() -> None:
    """Write every page."""
    sys.path.insert(0, str(HERE.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("DEBUG", "1")
    import django

    django.setup()
    for name, render in PAGES.items():
        (HERE / name).write_text(render())


if __name__ == "__main__":
    main()
