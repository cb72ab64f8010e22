"""Which jobs an address means: order, pages, windows and numbers, and the plans they are read by."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue import ids
from jobqueue.admin import counting, paging, states, windows
from jobqueue.admin.listing import Listing
from jobqueue.models import Job
from tests.factories import JobFactory, ago, now

pytestmark = pytest.mark.django_db


def at(see_args: bool = True, **params: str) -> Listing:
    params = {name.rstrip("_"): value for name, value in params.items()}
    return Listing.of(Job.objects.all(), params, see_args=see_args, now=now())


def found(**params: str) -> set[uuid.UUID]:
    return set(at(**params).queryset.values_list("pk", flat=True))


def keys(*jobs: Job) -> set[uuid.UUID]:
    return {job.pk for job in jobs}


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes windows so small that a few rows do not fit."""
    cache.clear()

    def size(rows: int) -> None:
        cache.clear()
        monkeypatch.setattr(windows, "NEAR", rows)
        monkeypatch.setattr(windows, "FAR", rows)

    yield size
    cache.clear()


def one_of_each() -> dict[str, Job]:
    return {
        "scheduled": JobFactory(scheduled=True),
        "retrying": JobFactory(scheduled=True, error="ValueError: no", attempt=1),
        "queued": JobFactory(),
        "processing": JobFactory(processing=True),
        "lost": JobFactory(processing=True, lease_expires_at=ago(5)),
        "completed": JobFactory(completed=True),
        "failed": JobFactory(failed=True),
        "cancelled": JobFactory(stopping=True),
    }


def test_every_job_is_in_one_state() -> None:
    jobs = one_of_each()
    for key in states.STATES:
        assert found(state=key) == {jobs[key].pk}, key
    assert at().counts() == dict.fromkeys(states.STATES, 1)
    assert found() == keys(*jobs.values())


# Order and pages


def walk(params: dict[str, str], size: int) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """All pages forth, and back again."""
    forth: list[uuid.UUID] = []
    where: dict[str, str] = {}
    while True:
        each = at(**params)
        page = each.page(size, **where)
        forth += [job.pk for job in page.rows]
        assert page.has_newer == bool(where)
        if not page.has_older:
            break
        assert len(page.rows) == size
        where = {"after": paging.written(each.order, paging.place_of(each.order, page.rows[-1]))}
    back = [job.pk for job in page.rows]
    while page.has_newer:
        first = paging.written(each.order, paging.place_of(each.order, page.rows[0]))
        page = at(**params).page(size, before=first)
        assert page.has_older
        back = [job.pk for job in page.rows] + back
    return forth, back


def test_pages_of_the_newest_first() -> None:
    jobs = JobFactory.create_batch(23, failed=True, enqueued_at=ago(60))
    JobFactory.create_batch(5)
    forth, back = walk({"state": "failed"}, 5)
    assert forth == back == [job.pk for job in reversed(jobs)]


@pytest.mark.parametrize("rows_in_window", [100_000, 17, 9])
def test_pages_in_the_order_in_which_jobs_will_run(
    window: Callable[[int], None], rows_in_window: int
) -> None:
    chance = random.Random(rows_in_window)
    jobs = [
        JobFactory(
            queue_name=chance.choice("abc"), priority=chance.choice([-1, 0, 0, 5]), worker="w"
        )
        for _ in range(40)
    ]
    window(rows_in_window)
    jobs.sort(key=lambda job: (job.queue_name, -job.priority, job.pk))
    expected = [job.pk for job in jobs]
    assert walk({"state": "queued"}, 4) == (expected, expected)
    inside = expected[:rows_in_window]
    searched = {"state": "queued", "q": "worker:w"}
    for size in (1, 4, 7):
        assert walk(searched, size) == (inside, inside)
    each = at(**searched)
    assert each.count() == len(inside)
    assert each.windowed is (rows_in_window < 40)
    assert [job.pk for job in each.queryset] == inside
    assert at(**searched, all="1").count() == 40


def test_pages_of_the_soonest_first(window: Callable[[int], None]) -> None:
    moments = [ago(-60 * number) for number in (3, 1, 2)]
    jobs = [JobFactory(scheduled=True, run_after=moments[number % 3]) for number in range(17)]
    jobs.sort(key=lambda job: (job.run_after, job.pk))
    expected = [job.pk for job in jobs]
    assert walk({"state": "scheduled"}, 4) == (expected, expected)
    window(10)
    assert walk({"state": "scheduled"}, 4) == (expected[:10], expected[:10])


