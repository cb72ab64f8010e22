"""Settings of the demo site, read from the environment.

`DATABASE_URL`   where the jobs are kept; SQLite in `db.sqlite3` when not set
`REDIS_URL`      adds the cache `redis`, which the queue uses; none when not set
`SECRET_KEY`     needed unless DEBUG is on
`DEBUG`          off when not set
`ALLOWED_HOSTS`  comma-separated host names; with DEBUG, this machine's when not set
`JOBQUEUE_DEMO`  a folder: what `manage.py demo` sets to run this site on files of its own there
"""

from pathlib import Path
from typing import Any

import django
import environ  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

# The demo uses nothing that the environment names: it never touches another database.
DEMO_FOLDER: Path | None = Path(env.str("JOBQUEUE_DEMO")) if env.str("JOBQUEUE_DEMO", "") else None

if DEMO_FOLDER is not None:
    DEMO_FOLDER.mkdir(
        parents=True, exist_ok=True
    )  # Django opens the database before any command runs

DEBUG: bool = DEMO_FOLDER is not None or env.bool("DEBUG", default=False)

SECRET_KEY: str = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set SECRET_KEY to a long random text that nobody else knows, "
            "or set DEBUG=1 to develop on this machine with a key that anyone can read."
        )
    SECRET_KEY = "insecure: this key is in the repository, for development only"

ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=[])
if DEMO_FOLDER is not None:
    ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

# --- Applications

INSTALLED_APPS = [
    "jobqueue",  # first: where two apps bring a command of one name, Django takes the earlier app's
    "config",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")  # the backport of Django 6.0's django.tasks

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database and cache


def _database() -> dict[str, Any]:
    if DEMO_FOLDER is not None:
        url = ""
        file = DEMO_FOLDER / "demo.sqlite3"
    else:
        url = env.str("DATABASE_URL", default="")
        file = BASE_DIR / "db.sqlite3"
    database: dict[str, Any] = (
        env.db_url_config(url) if url else {"ENGINE": "django.db.backends.sqlite3", "NAME": file}
    )
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["OPTIONS"] = {
            # WAL lets pages be read while a worker writes. `synchronous` stays at SQLite's FULL:
            # with NORMAL a job that was accepted could be gone after a power cut.
            "init_command": "PRAGMA journal_mode=WAL",
            # Take the write lock at BEGIN, and wait for it: a transaction that reads first and then
            # wants to write is refused at once when another has written meanwhile.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,  # seconds
            **database.get("OPTIONS", {}),
        }
    return database


DATABASES = {"default": _database()}

CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}
if DEMO_FOLDER is None and (redis_url := env.str("REDIS_URL", default="")):
    CACHES["redis"] = env.cache_url_config(redis_url, backend="django_redis.cache.RedisCache")

# --- Tasks

TASKS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "jobqueue.backend.JobQueueBackend",
        "QUEUES": [],  # any name will do
        "OPTIONS": {},
    },
}
if "redis" in CACHES:
    TASKS["default"]["OPTIONS"] = {"redis": "redis"}
if DEMO_FOLDER is not None:
    # Nobody should watch a demo wait: retries come after a second or so.
    TASKS["default"]["OPTIONS"] = {"backoff_base": 0.5, "backoff_max": 2.0}

# --- The rest is Django's own

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
