"""`python -m tests.model`: how much was searched, and the way to the harm that each breakage does."""

from __future__ import annotations

import os

import django


def main() -> None:
    """Search all worlds and print what came of it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from tests.model.explore import explore
    from tests.model.rules import Rules
    from tests.model.sizes import BREAKAGES, WORLDS, search_for

    for bounds in WORLDS:
        seen = explore(Rules(), bounds)
        print(f"{bounds.name}: {seen.states} states, {seen.steps} steps. {seen.wrong or 'Sound.'}")
    for breakage in BREAKAGES.values():
        print(f"\n{breakage.__doc__}\n{search_for(breakage)}")


if __name__ == "__main__":
    main()
