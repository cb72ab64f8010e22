"""The product's rules hold in every state that can be reached; each breakage is found, and told."""

from __future__ import annotations

import functools

import pytest

from jobqueue.lifecycle import TRANSITIONS, Event
from jobqueue.models import Status
from tests.model.breakages import FinishesByIdAlone
from tests.model.explore import Explored, explore
from tests.model.rules import ENDINGS, Rules
from tests.model.sizes import BREAKAGES, WORLDS, search_for
from tests.model.world import NOT_ACCEPTED, Bounds

# No database is asked, so one leg of the suite is enough.
pytestmark = [pytest.mark.sqlite, pytest.mark.timeout(300)]


@functools.cache
def explored(bounds: Bounds) -> Explored:
    """The product in a world of this size."""
    return explore(Rules(), bounds)


@pytest.mark.parametrize("bounds", WORLDS, ids=lambda bounds: bounds.name)
def test_nothing_goes_wrong_whatever_comes_after_what(bounds: Bounds) -> None:
    seen = explored(bounds)
    assert not seen.wrong, f"\n{seen}"
    assert seen.states > 1_000


def test_the_model_makes_every_move_of_the_table_and_no_other() -> None:
    made = {move for bounds in WORLDS for move in explored(bounds).moves}
    table = {
        (row.event, source, target)
        for row in TRANSITIONS
        for source in (row.sources or {NOT_ACCEPTED})
        for target in row.targets
    }
    assert made == table


def test_the_model_knows_every_way_for_a_run_to_end() -> None:
    ends = {row.event for row in TRANSITIONS if row.sources == {Status.PROCESSING}}
    assert {event for event, _ in ENDINGS} == ends - {Event.LOST}


#: Every breakage, and words of what is wrong in the end.
FOUND = {
    "FinishesByIdAlone": "it was cancelled, and is completed",
    "FencesByStatusAlone": "somebody who no longer owns the job changed it",
    "FencesWithoutTheAttempt": "somebody who no longer owns the job changed it",
    "BeatsByIdAlone": "somebody who no longer owns the job changed it",
    "BeatsForAllThatItOwns": "stuck",
    "ForgetsTheCancelOnFailure": "it was cancelled, and is",
    "ForgetsTheCancelOnRecovery": "it was cancelled, and is",
    "CancelledRowsKeepTheirLease": "stuck",
    "CancelEndsTheLease": "code runs under a lease",
    "CancelsWhatHasEnded": "and is cancelled",
    "RequeuesWhatIsStillStopping": "code runs under a lease",
    "RequeuesWithoutAnAttempt": "it waits, and has no attempt left",
    "ReadsThenRecovers": "it was",
    "ReadsThenPromotes": "it was cancelled, and is queued",
    "RecoversByAge": "a lease was taken that had not run out",
    "CountsTwice": "attempts are not claims",
    "DoesNotCountCrashes": "attempts are not claims",
    "RetriesForEver": "it waits, and has no attempt left",
    "GivesNothingBack": "released counted what is given back wrongly",
    "ReleasesBeforeTheCodeHasLetGo": "code runs under a lease",
    "ReplacesBeforeItIsDead": "a lease was taken that had not run out",
    "NobodyLooksForLeases": "stuck",
    "ClaimsWhatRedisSays": "claimed moved a job that was",
    "RunsWhatRedisSays": "an attempt is run that nobody has claimed",
    "NeverLooksIntoTheLine": "stuck",
    "NeitherPushesNorLooks": "stuck",
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_breakage_is_found_and_told(name: str) -> None:
    seen = search_for(BREAKAGES[name])
    assert FOUND[name] in seen.wrong, f"\n{seen}"
    assert 0 < len(seen.trace) < 15


def test_the_way_is_told_in_words() -> None:
    told = [" ".join(line.split()) for line in str(search_for(FinishesByIdAlone)).splitlines()]
    assert told == [
        "1. job 0 is accepted queued, attempt 0 of 1",
        "2. A claims job 0 processing, attempt 1 of 1, leased to A",
        "3. it is cancelled cancelled, attempt 1 of 1, leased to A",
        "4. A begins attempt 1 cancelled, attempt 1 of 1, leased to A",
        "5. the code of attempt 1 ends at A cancelled, attempt 1 of 1, leased to A",
        "6. A writes that attempt 1 completed completed, attempt 1 of 1",
        "-> it was cancelled, and is completed",
    ]
