"""What is counted of attempts that ended: exactly, soon, and never at the cost of a job."""

from __future__ import annotations

import itertools
import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from jobqueue import lifecycle, tallies
from jobqueue.attempts import Attempt, Ending, Outcome
from jobqueue.models import Status, Tally
from jobqueue.tallies import BOUNDS, KEPT, SPANS, Counter, bucket, by_queue, percentile, read
from tests.factories import JobFactory, ago, now
from tests.lifecycle.acts import answer_of, claimed, expire, held, in_thread, together

PATH = "tests.tasks_sample.nothing"


def ended(
    ending: Ending = Ending.COMPLETED,
    *,
    waited: float = 0.0,
    ran: float = 0.0,
    queue: str = "default",
    path: str = PATH,
    error: str = "",
) -> Outcome:
    due = ago(60)
    attempt = Attempt(
        *(uuid.uuid4(), path, [], {}, queue, 0, 1, 0, 5, None, None, due, due),
        *(due + timedelta(seconds=waited), due + timedelta(seconds=waited), uuid.uuid4(), "w"),
    )
    return Outcome(attempt, ending, error=error, ran=ran)


def counted(*outcomes: tuple[Outcome, Status]) -> Counter:
    counter = Counter()
    for outcome, status in outcomes:
        counter.count(outcome, status)
    return counter


def done(number: int = 1, **values: Any) -> Counter:
    return counted(*[(ended(**values), Status.COMPLETED)] * number)


def totals(span: int = 60) -> tuple[int, int, int]:
    rows = Tally.objects.filter(span=span).values_list("completed", "failed", "retried")
    completed, failed, retried = zip(*rows, strict=True) if rows else ((), (), ())
    return sum(completed), sum(failed), sum(retried)


class TestHistograms:
    def test_the_bounds_are_three_a_decade(self):
        assert BOUNDS[0] == pytest.approx(0.001)
        assert BOUNDS[-1] == pytest.approx(100_000)
        assert [bucket(BOUNDS[place]) for place in range(25)] == list(range(25))

    @pytest.mark.parametrize(
        ("seconds", "number"), [(-5.0, 0), (0.0, 0), (0.0005, 0), (1.5, 10), (1e9, 25)]
    )
    def test_every_time_has_a_bucket(self, seconds, number):
        assert bucket(seconds) == number

    @pytest.mark.parametrize("p", [50, 95, 0.5, 0.95, 100])
    def test_a_percentile_is_right_to_a_bucket(self, p):
        times = [0.002 * 1.01**place for place in range(1_000)]
        histogram: dict[str, int] = {}
        for each in times:
            histogram[str(bucket(each))] = histogram.get(str(bucket(each)), 0) + 1
        exact = times[int(len(times) * (p / 100 if p > 1 else p)) - 1]
        assert exact / 2.2 < percentile(histogram, p) < exact * 2.2

    def test_the_ends_of_percentiles(self):
        assert percentile({}, 95) is None
        assert percentile({"0": 0}, 95) is None
        assert percentile({"0": 4}, 50) == pytest.approx(0.0005)
        assert percentile({"25": 1}, 99) == BOUNDS[-1]
        assert percentile({"2": 1, "10": 1}, 50) <= BOUNDS[2]
        assert percentile({"2": 1, "10": 99}, 95) > BOUNDS[9]


