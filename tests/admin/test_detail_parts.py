"""The page of one job that has had many attempts, and a long timeline."""

from __future__ import annotations

import json
import re
from itertools import chain

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobqueue import lifecycle
from jobqueue.admin.hiding import HIDDEN
from jobqueue.models import JobLog
from tests.admin.one_job import (
    TRACEBACK,
    address,
    detail,
    errored,
    failed_job,
    part,
    whole,
    words_of,
)
from tests.factories import JobFactory, ago

pytestmark = pytest.mark.django_db


def test_five_hundred_attempts(admin_client: Client) -> None:
    job = JobFactory(failed=True, attempt=500, max_attempts=500)
    lines = [
        JobLog(
            job=job,
            event="errored",
            attempt=number,
            created_at=ago(1_000 - number),
            message=f"ValueError: {number}",
            data={"traceback": TRACEBACK},
        )
        for number in range(1, 501)
    ]
    JobLog.objects.bulk_create(lines)
    with CaptureQueriesContext(connection) as captured:
        body = detail(admin_client, job)
    assert len(captured) <= 22
    assert not any('"jobqueue_job"."args", "jobqueue_job"' in each["sql"] for each in captured)
    found = [int(number) for number in re.findall(r"Attempt (\d+)</span>", body)]
    assert found == list(range(500, 480, -1))
    for below, last in ((481, 461), (41, 21), (21, 1)):
        if below == 481:
            assert f"?attempts_below={below}#" in body
        body = detail(admin_client, job, attempts_below=below)
        found = [int(number) for number in re.findall(r"Attempt (\d+)</span>", body)]
        assert found == list(range(below - 1, last - 1, -1))
        assert ("older-attempts" in body) is (last > 1)


def test_timeline_in_parts(admin_client: Client) -> None:
    job = JobFactory(processing=True, started_at=ago(50), attempted_at=ago(50))
    lines = [
        JobLog(job=job, event="note", attempt=1, created_at=ago(40), message=f"note {number:03}")
        for number in range(250)
    ]
    JobLog.objects.bulk_create(lines)
    body = detail(admin_client, job)
    shown = [re.findall(r"note \d+|Enqueued|Started", words_of(part(body, "timeline")))]
    assert "?part=timeline" in body
    while link := re.search(r"\?lines_before=(\d+)", body):
        body = detail(admin_client, job, lines_before=link[1])
        assert "?part=timeline" not in body  # it would be swapped for the newest
        shown.insert(0, re.findall(r"note \d+|Enqueued|Started", words_of(part(body, "timeline"))))
    assert [len(each) for each in shown] == [52, 100, 100]
    assert list(chain(*shown)) == [
        "Enqueued",
        "Started",
        *(f"note {number:03}" for number in range(250)),
    ]


@pytest.mark.parametrize("query", ["attempts_below", "lines_before"])
@pytest.mark.parametrize("value", ["x", "-1", "0", "9" * 18, "9" * 40, "", "٣"])
def test_odd_addresses(admin_client: Client, query: str, value: str) -> None:
    detail(admin_client, failed_job(), **{query: value})


def test_long_traceback_is_cut_in_the_middle(admin_client: Client) -> None:
    job = JobFactory(failed=True)
    text = "the beginning\n" + "y" * 200_000 + "\nthe end"
    line = errored(job, 1, 5, traceback=text)
    body = detail(admin_client, job)
    assert "the beginning" in body
    assert "<strong>the end</strong>" in body
    assert "characters are left out" in body
    assert len(body) < 100_000
    url = address(job, "line", line.pk, "traceback")
    assert url in body
    assert whole(admin_client, url) == text


@pytest.mark.parametrize("length", [32_768, 32_769, 65_536, 65_537, 50_000])
def test_traceback_around_the_limits(admin_client: Client, length: int) -> None:
    job = JobFactory(failed=True)
    text = "".join(chr(97 + number % 26) for number in range(length))
    errored(job, 1, 5, traceback=text)
    body = detail(admin_client, job)
    assert (text in body) is (length <= 65_536)


def test_result_of_an_earlier_run(admin_client: Client) -> None:
    job = JobFactory(completed=True, return_value={"sum": 9007199254740993, "token": "canary"})
    lifecycle.requeue(job.pk)
    line = JobLog.objects.get(job=job)
    url = address(job, "line", line.pk, "return_value")
    assert url in detail(admin_client, job)
    assert json.loads(whole(admin_client, url)) == {"sum": 9007199254740993, "token": HIDDEN}
