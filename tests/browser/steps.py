"""What several of these tests do: an empty queue to begin with, and the ways through the dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry

from jobqueue.models import Job, Status, Tally
from tests.factories import ago, now

ROOT = "/admin/jobqueue/"
LIST = f"{ROOT}job/"


def empty() -> None:
    """Leave no row of the queue's."""
    LogEntry.objects.all().delete()
    for model in apps.get_app_config("jobqueue").get_models():
        if model._meta.managed:
            model._base_manager.all().delete()


def many_failed(number: int, **more: Any) -> list[Job]:
    """Failed jobs, all of the same times."""
    begun, ended, due = ago(20), ago(10), ago(60)
    given = {"task_path": "shop.mail.send", "error": "ServerBusy: 451 try again later"} | more
    return Job.objects.bulk_create(
        Job(
            args=[each],
            kwargs={},
            status=Status.FAILED,
            attempt=1,
            max_attempts=1,
            timeout=60.0,
            run_after=due,
            enqueued_at=due,
            started_at=begun,
            attempted_at=begun,
            finished_at=ended,
            worker="host:1:00000000",
            **given,
        )
        for each in range(number)
    )


def finished(completed: int, failed: int) -> None:
    """Some that ended just now, as the charts know it."""
    for span in (60, 900, 7_200):
        begun = int(now().timestamp()) // span * span
        Tally.objects.create(
            span=span,
            starts_at=datetime.fromtimestamp(begun, UTC),
            queue_name="default",
            task_path="shop.mail.send",
            completed=completed,
            failed=failed,
        )


def ids_shown(page: Any) -> list[str]:
    """The ids of the rows of the list, from top to bottom."""
    return [str(text) for text in page.locator("#result_list tbody th code").all_inner_texts()]


def number_in(text: str) -> int:
    """The first number of a text."""
    found = re.search(r"\d[\d,]*", text)
    assert found, text
    return int(found.group().replace(",", ""))


def tick(page: Any, jobs: Iterable[Job]) -> None:
    """Tick the rows of these jobs."""
    for job in jobs:
        page.locator(f"input.action-select[value='{job.pk}']").check()


def run_action(page: Any, verb: str) -> None:
    """Choose an action of the list, and run it."""
    page.locator("select[name=action]").select_option(f"{verb}_jobs")
    page.locator(".actions button[type=submit]").first.click()
    page.wait_for_url("**/act/**")


def confirm(page: Any, reason: str = "the provider is back", **fields: str) -> None:
    """Fill in the confirmation and send it."""
    page.locator("#id_reason").fill(reason)
    for name, value in fields.items():
        page.locator(f"#id_{name}").fill(value)
    send(page)


def send(page: Any) -> None:
    """Send the confirmation as it is."""
    with page.expect_navigation():
        page.locator("[data-jq=confirm-form] button[type=submit]").click()


def message(page: Any) -> str:
    """What the page says has become of it."""
    return str(page.locator("[data-jq=told]").inner_text()).strip()