@pytest.mark.django_db
class TestCounter:
    def test_each_ending_is_what_became_of_its_job(self):
        counter = counted(
            (ended(), Status.COMPLETED),
            (ended(Ending.ERRORED, error="ValueError: no"), Status.FAILED),
            (ended(Ending.ERRORED, error="ValueError: not yet"), Status.SCHEDULED),
            (ended(Ending.TIMED_OUT, error="TimedOut"), Status.SCHEDULED),
            (ended(Ending.NOT_FOUND, error="TaskNotFound"), Status.SCHEDULED),
            (ended(Ending.SNOOZED), Status.SCHEDULED),
            (ended(Ending.RELEASED), Status.QUEUED),
        )
        counter.write(now())
        for span in KEPT:
            assert totals(span) == (1, 1, 3)
        assert set(Tally.objects.values_list("last_error", flat=True)) == {"TaskNotFound"}

    def test_waits_and_runs(self):
        counter = done(3, waited=1.5, ran=0.03)
        counter.count(ended(waited=-2.0, ran=200.0), Status.COMPLETED)
        counter.count(ended(waited=200_000.0), Status.COMPLETED)
        counter.write(now())
        row = Tally.objects.get(span=60)
        assert row.waits == {"0": 1, str(bucket(1.5)): 3, "25": 1}
        assert row.runs == {"0": 1, str(bucket(0.03)): 3, str(bucket(200)): 1}

    def test_a_row_a_span_queue_and_task(self):
        counter = done(2)
        for queue, path in (("a", PATH), ("b", PATH), ("a", "x.y")):
            counter.count(ended(queue=queue, path=path), Status.COMPLETED)
        counter.write(now())
        assert Tally.objects.count() == 4 * len(KEPT)
        assert totals() == (5, 0, 0)

    def test_starts_are_multiples_of_the_span(self):
        moment = now()
        done().write(moment)
        for row in Tally.objects.all():
            assert row.starts_at.timestamp() % row.span == 0
            assert timedelta(0) <= moment - row.starts_at < timedelta(seconds=row.span)

    def test_what_is_there_is_added_to(self):
        counter = done(2, waited=0.5)
        counter.write(now())
        moment = now()
        counter.count(ended(waited=0.5), Status.COMPLETED)
        counter.write(moment)
        done(4, waited=0.5).write(moment)
        assert totals(7_200) == (7, 0, 0)
        assert sum(sum(row.waits.values()) for row in Tally.objects.filter(span=7_200)) == 7

    def test_an_earlier_error_stays_until_there_is_another(self):
        moment = now()
        counted((ended(Ending.ERRORED, error="x\0" + "y" * 900), Status.FAILED)).write(moment)
        done().write(moment)
        row = Tally.objects.get(span=60)
        assert row.last_error.startswith("x\\x00y")
        assert len(row.last_error) == 300

    def test_nothing_ended_costs_nothing(self, django_assert_num_queries):
        counter, moment, snoozed = Counter(), now(), ended(Ending.SNOOZED)
        with django_assert_num_queries(0):
            counter.write(moment)
            counter.count(snoozed, Status.SCHEDULED)
            counter.write(moment)

    def test_a_tick_costs_two_statements_however_many_jobs(self):
        counter, moment = done(), now()
        counter.write(moment)
        for _ in range(500):
            counter.count(ended(), Status.COMPLETED)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            counter.write(moment)
        verbs = [query["sql"].split()[0] for query in queries]
        assert [verb for verb in verbs if verb in ("SELECT", "UPDATE", "INSERT")] == [
            "SELECT",
            "UPDATE",
        ]
        assert totals() == (501, 0, 0)

    def test_attempts_that_were_taken_back(self):
        first, last = claimed(), claimed(max_attempts=1, queue_name="b")
        expire(first, last)
        counter = Counter()
        counter.lost(lifecycle.take_back([first.id, last.id]))
        died = claimed(max_attempts=1, queue_name="c")
        lifecycle.lose(died.owner, "killed", tell=counter.lost)
        stuck = claimed(queue_name="d")
        lifecycle.time_out(stuck.owner, [stuck.pair], tell=counter.lost)
        given_back = claimed(queue_name="e")
        lifecycle.hand_back(given_back.owner)
        counter.write(now())
        rows = {row.queue_name: row for row in Tally.objects.filter(span=60)}
        seen = {name: (row.failed, row.retried) for name, row in rows.items()}
        assert seen == {"default": (0, 1), "b": (1, 0), "c": (1, 0), "d": (0, 1)}
        assert rows["c"].last_error.startswith("WorkerLost: ")
        assert sum(rows["c"].waits.values()) == 1
        assert rows["c"].runs == {}


