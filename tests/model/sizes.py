"""How large the worlds are that are searched, and where each breakage is looked for."""

from __future__ import annotations

from tests.model import breakages
from tests.model.explore import Explored, explore
from tests.model.rules import Rules
from tests.model.world import Bounds, Faults

#: Each is searched to its end. Everything at once would take hours, so each is generous in one way.
WORLDS = (
    Bounds("workers die, two repair", (2,), Faults(crashes=2)),
    Bounds("three attempts", (3,), Faults(crashes=1), repairers=1),
    Bounds("answers get lost", (2,), Faults(crashes=1, answers=1), repairers=1),
    Bounds("people", (1,), Faults(cancels=2, requeues=1, run_nows=1), repairers=1),
    Bounds(
        "attempts are given back",
        (1,),
        Faults(crashes=1, cancels=1, requeues=1, give_backs=1),
        repairers=1,
    ),
    Bounds("Redis, people and a death", (1,), Faults(1, 1), redis=True, repairers=1, slots=1),
    Bounds("Redis and retries", (2,), Faults(), redis=True, repairers=1),
    Bounds(
        "Redis and two jobs",
        (1, 1),
        Faults(),
        redis=True,
        repairers=0,
        slots=1,
        stalls=False,
    ),
)

_FAULTS = Faults(crashes=1, cancels=1, requeues=1, answers=1)
#: Where breakages are looked for, one world after the other.
SMALL = (
    Bounds("small", (1,), _FAULTS, repairers=1, slots=1),
    Bounds("an attempt more", (2,), _FAULTS, repairers=1),
    Bounds("releases", (1,), Faults(give_backs=1), repairers=1),
)
SMALL_WITH_REDIS = (Bounds("small", (1,), Faults(), redis=True, repairers=1, slots=1),)
_ABOUT_REDIS = (
    breakages.ClaimsWhatRedisSays,
    breakages.RunsWhatRedisSays,
    breakages.NeverLooksIntoTheLine,
    breakages.NeitherPushesNorLooks,
)

BREAKAGES: dict[str, type[Rules]] = {
    name: each
    for name, each in vars(breakages).items()
    if isinstance(each, type) and issubclass(each, Rules) and each is not Rules
}


def search_for(breakage: type[Rules]) -> Explored:
    """What comes of a breakage, in the first world that shows it."""
    seen = Explored()
    for bounds in SMALL_WITH_REDIS if breakage in _ABOUT_REDIS else SMALL:
        seen = explore(breakage(), bounds)
        if seen.wrong:
            break
    return seen