@pytest.mark.parametrize(
    "cursor",
    ["abc", "~", "0" * 32 + "~", "a~1000~" + "0" * 32, "\0", "9" * 5_000, "a~x~" + "0" * 32],
)
def test_a_bad_cursor_is_none(cursor: str) -> None:
    one_of_each()
    for state in ("", "queued", "scheduled"):
        assert len(at(state=state).page(50, after=cursor).rows) == (1 if state else 8)
        assert len(at(state=state).page(50, before=cursor).rows) == (1 if state else 8)


def test_a_cursor_of_another_order_is_none() -> None:
    job = JobFactory()
    assert paging.read(paging.NEXT_TO_RUN, job.pk.hex) is None
    place = ("a~b", 3, job.pk)
    assert paging.read(paging.NEXT_TO_RUN, paging.written(paging.NEXT_TO_RUN, place)) == place
    due = (ago(5), job.pk)
    assert paging.read(paging.SOONEST, paging.written(paging.SOONEST, due)) == due
    naive = (
        timezone.make_naive(due[0]) if timezone.is_aware(due[0]) else timezone.make_aware(due[0])
    )
    assert paging.read(paging.SOONEST, f"{naive.isoformat()}~{job.pk.hex}") is None


# Filters


def test_filters() -> None:
    jobs = one_of_each()
    mail = JobFactory(
        queue_name="mail", failed=True, task_path="shop.mail", attempt=3, max_attempts=3
    )
    assert found(queue="mail") == found(task="shop.mail") == {mail.pk}
    assert found(queue="mail", state="failed") == {mail.pk}
    assert found(queue="mail", state="queued") == set()
    assert found(queue="default", state="queued") == {jobs["queued"].pk}
    assert found(attempt="first") == keys(*jobs.values())
    assert found(attempt="retried") == {mail.pk}
    assert found(attempt="last") == {mail.pk, jobs["failed"].pk}
    assert at(queue="mail", state="failed").words() == "state is Failed, queue is mail"


@pytest.mark.parametrize(
    "params",
    [
        {"state": "x"},
        {"attempt": "x"},
        {"within": "x"},
        {"from": "x"},
        {"to": "2026-13-01"},
        {"to": "9999-12-31"},
        {"queue": "\0"},
        {"q": "\0"},
    ],
)
def test_what_is_not_understood_finds_nothing_and_says_so(params: dict[str, str]) -> None:
    JobFactory()
    each = at(**params)
    assert len(each.problems) == 1
    assert (each.count(), list(each.queryset), each.page(5).rows) == (0, [], [])
    assert set(each.counts().values()) == {0}


def enqueued(seconds: float, **values: Any) -> Job:
    moment = ago(seconds)
    key = uuid.UUID(int=ids.first_at(moment.timestamp()).int + random.getrandbits(32))
    job: Job = JobFactory(id=key, enqueued_at=moment, **values)
    return job


def test_periods() -> None:
    new, old = enqueued(60), enqueued(7_000)
    ancient = enqueued(20 * 86_400)
    assert found(within="15min") == found(within="1h") == {new.pk}
    assert found(within="24h") == {new.pk, old.pk}
    middle = ago(3_600).isoformat(timespec="minutes")
    assert found(from_=middle) == {new.pk}
    assert found(to=middle) == {old.pk, ancient.pk}
    day = ago(20 * 86_400).astimezone() if timezone.is_aware(now()) else ago(20 * 86_400)
    day = timezone.localtime(day) if timezone.is_aware(day) else day
    text = day.date().isoformat()
    assert found(from_=text, to=text) == {ancient.pk}
    assert found(from_="0001-01-01", to="0001-01-02") == set()
    # In an order that is not that of ids a period is looked for, and finds the same.
    assert found(within="1h", state="queued") == {new.pk}


def test_period_of_other_days_walks() -> None:
    jobs = [enqueued(86_400 + number, failed=True) for number in range(12)]
    start = ago(2 * 86_400).isoformat(timespec="minutes")
    stop = ago(3_600).isoformat(timespec="minutes")
    forth, back = walk({"from": start, "to": stop}, 5)
    assert forth == back == [job.pk for job in jobs]


# Windows and numbers