@pytest.mark.django_db(transaction=True)
class TestBesideOthers:
    def test_many_workers_at_once(self):
        """None is lost and none is counted twice, also while all make the same rows."""
        moment = now()
        counters = [done(10) for _ in range(6)]
        together(*[lambda each=each: each.write(moment) for each in counters])
        for counter in counters:
            counter.write(moment)
        for span in KEPT:
            assert totals(span) == (60, 0, 0)

    @pytest.mark.postgres
    def test_a_row_that_somebody_holds_waits_and_nothing_waits_for_it(self):
        moment = now()
        counter = done(2)
        counter.write(moment)
        row = Tally.objects.get(span=60)
        with held(row):
            for _ in range(3):
                counter.count(ended(), Status.COMPLETED)
                counter.write(moment)
            assert (totals(60), totals(900)) == ((2, 0, 0), (5, 0, 0))
        # In the next minute it is still counted where it belongs.
        counter.write(moment + timedelta(seconds=60))
        row.refresh_from_db()
        assert row.completed == 5
        assert Tally.objects.count() == len(KEPT)

    @pytest.mark.postgres
    def test_who_leaves_tries_again_while_a_row_is_held(self):
        moment = now()
        counter = done(2)
        counter.write(moment)
        counter.count(ended(), Status.COMPLETED)
        with held(Tally.objects.get(span=60)) as release:
            letting_go = threading.Timer(0.3, release)
            letting_go.start()
            counter.close(moment)
            letting_go.join()
        assert [totals(span) for span in KEPT] == [(3, 0, 0)] * len(KEPT)

    @pytest.mark.postgres
    def test_a_row_that_somebody_is_making(self):
        moment = now()
        done().write(moment)
        rows = list(Tally.objects.values("span", "starts_at", "queue_name", "task_path"))
        Tally.objects.all().delete()
        made, go_on = threading.Event(), threading.Event()

        def make() -> None:
            with transaction.atomic():
                Tally.objects.bulk_create([Tally(**row) for row in rows])
                made.set()
                go_on.wait(20)

        thread, answer = in_thread(make)
        assert made.wait(20)
        counter = done(3)
        counter.write(moment)
        assert not go_on.is_set(), "it waited for the other's commit"
        go_on.set()
        answer_of(thread, answer)
        assert totals() == (0, 0, 0)
        counter.write(moment)
        assert totals() == (3, 0, 0)

    def test_what_the_database_refuses_is_kept_and_raises_nothing(self, caplog):
        counter = done(2)
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_tally RENAME TO away")
        try:
            counter.write(now())
            counter.count(ended(), Status.COMPLETED)
            counter.write(now())
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE away RENAME TO jobqueue_tally")
        assert caplog.text.count("Cannot write what charts are drawn from") == 1
        counter.write(now())
        assert totals() == (3, 0, 0)

    def test_it_does_not_grow_without_end(self, monkeypatch):
        monkeypatch.setattr(tallies, "MOST_PENDING", 5)
        counter = Counter()
        monkeypatch.setattr(tallies, "_add", lambda using, rows: [])
        for place in range(3):
            counter.count(ended(queue=f"q{place}"), Status.COMPLETED)
            counter.write(now())
        assert len(counter._pending) <= 5

    def test_a_row_that_has_been_removed_is_made_again(self):
        counter, moment = done(), now()
        counter.write(moment)
        Tally.objects.all().delete()
        counter.count(ended(), Status.COMPLETED)
        counter.write(moment)
        counter.write(moment)
        assert totals() == (1, 0, 0)


def old(span: int, seconds: float) -> Tally:
    return Tally.objects.create(
        span=span, starts_at=ago(seconds), queue_name="q", task_path=f"{seconds}", completed=1
    )


@pytest.mark.django_db
def test_rows_are_kept_as_long_as_their_span_wants():
    for span, kept in KEPT.items():
        old(span, kept - 100)
        old(span, kept + 100)
    assert tallies.prune() == 3
    assert sorted(Tally.objects.values_list("span", flat=True)) == sorted(KEPT)
    assert tallies.prune() == 0


