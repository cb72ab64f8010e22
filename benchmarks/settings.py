"""The site that is measured: jobqueue with its defaults, on the database in DATABASE_URL."""

import django
import environ

DATABASES = {"default": environ.Env().db_url("DATABASE_URL")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # synchronous stays FULL, SQLite's default: what is accepted survives a power cut.
    DATABASES["default"]["OPTIONS"] = {
        "init_command": "PRAGMA journal_mode=WAL;",
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
    }
SECRET_KEY = "of the benchmarks alone"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["jobqueue"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "QUEUES": [], "OPTIONS": {}}}
if redis_url := environ.Env().str("JOBQUEUE_BENCH_REDIS", default=""):
    CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url}}
    TASKS["default"]["OPTIONS"] = {"redis": "default", "redis_prefix": "bench"}
