"""Ids: of version 7, rising whatever threads and clocks do, unlike in every process."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import sys
import threading
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue import ids

NANOSECONDS = 1_000_000


def milliseconds(made: uuid.UUID) -> int:
    return made.int >> 80


def rising(made: list[uuid.UUID]) -> bool:
    return all(one < two for one, two in itertools.pairwise(made))


def test_it_is_a_uuid_of_version_7():
    before = time.time_ns() // NANOSECONDS
    made = ids.uuid7()
    assert type(made) is uuid.UUID
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= milliseconds(made) <= before + 60_000


def test_several_at_once_rise_and_differ():
    before = ids.uuid7()
    made = list(ids.several(1_000))
    assert rising([before, *made, ids.uuid7()])
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    assert len({each.int & 0xFFFF_FFFF for each in made}) > 990
    assert list(ids.several(0)) == []


def test_it_is_equal_to_the_same_uuid_made_in_the_usual_way():
    made = ids.uuid7()
    usual = uuid.UUID(str(made))
    assert (made, hash(made), repr(made)) == (usual, hash(usual), repr(usual))
    assert made.is_safe is usual.is_safe
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_thousands_in_one_millisecond_rise():
    source = ids.Source(clock=lambda: 1_700_000_000_000 * NANOSECONDS)
    made = [source() for _ in range(20_000)]
    assert rising(made)
    assert {milliseconds(one) for one in made} == {1_700_000_000_000}


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=50))
def test_they_rise_wherever_the_clock_steps(times):
    clock = iter(times)
    source = ids.Source(clock=lambda: next(clock) * NANOSECONDS)
    made = [source() for _ in times]
    assert rising(made)
    # Held while the clock is back, followed when it is ahead.
    assert [milliseconds(one) for one in made] == list(itertools.accumulate(times, max))


@pytest.fixture
def eager_switches():
    """Threads change places as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switches")
def test_a_later_call_gives_a_greater_id_in_every_thread():
    steps = itertools.count()

    def stepping_back() -> int:
        # Ahead by a millisecond a call, and every other time far back.
        step = next(steps)
        return (10**9 + step - step % 2 * 1000) * NANOSECONDS

    source = ids.Source(clock=stepping_back)
    started = threading.Barrier(8)
    made: list[list[uuid.UUID]] = [[] for _ in range(8)]
    late: list[tuple[uuid.UUID, uuid.UUID]] = []
    shared = [source()]

    def make(own: list[uuid.UUID]) -> None:
        started.wait()
        for _ in range(5_000):
            # Whatever stands there was made before this call began.
            earlier = shared[0]
            one = source()
            if one <= earlier:
                late.append((earlier, one))
            shared[0] = one
            own.append(one)

    threads = [threading.Thread(target=make, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert late == []
    assert all(rising(own) for own in made)
    assert len({one for own in made for one in own}) == 40_000


def test_a_reset_source_goes_elsewhere_and_after_all_that_was_made():
    source = ids.Source(clock=lambda: 5 * NANOSECONDS)
    before = [source() for _ in range(100)]
    source.reset()
    after = [source() for _ in range(100)]
    assert rising(before + after)
    counters = [[one.int >> 32 & 0x3FFF_FFFF for one in part] for part in (before, after)]
    assert counters[0][-1] + 1 != counters[1][0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_processes_make_no_id_twice():
    count = 500
    pipes = []
    last = ids.uuid7()
    for _ in range(4):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                with os.fdopen(writer, "wb") as out:
                    out.write(b"".join(ids.uuid7().bytes for _ in range(count)))
            finally:
                os._exit(0)
        os.close(writer)
        pipes.append((pid, reader))
    families = [[ids.uuid7() for _ in range(count)]]
    for pid, reader in pipes:
        with os.fdopen(reader, "rb") as told:
            raw = told.read()
        os.waitpid(pid, 0)
        families.append([uuid.UUID(bytes=raw[at : at + 16]) for at in range(0, len(raw), 16)])
    assert [len(family) for family in families] == [count] * 5
    assert all(rising([last, *family]) for family in families)
    # The random tail aside: the counters themselves begin elsewhere in every process.
    assert len({one.int >> 32 for family in families for one in family}) == 5 * count
    assert len({one.int >> 34 & 0x0FFF_FFFF for family in families for one in family[:1]}) == 5
