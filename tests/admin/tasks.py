"""Tasks whose jobs the pages show."""

from __future__ import annotations

from jobqueue import JobContext, task


@task(takes_context=True, max_attempts=1)
def grumble(context: JobContext) -> None:
    """Three lines, then an error."""
    _grumble(context)


@task(takes_context=True, max_attempts=1, atomic=True)
def grumble_atomically(context: JobContext) -> None:
    """The same in a transaction that is rolled back."""
    _grumble(context)


def _grumble(context: JobContext) -> None:
    for word in ("first", "second", "third"):
        context.log(f"the {word} line")
    raise ValueError("the error comes last")