def test_a_window_bounds_what_no_index_serves(window: Callable[[int], None]) -> None:
    old = JobFactory(worker="w")
    JobFactory.create_batch(10)
    window(10)
    each = at(q="worker:w")
    assert (each.count(), each.page(5).rows, each.windowed) == (0, [], True)
    assert found(q="worker:w", all="1") == {old.pk}
    window(11)
    each = at(q="worker:w")
    assert (found(q="worker:w"), each.windowed) == ({old.pk}, False)
    assert not at(state="queued").is_limited
    assert at(state="queued", queue="default").is_limited is False
    assert not at(within="1h", state="failed").is_limited
    assert not at(q=str(old.pk)).is_limited


def test_the_end_of_a_window_is_remembered_for_those_rows_alone(
    window: Callable[[int], None],
) -> None:
    JobFactory.create_batch(6)
    window(5)
    with CaptureQueriesContext(connection) as asked:
        assert at(q="worker:w").count() == 0
        assert at(q="key:x").count() == 0
    assert sum("jobqueue_job" in query["sql"] for query in asked) == 3
    assert at(q="worker:w").end is not None
    limited = Listing.of(
        Job.objects.filter(queue_name="mine"), {"q": "worker:w"}, see_args=True, now=now()
    )
    assert limited.end is None


def test_numbers_are_those_of_the_lists_they_lead_to(window: Callable[[int], None]) -> None:
    for number in range(3):
        one_of_each()
        JobFactory(completed=True, worker="w", attempt=number)
        JobFactory(failed=True, worker="w")
        JobFactory(worker="w")
    for size in (100_000, 10, 4):
        window(size)
        for params in ({}, {"q": "worker:w"}, {"queue": "default"}, {"within": "1h"}):
            for chosen in ("", "queued", "lost", "completed"):
                each = at(**params, state=chosen)
                for key, number in each.counts().items():
                    if number is not None:
                        assert number == len(at(**params, state=key).queryset), (
                            params,
                            chosen,
                            key,
                        )
                assert each.count() == len(each.queryset)
                assert each.counts()[chosen] == each.count() if chosen else True
    window(4)
    assert at(q="worker:w").counts()["queued"] is None
    assert at(q="worker:w", state="queued").counts()["queued"] is not None
    assert at(q="worker:w").counts()["cancelled"] == 0


def test_numbers_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "CAP", 5)
    JobFactory.create_batch(9, failed=True)
    each = at(state="failed")
    assert each.count() == each.counts()["failed"] == 6
    assert at().count() == 6


def test_numbers_take_one_statement_and_one_for_windows(window: Callable[[int], None]) -> None:
    one_of_each()
    for params in ({}, {"q": "error:x"}, {"state": "failed", "queue": "a"}):
        with CaptureQueriesContext(connection) as asked:
            each = at(**params)
            each.page(50)
            each.counts()
            each.count()
        assert sum("jobqueue_job" in query["sql"] for query in asked) <= 4


def test_newer() -> None:
    first = JobFactory(failed=True)
    assert at(state="failed").newer(first.pk.hex) == 0
    JobFactory.create_batch(3, failed=True)
    JobFactory.create_batch(2)
    assert at(state="failed").newer(first.pk.hex) == 3
    assert at().newer(first.pk.hex) == 5
    assert at().newer("nonsense") == at().newer(None) == 6


def test_only_the_jobs_one_may_see() -> None:
    mine, theirs = JobFactory(queue_name="mine"), JobFactory(queue_name="theirs")
    limited = Listing.of(
        Job.objects.filter(queue_name="mine"), {"q": "task:tests*"}, see_args=True, now=now()
    )
    assert keys(*limited.queryset) == {mine.pk}
    assert limited.count() == limited.counts()["queued"] == 1
    assert limited.newer(None) == 1
    assert theirs.pk not in keys(*limited.page(50).rows)


# Plans


def multiply(job: Job, number: int) -> None:
    """Beside a job so many others that differ from it in the end of their id alone."""
    others = ", ".join(field.column for field in Job._meta.concrete_fields if not field.primary_key)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO jobqueue_job (id, {others})"
            f" SELECT (left(id::text, 24) || right(gen_random_uuid()::text, 12))::uuid, {others}"
            " FROM jobqueue_job, generate_series(1, %s) WHERE id = %s",
            [number, job.pk],
        )


