"""The site that the tests run: `DATABASE_URL`, else a SQLite file that goes with the test run.

The processes that a test starts read the same settings; the fixture `child_environment` tells them
the database and the rest.
"""

import django
import environ

from tests.servers import room

env = environ.Env()

DATABASES = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{room() / 'jobqueue.sqlite3'}"),
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Several processes and threads share the test database, so it has to be a file.
    DATABASES["default"] |= {
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            # Seconds that a statement waits for other writers.
            "timeout": env.float("JOBQUEUE_TEST_SQLITE_TIMEOUT", default=20),
        },
        "TEST": {"NAME": str(room() / "test.sqlite3")},
    }
max_age = env.str("JOBQUEUE_TEST_CONN_MAX_AGE", default="0")
DATABASES["default"]["CONN_MAX_AGE"] = None if max_age == "none" else int(max_age)
DATABASES["default"]["CONN_HEALTH_CHECKS"] = env.bool(
    "JOBQUEUE_TEST_CONN_HEALTH_CHECKS", default=False
)
DEBUG = env.bool("JOBQUEUE_TEST_DEBUG", default=False)

USE_TZ = env.bool("JOBQUEUE_TEST_USE_TZ", default=True)
TIME_ZONE = env.str("JOBQUEUE_TEST_TIME_ZONE", default="UTC" if USE_TZ else "America/New_York")

SECRET_KEY = "of the tests alone"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
    "jobqueue",
    "tests.app",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
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
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

TASKS = {
    "default": {
        "BACKEND": "jobqueue.backend.JobQueueBackend",
        "QUEUES": [],
        "OPTIONS": env.json("JOBQUEUE_TEST_OPTIONS", default={}),
    },
}

if redis_url := env.str("JOBQUEUE_TEST_REDIS", default=""):
    CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "queue": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url},
    }
    TASKS["default"]["OPTIONS"] |= {
        "redis": "queue",
        "redis_prefix": env.str("JOBQUEUE_TEST_REDIS_PREFIX"),
    }

if log := env.str("JOBQUEUE_TEST_LOG", default=""):
    # As a site that has its own idea of where its log goes.
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"file": {"class": "logging.FileHandler", "filename": log}},
        "root": {"handlers": ["file"], "level": "INFO"},
    }
