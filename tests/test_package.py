"""The built wheel, as a newcomer meets it: an empty environment, `startproject`, the README's steps."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import django
import pytest

PROJECT = Path(__file__).resolve().parent.parent

# It brings its own SQLite database; once a Django is enough.
pytestmark = [pytest.mark.processes, pytest.mark.sqlite, pytest.mark.timeout(600)]

TASKS = """
from jobqueue import task


@task(queue_name="billing", max_attempts=5, timeout=60, takes_context=True)
def charge(context, order_id, amount):
    return [context.idempotency_key, order_id, amount]
"""

ENQUEUE = """
import shop
result = shop.charge.using(idempotency_key="order-1").enqueue(order_id=1, amount="9.99")
again = shop.charge.using(idempotency_key="order-1").enqueue(order_id=1, amount="9.99")
assert result.created and not again.created and result.id == again.id
"""

LOOK = """
from jobqueue.models import Job
job = Job.objects.get()
assert job.status == "completed", (job.status, job.error)
assert job.return_value == ["shop.charge:order-1", 1, "9.99"], job.return_value
print("ran:", job.return_value)
"""

TYPED = """
from jobqueue import task


@task
def send(to: str, times: int = 1) -> int:
    return times


result = send.using(idempotency_key="a", timeout=None).enqueue("someone", times=2)
reveal_type(result.created)
reveal_type(result.return_value)
send.enqueue(5)
send.using(idempotency="a")
"""


def run(*command: str | Path, cwd: Path, ok: bool = True) -> str:
    """Run a command in a clean environment and return what it printed."""
    kept = {
        "PATH",
        "HOME",
        "LANG",
        "PIP_INDEX_URL",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "SSL_CERT_FILE",
    }
    environment = {name: value for name, value in os.environ.items() if name in kept}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ok and done.returncode:
        pytest.fail(f"{' '.join(map(str, command))} exited {done.returncode}:\n{done.stdout}")
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources as they are."""
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", target, PROJECT, cwd=target)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_the_app_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jobqueue"}
    assert "jobqueue/py.typed" in names
    assert "jobqueue/migrations/0001_initial.py" in names
    assert "jobqueue/management/commands/runworker.py" in names
    sources = {
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / "jobqueue").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= set(names)


def test_the_first_job_runs_in_a_new_project(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    wanted = [f"Django=={django.get_version()}"]
    wanted += [f"{wheel}[backport]" if django.VERSION < (6, 0) else str(wheel)]
    run(python, "-m", "pip", "install", "-q", *wanted, cwd=tmp_path)
    run(python, "-m", "django", "startproject", "site_", tmp_path, cwd=tmp_path)
    # A task in an app's own __init__, which is imported before any app is ready.
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text(TASKS)
    settings = tmp_path / "site_" / "settings.py"
    apps = ["jobqueue", "shop"] + (["django_tasks"] if django.VERSION < (6, 0) else [])
    settings.write_text(
        settings.read_text()
        + f"\nINSTALLED_APPS += {apps!r}\n"
        + 'TASKS = {"default": {"BACKEND": "jobqueue.backend.JobQueueBackend", "QUEUES": []}}\n'
        + 'DATABASES["default"]["OPTIONS"] = {"init_command": "PRAGMA journal_mode=WAL", '
        + '"transaction_mode": "IMMEDIATE", "timeout": 20}\n'
    )

    def manage(*arguments: str) -> str:
        return run(python, "-W", "error", "manage.py", *arguments, cwd=tmp_path)

    manage("check", "--fail-level", "WARNING")
    manage("makemigrations", "--check", "--dry-run")
    manage("migrate", "-v", "0")
    manage("migrate", "jobqueue", "zero", "-v", "0")
    manage("migrate", "-v", "0")
    manage("shell", "-v", "0", "-c", ENQUEUE)
    manage("runworker", "--burst")
    assert "ran: ['shop.charge:order-1', 1, '9.99']" in manage("shell", "-v", "0", "-c", LOOK)


def test_a_type_checker_knows_the_interface(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is installed with the extra dev only")
    (tmp_path / "typed.py").write_text(TYPED)
    (tmp_path / "settings.py").write_text('SECRET_KEY = "x"\nINSTALLED_APPS = ["jobqueue"]\n')
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\nplugins = mypy_django_plugin.main\n"
        "[mypy.plugins.django-stubs]\ndjango_settings_module = settings\n"
    )
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", site, wheel, cwd=tmp_path)
    said = run(
        "env", f"MYPYPATH={site}", f"PYTHONPATH={tmp_path}:{site}",
        sys.executable, "-m", "mypy", "typed.py", cwd=tmp_path, ok=False,
    )  # fmt: skip
    assert 'Revealed type is "bool"' in said.replace("builtins.", ""), said
    assert 'Argument 1 to "enqueue" of "Task" has incompatible type "int"; expected "str"' in said
    assert 'Unexpected keyword argument "idempotency" for "using" of "Task"' in said
    assert "Found 2 errors in 1 file" in said