def plan_of(sql: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        (answer,) = cursor.fetchone()
    plan = json.loads(answer) if isinstance(answer, str) else answer

    def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield node
        for below in node.get("Plans", []):
            yield from nodes(below)

    return list(nodes(plan[0]["Plan"]))


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("params", "index", "sorts"),
    [
        ({}, "jobqueue_job_pkey", False),
        ({"state": "failed"}, "jobqueue_failed", False),
        ({"state": "cancelled"}, "jobqueue_cancelled", False),
        ({"state": "failed", "within": "1h"}, "jobqueue_failed", False),
        ({"state": "queued"}, "jobqueue_claimable", False),
        ({"state": "queued", "queue": "default"}, "jobqueue_claimable", False),
        ({"state": "lost"}, "jobqueue_leased", False),
        ({"state": "scheduled"}, "jobqueue_due", True),  # among jobs due in the same microsecond
        ({"within": "7d"}, "jobqueue_job_pkey", False),
        ({"q": "worker:w"}, "jobqueue_job_pkey", False),
        ({"q": "args.a:1", "state": "queued"}, "jobqueue_claimable", False),
    ],
)
def test_pages_go_along_an_index(
    params: dict[str, str], index: str, sorts: bool, window: Callable[[int], None]
) -> None:
    multiply(JobFactory(completed=True), 600)
    for trait in ("queued", "scheduled", "failed", "cancelled", "processing"):
        JobFactory.create_batch(12, **{trait: True})
    window(5)
    each = at(**params)
    ends = each.end
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
    middle = each.page(3).rows
    cursors = [None]
    if middle:
        cursors.append(paging.written(each.order, paging.place_of(each.order, middle[-1])))
    for cursor_ in cursors:
        with CaptureQueriesContext(connection) as asked:
            each.page(50, after=cursor_)
        for query in asked:
            nodes = plan_of(query["sql"])
            kinds = {node["Node Type"] for node in nodes}
            used = {node["Index Name"] for node in nodes if "Index Name" in node}
            assert used <= {index} or (ends and used), (query["sql"], used)
            assert index in used or "Result" in kinds, query["sql"]
            assert "Seq Scan" not in kinds
            assert sorts or "Sort" not in kinds, query["sql"]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("params", "indexes"),
    [
        ({}, {"claimable", "failed", "cancelled", "due", "leased", "job_pkey"}),
        ({"state": "retrying", "within": "7d"}, {"due"}),
        ({"state": "scheduled", "queue": "default"}, {"due"}),
    ],
)
def test_numbers_go_along_an_index(
    params: dict[str, str], indexes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "CAP", 5)
    monkeypatch.setattr(windows, "NEAR", 10)
    traits = ("completed", "queued", "failed", "cancelled", "processing", "scheduled")
    for day, trait in enumerate(traits, start=20):
        then = ids.first_at(ago(day * 86_400).timestamp())
        multiply(JobFactory(**{trait: True}, id=then), 2_000 if trait == "completed" else 200)
    JobFactory.create_batch(5)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
    each = at(**params)
    with CaptureQueriesContext(connection) as asked:
        each.count() if params else each.counts()
    nodes = [node for query in asked for node in plan_of(query["sql"])]
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}
    used = {node["Index Name"] for node in nodes if "Index Name" in node}
    looked_up = {"jobqueue_job_pkey"}  # the end of a window
    assert used <= {f"jobqueue_{name}" for name in indexes} | looked_up
    assert used >= {f"jobqueue_{name}" for name in indexes}
    # A period leads nowhere in a list that is in another order.
    conditions = [node.get("Index Cond", "") for node in nodes]
    assert not [each for each in conditions if each.startswith("(id >= ")]


@pytest.mark.postgres
def test_no_statement_counts_everything_or_skips_rows(window: Callable[[int], None]) -> None:
    one_of_each()
    with CaptureQueriesContext(connection) as asked:
        for params in (
            {},
            {"q": "tests.tasks_sample.nothing"},
            {"state": "queued", "q": "args.a:1 error:x"},
            {"q": "task:a*", "all": "1"},
        ):
            each = at(**params)
            each.page(50)
            each.counts()
    for query in asked:
        sql = query["sql"].upper()
        for word in ("OFFSET", "DISTINCT", "UPPER("):
            assert word not in sql, sql
        assert sql.count("COUNT(*)") <= sql.count("LIMIT"), sql


@pytest.mark.postgres
def test_numbers_with_parameters_that_cannot_be_hashed(db: None) -> None:
    """As of a site that limits what people see by an array."""
    number = counting.Number("n", ([1, 2],), "(SELECT CARDINALITY(%s::int[]) AS n)")
    assert counting.ask([number, counting.NONE, number], "default") == [2, 0, 2]
