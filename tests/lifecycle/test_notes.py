"""What tasks say of themselves: on the row while they run, and in the log."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from jobqueue import lifecycle
from jobqueue.lifecycle import Note
from jobqueue.models import Job, JobLog
from tests.factories import now
from tests.lifecycle.acts import (
    WORKER,
    claimed,
    events,
    expire,
    held,
    is_close,
    local_time_too,
    outcome,
    picture,
    row,
)


@pytest.mark.django_db
class TestNotes:
    @local_time_too
    def test_lines_in_their_order(self):
        attempt = claimed()
        assert lifecycle.take_notes([Note(attempt, "one"), Note(attempt, "two", "error")]) == []
        lines = list(row(attempt).log.all())
        assert [(line.message, line.level) for line in lines] == [("one", "info"), ("two", "error")]
        assert {(line.event, line.attempt, line.worker) for line in lines} == {("note", 1, WORKER)}
        assert is_close(lines[0].created_at, now())

    def test_the_last_progress_stays_on_the_row(self):
        one, two = claimed(), claimed()
        lifecycle.take_notes(
            [
                Note(one, progress={"done": 1, "total": 3}),
                Note(two, progress={"done": 1.5}),
                Note(one, progress={"done": 2, "total": 3, "message": "…"}),
            ]
        )
        assert row(one).progress == {"done": 2, "total": 3, "message": "…"}
        assert row(two).progress == {"done": 1.5}
        assert events(one) == []

    def test_progress_survives_the_end(self):
        attempt = claimed()
        lifecycle.take_notes([Note(attempt, progress={"done": 3})])
        lifecycle.settle([outcome(attempt)])
        assert row(attempt).progress == {"done": 3}

    @pytest.mark.parametrize("case", ["owner", "attempt", "cancelled", "ended", "lost"])
    def test_progress_of_an_attempt_that_is_not_its_owners_changes_nothing(self, case):
        attempt = claimed()
        late = attempt
        if case == "owner":
            late = replace(attempt, owner=uuid.uuid4())
        elif case == "attempt":
            late = replace(attempt, attempt=2)
        elif case == "cancelled":
            lifecycle.cancel(attempt.id)
        elif case == "ended":
            lifecycle.settle([outcome(attempt)])
        else:
            expire(attempt)
            lifecycle.recover([attempt.id])
        before = picture(attempt)
        assert lifecycle.take_notes([Note(late, progress={"done": 1})]) == []
        assert picture(attempt) == before

    def test_a_line_of_a_late_attempt_is_kept_with_its_number(self):
        attempt = claimed()
        lifecycle.cancel(attempt.id)
        lifecycle.take_notes([Note(attempt, "cleaning up")])
        assert events(attempt) == ["cancelled", "note"]

    def test_notes_of_a_job_that_is_gone_are_dropped(self):
        gone, other = claimed(), claimed()
        Job.objects.filter(pk=gone.id).delete()
        notes = [Note(gone, "a"), Note(gone, progress={}), Note(other, "b")]
        assert lifecycle.take_notes(notes) == []
        assert JobLog.objects.get().message == "b"

    def test_text_that_a_database_refuses(self):
        attempt = claimed()
        lifecycle.take_notes([Note(attempt, "a\0\ud800" + "b" * 5_000)])
        message = JobLog.objects.get().message
        assert message.startswith("a\\x00\\ud800b")
        assert len(message) == 2_000

    def test_none(self):
        assert lifecycle.take_notes([]) == []


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_notes_on_a_locked_row_come_back_and_the_others_are_written():
    mine, other = claimed(), claimed()
    notes = [Note(mine, "a"), Note(other, "b"), Note(mine, progress={"done": 1})]
    with held(row(mine)):
        assert lifecycle.take_notes(notes) == [notes[0], notes[2]]
        assert (events(mine), events(other)) == ([], ["note"])
    assert lifecycle.take_notes([notes[0], notes[2]]) == []
    assert (events(mine), row(mine).progress) == (["note"], {"done": 1})