@pytest.mark.django_db
def test_no_more_than_a_few_rows_are_removed_at_once():
    for _ in range(3):
        old(60, 10_000)
    assert [tallies.prune(2), tallies.prune(2), tallies.prune(2)] == [2, 1, 0]


@pytest.fixture(params=["aware", "local"])
def zones(request, settings) -> str:
    if request.param == "local":
        settings.USE_TZ = False
        settings.TIME_ZONE = "Asia/Kathmandu"
    return str(request.param)


@pytest.mark.django_db
@pytest.mark.usefixtures("zones")
class TestReading:
    @pytest.mark.parametrize(("key", "bars"), [("1h", 60), ("24h", 96), ("7d", 84)])
    def test_all_spans_of_a_range_are_there(self, key, bars):
        rollup = read(key)
        assert (len(rollup.bars), rollup.span, rollup.is_empty) == (bars, SPANS[key][0], True)
        starts = [bar.starts_at for bar in rollup.bars]
        step = timedelta(seconds=rollup.span)
        assert all(later - earlier == step for earlier, later in itertools.pairwise(starts))
        assert starts[-1] <= now() < starts[-1] + 2 * step
        assert rollup.tasks == []

    @pytest.mark.parametrize("key", SPANS)
    def test_what_was_written_is_read(self, key):
        moment = now()
        counter = done(4, waited=1.0, ran=0.1)
        counter.count(ended(Ending.ERRORED, error="E: 1", queue="b"), Status.FAILED)
        counter.count(ended(Ending.ERRORED, error="E: 2", path="x.y"), Status.SCHEDULED)
        counter.write(moment)
        done(2).write(moment - timedelta(seconds=SPANS[key][0]))
        rollup = read(key)
        filled = [bar for bar in rollup.bars if bar.total]
        assert [(bar.completed, bar.failed, bar.retried) for bar in filled] == [
            (2, 0, 0),
            (4, 1, 1),
        ]
        assert sum(filled[1].waits.values()) == sum(filled[1].runs.values()) == 6
        assert percentile(filled[1].waits, 95) == pytest.approx(1.0, rel=0.6)
        assert [(each.task_path, each.failed, each.retried) for each in rollup.tasks] == [
            (PATH, 1, 0),
            ("x.y", 0, 1),
        ]
        assert [each.last_error for each in rollup.tasks] == ["E: 1", "E: 2"]
        assert not rollup.is_empty

    def test_only_some_queues(self):
        counter = done(4)
        counter.count(ended(queue="b"), Status.COMPLETED)
        counter.write(now())
        assert sum(bar.total for bar in read("1h", queues=["b"]).bars) == 1
        assert read("1h", queues=[]).is_empty
        bars = by_queue("1h")
        assert {name: sum(bar.total for bar in each) for name, each in bars.items()} == {
            "default": 4,
            "b": 1,
        }
        assert [len(each) for each in bars.values()] == [60, 60]

    def test_what_is_older_than_the_range_is_not_read(self):
        done().write(now() - timedelta(seconds=3_700))
        assert read("1h").is_empty
        assert not read("24h").is_empty


def test_the_start_of_a_span_in_the_hour_that_local_time_repeats(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    for fold in (0, 1):
        moment = datetime(2026, 11, 1, 1, 30, fold=fold)  # noqa: DTZ001
        assert tallies._start(moment, 60) == datetime(2026, 11, 1, 1, 30)  # noqa: DTZ001


@pytest.mark.django_db
def test_a_job_that_waits_to_be_claimed_is_seen_to_wait():
    job = JobFactory(run_after=ago(40))
    (attempt,) = lifecycle.claim(job.queue_name, uuid.uuid4(), "w", 1)
    counted((Outcome(attempt, Ending.COMPLETED), Status.COMPLETED)).write(now())
    assert Tally.objects.get(span=60).waits == {str(bucket(40)): 1}
