"""The demo site: its settings, read from the environment, and its page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client, RequestFactory
from django.urls import reverse

from config import tasks, views
from jobqueue.compat import task_enqueued
from jobqueue.models import Job, Status
from jobqueue.testing import run_jobs

PROJECT = Path(__file__).resolve().parent.parent
READ = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DEBUG", "ALLOWED_HOSTS", "JOBQUEUE_DEMO")
EMAIL = {"email-address": "ada@example.com", "email-times": "1"}
PAYMENT = {"payment-order_id": "4711", "payment-amount": "19.90"}
HOSTILE = '"><script>alert(1)</script>'


# --- Settings


def python(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project with these variables alone of those that the settings read."""
    environment = {name: value for name, value in os.environ.items() if name not in READ}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.run(
        [sys.executable, program, *arguments],
        cwd=PROJECT,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def site_settings(**variables: str) -> dict[str, Any]:
    """The site's settings as they come out with these variables in the environment."""
    program = (
        "import json, config.settings as s; "
        "print(json.dumps({k: v for k, v in vars(s).items() if k.isupper()}, default=str))"
    )
    done = python("-c", program, **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_with_debug_alone_the_site_runs_on_sqlite_without_redis() -> None:
    found = site_settings(DEBUG="1")
    assert found["DEBUG"] is True
    database = found["DATABASES"]["default"]
    assert database["ENGINE"] == "django.db.backends.sqlite3"
    assert database["NAME"] == str(PROJECT / "db.sqlite3")
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in database["OPTIONS"]["init_command"]
    assert list(found["CACHES"]) == ["default"]
    assert found["INSTALLED_APPS"][0] == "jobqueue"
    assert found["TASKS"]["default"]["BACKEND"] == "jobqueue.backend.JobQueueBackend"
    assert found["DEMO_FOLDER"] is None


def test_every_variable_is_read() -> None:
    found = site_settings(
        DATABASE_URL="postgres://ada:pass@db.example.com:5433/shop",
        REDIS_URL="redis://cache.example.com:6380/2",
        SECRET_KEY="long and random",
        ALLOWED_HOSTS="shop.example.com,www.example.com",
    )
    assert found["DEBUG"] is False
    assert found["SECRET_KEY"] == "long and random"
    assert found["ALLOWED_HOSTS"] == ["shop.example.com", "www.example.com"]
    database = found["DATABASES"]["default"]
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert (database["HOST"], database["PORT"], database["NAME"]) == (
        "db.example.com",
        5433,
        "shop",
    )
    assert (database["USER"], database["PASSWORD"]) == ("ada", "pass")
    assert "init_command" not in database.get("OPTIONS", {})
    assert found["CACHES"]["redis"]["BACKEND"] == "django_redis.cache.RedisCache"
    assert found["CACHES"]["redis"]["LOCATION"] == "redis://cache.example.com:6380/2"


def test_an_sqlite_url_gets_the_same_options() -> None:
    database = site_settings(DEBUG="1", DATABASE_URL="sqlite:////tmp/shop.sqlite3")
    assert database["DATABASES"]["default"]["NAME"] == "/tmp/shop.sqlite3"
    assert database["DATABASES"]["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize("variables", [{}, {"DEBUG": "0"}, {"SECRET_KEY": ""}])
def test_without_debug_a_missing_secret_key_is_an_error_that_names_the_cures(
    variables: dict[str, str],
) -> None:
    done = python("manage.py", "check", **variables)
    assert done.returncode != 0
    assert "Set SECRET_KEY to" in done.stderr
    assert "DEBUG=1" in done.stderr


def test_the_site_has_no_problems_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'site.sqlite3'}"
    done = python("manage.py", "check", "--fail-level", "WARNING", DEBUG="1", DATABASE_URL=url)
    assert done.returncode == 0, done.stderr


# --- The page


@pytest.fixture
def site(settings: Any) -> None:
    """The site's pages under the tests' settings."""
    settings.ROOT_URLCONF = "config.urls"
    settings.TEMPLATES = [
        template | {"DIRS": [PROJECT / "templates"]} for template in settings.TEMPLATES
    ]
    csrf = "django.middleware.csrf.CsrfViewMiddleware"
    settings.MIDDLEWARE = [*(name for name in settings.MIDDLEWARE if name != csrf), csrf]


@pytest.fixture
def lucky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample tasks that fail for their reasons only, never by chance."""
    monkeypatch.setattr(tasks, "unlucky", lambda share, *circumstances: False)


@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_the_page_offers_every_task(client: Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    html = page.content.decode()
    for name in ("enqueue-email", "enqueue-payment", "enqueue-report"):
        assert f'action="{reverse(name)}"' in html
    assert f'href="{reverse("admin:index")}"' in html
    assert "No jobs yet" in html
    assert "No worker is running" in html
    assert page.headers["Cache-Control"].startswith("max-age=0")


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("enqueue-email", EMAIL, {"address": "ada@example.com", "subject": "Hello 1"}),
        ("enqueue-payment", PAYMENT, {"order_id": 4711, "amount": "19.90"}),
        ("enqueue-report", {"report-seconds": "2.5"}, {"seconds": 2.5}),
    ],
)
@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_a_button_enqueues_its_task(
    client: Client, path: str, data: dict[str, str], expected: dict[str, Any]
) -> None:
    answer = client.post(reverse(path), data, follow=True)
    assert answer.redirect_chain == [("/", 302)]
    job = Job.objects.get()
    assert job.status == Status.QUEUED
    assert job.kwargs.items() >= expected.items()
    assert "Queued" in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_several_emails_at_once(client: Client) -> None:
    client.post(reverse("enqueue-email"), EMAIL | {"email-times": "20"})
    assert Job.objects.count() == 20


@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_an_order_sent_twice_is_one_job(client: Client) -> None:
    client.post(reverse("enqueue-payment"), PAYMENT)
    again = client.post(reverse("enqueue-payment"), PAYMENT, follow=True)
    assert "still one job" in again.content.decode()
    other = client.post(reverse("enqueue-payment"), PAYMENT | {"payment-amount": "1.00"})
    assert other.status_code == 422
    assert Job.objects.get().kwargs["amount"] == "19.90"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("site")
def test_a_view_enqueues_in_a_transaction(client: Client) -> None:
    inside: list[bool] = []

    def note(**kwargs: Any) -> None:
        inside.append(connection.in_atomic_block)

    task_enqueued.connect(note)
    try:
        client.post(reverse("enqueue-report"), {"report-seconds": "1"})
    finally:
        task_enqueued.disconnect(note)
    assert inside == [True]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("site")
def test_nothing_is_enqueued_when_the_view_fails(rf: RequestFactory) -> None:
    def enqueue_and_fail(data: dict[str, Any]) -> str:
        tasks.send_email.enqueue(address=data["address"], subject="never sent")
        assert transaction.get_connection().in_atomic_block
        raise RuntimeError("the view's other work failed")

    request = rf.post(reverse("enqueue-email"), EMAIL)
    with pytest.raises(RuntimeError):
        views._accept(
            request, "email", views.EmailForm(request.POST, prefix="email"), enqueue_and_fail
        )
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("enqueue-email", {"email-address": HOSTILE, "email-times": "1"}),
        ("enqueue-email", {"email-address": "ada@example.com", "email-times": "1000000"}),
        ("enqueue-payment", {"payment-order_id": "1", "payment-amount": "NaN"}),
        ("enqueue-payment", {"payment-amount": "1.00"}),
        ("enqueue-report", {"report-seconds": "inf"}),
        ("enqueue-report", {}),
    ],
)
@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_what_makes_no_sense_is_refused(client: Client, path: str, data: dict[str, str]) -> None:
    answer = client.post(reverse(path), data)
    assert answer.status_code == 422
    assert 'class="error"' in answer.content.decode()
    assert HOSTILE not in answer.content.decode()
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.usefixtures("site")
def test_a_post_needs_the_token_of_the_page() -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post(reverse("enqueue-email"), EMAIL).status_code == 403
    assert not Job.objects.exists()
    html = client.get("/").content.decode()
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', html)
    assert found is not None
    token = {"csrfmiddlewaretoken": found[1]}
    assert client.post(reverse("enqueue-email"), EMAIL | token).status_code == 302
    assert Job.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", ["enqueue-email", "enqueue-payment", "enqueue-report"])
def test_a_link_cannot_enqueue(client: Client, name: str) -> None:
    assert client.get(reverse(name)).status_code == 405


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("site", "lucky")
def test_the_fragment_follows_the_jobs(client: Client) -> None:
    tasks.send_email.enqueue(address="ada@example.com", subject="Hello")
    tasks.send_email.enqueue(address="nobody@example.invalid", subject="Hello")
    before = client.get(reverse("jobs")).content.decode()
    assert before.count('<td class="in"><span class="state queued">') == 2
    assert "<html" not in before
    run_jobs()
    after = client.get(reverse("jobs")).content.decode()
    assert after.count('<td class="in"><span class="state completed">') == 1
    assert after.count('<td class="in"><span class="state failed">') == 1
    assert "no mail server takes nobody@example.invalid" in after
    assert "delivered_to: ada@example.com" in after


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("site")
def test_what_jobs_carry_is_shown_as_text(client: Client) -> None:
    # Arguments, error and progress can hold anything.
    tasks.send_email.enqueue(address=f"{HOSTILE}.invalid", subject=HOSTILE)
    run_jobs()
    assert "PermanentError" in Job.objects.get().error
    for path in ("/", reverse("jobs")):
        html = client.get(path).content.decode()
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)" in html


def test_a_seed_decides_who_is_unlucky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_DEMO_SEED", "seven")
    first = [tasks.unlucky(0.3, "take_payment", n, 1) for n in range(1000)]
    assert first == [tasks.unlucky(0.3, "take_payment", n, 1) for n in range(1000)]
    assert 230 < sum(first) < 370
    monkeypatch.setenv("JOBQUEUE_DEMO_SEED", "eight")
    assert first != [tasks.unlucky(0.3, "take_payment", n, 1) for n in range(1000)]
