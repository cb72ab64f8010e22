"""The search box: which terms find which jobs, and how the others are refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jobqueue.admin.listing import Listing
from jobqueue.models import Job
from tests.factories import JobFactory, now

pytestmark = pytest.mark.django_db


def at(text: str, see_args: bool = True) -> Listing:
    return Listing.of(Job.objects.all(), {"q": text}, see_args=see_args, now=now())


def found(text: str) -> set[uuid.UUID]:
    each = at(text)
    assert not each.problems, each.problems
    return set(each.queryset.values_list("pk", flat=True))


def test_id() -> None:
    job = JobFactory()
    JobFactory()
    for text in (str(job.pk), job.pk.hex, f"  {job.pk} ", str(job.pk).upper()):
        assert found(text) == {job.pk}
    assert found(str(uuid.uuid4())) == set()


def test_task() -> None:
    one, more, other = (
        JobFactory(task_path=path)
        for path in ("shop.tasks.charge", "shop.tasks.charge_all", "shop%tasks.charge")
    )
    assert found("shop.tasks.charge") == {one.pk}  # the whole path of a task
    assert found("shop.tasks.char") == {one.pk, more.pk}  # none's, so the beginning of some
    assert found("shop.tasks.charge*") == {one.pk, more.pk}
    assert found("task:shop.tasks.charge") == {one.pk}
    assert found("task:shop.tasks.char") == set()
    assert found("task:shop.tasks.ch*") == {one.pk, more.pk}
    assert found("task:shop%*") == found("shop%") == {other.pk}
    for text in ("charge", "shop_tasks", "Shop.", "<script>", "'", "--"):
        assert found(text) == set()


def test_columns() -> None:
    job = JobFactory(
        failed=True,
        queue_name="mail out",
        worker="web1:4100:0a1b2c3d",
        idempotency_key="order:7",
        error='ValueError: no "such" order',
        attempt=4,
        max_attempts=4,
    )
    JobFactory(worker="web10:4100:0a1b2c3d", error="valueerror", attempt=3)
    for text in (
        'queue:"mail out"',
        "worker:web1",
        "worker:web1:4100:0a1b2c3d",
        "key:order:7",
        'error:"ValueError: no"',
        r'error:"ValueError: no \"such\""',
        "error:ValueError",
        "attempt:>3",
        "attempt:>=4",
        "attempt:4",
        "attempt:=4",
        'attempt:>3 queue:"mail out" worker:web1',
    ):
        assert found(text) == {job.pk}, text
    assert found("attempt:>3 queue:default") == set()
    assert found("error:such") == set()


BIG = 9_007_199_254_740_993
HUGE = 12_345_678_901_234_567_890_123_456_789


def test_arguments() -> None:
    job = JobFactory(
        args=["x", {"n": 1}, BIG],
        kwargs={
            "a": {"b": 1},
            "exact": "ä",
            "in": None,
            "t": True,
            "list": [{"k": "v w"}],
            "big": BIG,
            "huge": HUGE,
            "one": "1",
            "f": 1e16,
        },
    )
    JobFactory(
        args=["y", {"n": "1"}],
        kwargs={
            "a": {"b": "1"},
            "t": "true",
            "big": BIG - 1,
            "huge": HUGE - 1,
            "one": 1,
            "in": "null",
        },
    )
    for text in (
        *("args.0:x", "args.1.n:1", f"args.2:{BIG}", "args.a.b:1", "args.exact:ä", "args.in:null"),
        *("args.t:true", 'args.list.0.k:"v w"', f"args.big:{BIG}", f"args.huge:{HUGE}"),
        *('args.one:"1"', "kwargs.a.b:1", "args.f:1e16"),
    ):
        assert found(text) == {job.pk}, text
    for text in (
        "args.a.b:2",
        "args.9:1",
        f"args.huge:{HUGE + 1}",
        "args.nothing:null",
        "args.a:b",
        "args.a.b.c:1",
        "args.0.x:1",
        "args.99999999999:1",
    ):
        assert found(text) == set(), text


@pytest.mark.parametrize(
    "text",
    [
        *("meta.a:1", "tag:x", "foo:bar", "args:1", "args.a:", "queue:", "attempt:x", "attempt:>"),
        *(
            "attempt:99999999999",
            'queue:"a',
            'a"b',
            "*",
            "task:*",
            "12345",
            "{{7|add:7}}",
            "queue.a:b",
            "args..a:1",
        ),
        *("args.a:[1]", 'args.a:{"b":1}', "args.a:" + "x" * 600, "a " * 11),
        *("args." + ".".join("a" * 11) + ":1", r'args.a:"\ud800"', r'args.a:"\u0000"'),
        *("args.card.token:x", "args.PASSWORD:x", "args.0.api_key.x:1", 'error:"E: password=x"'),
    ],
)
def test_bad_terms_are_refused(text: str) -> None:
    JobFactory()
    each = at(text)
    assert len(each.problems) == 1
    assert not each.queryset.exists()
    assert each.count() == 0


def test_arguments_take_a_right() -> None:
    JobFactory(kwargs={"a": 1})
    for text in ("args.a:1", "kwargs.a:1"):
        each = at(text, see_args=False)
        assert "right" in each.problems[0]
        assert each.count() == 0


@pytest.mark.parametrize(
    "value", ["1e400", "-1e400", "NaN", "Infinity", "[" * 200, "1" * 400, "\u202e"]
)
def test_odd_values_are_harmless(value: str) -> None:
    job = JobFactory(kwargs={"a": value})
    each = at(f"args.a:{value}")
    assert set(each.queryset) <= {job}


def test_every_problem_is_named() -> None:
    texts: Any = at("foo:1 queue:a bar:2").problems
    assert [("foo" in text, "bar" in text) for text in texts] == [(True, False), (False, True)]
