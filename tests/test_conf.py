"""The options: what is read from TASKS, what is refused, and that it is read at use."""

import ast
import importlib
import inspect
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import django
import pytest
from django.test import override_settings

from jobqueue import compat, conf, models
from jobqueue.backend import JobQueueBackend
from jobqueue.conf import CENTURY, DAY, Options


class OwnBackend(JobQueueBackend):
    """Somebody's subclass."""


def tasks(alias: str = "default", /, **options: Any) -> dict[str, Any]:
    return {alias: {"BACKEND": conf.BACKEND, "QUEUES": [], "OPTIONS": options}}


def codes() -> list[str]:
    return [each.code for each in conf.problems()]


def test_every_option_can_be_given() -> None:
    given: dict[str, Any] = {
        "database": "jobs",
        "redis": "queue",
        "redis_prefix": "shop",
        "lease": 1,
        "heartbeat": 0.2,
        "tick": 0.05,
        "max_attempts": 32_767,
        "timeout": 9.5,
        "backoff_base": 0,
        "backoff_max": 60,
        "grace": 0,
        "kill_after": 0,
        "max_payload": 10,
        "retention": {"completed": 0, "cancelled": None, "failed": 10},
        "redact": ("ssn", "iban"),
    }
    assert set(given) == {each.name for each in fields(Options)}
    with override_settings(TASKS=tasks(**given)):
        read = conf.options()
        assert conf.problems() == []
    assert {each.name: getattr(read, each.name) for each in fields(Options)} == given
    assert type(read.lease) is float
    assert type(read.max_attempts) is int


def test_nothing_given_means_the_defaults() -> None:
    for settings in (tasks(), {"default": {"BACKEND": conf.BACKEND}}):
        with override_settings(TASKS=settings):
            assert conf.options() == Options()
            assert conf.problems() == []
    assert Options().heartbeat == Options().lease / 3


@pytest.mark.parametrize("settings", [{}, None, "nonsense", {"default": None}, {"default": {}}])
def test_defaults_where_no_alias_uses_the_backend(settings: Any) -> None:
    other = {"default": {"BACKEND": f"{compat.TASKS_MODULE}.backends.dummy.DummyBackend"}}
    for each in (settings, other):
        with override_settings(TASKS=each):
            assert conf.alias() is None
            assert conf.options() == Options()
            assert codes() == ["jobqueue.W001"]


def test_heartbeat_follows_the_lease() -> None:
    for given in ({"lease": 6}, {"lease": 6, "heartbeat": None}):
        with override_settings(TASKS=tasks(**given)):
            assert conf.options().heartbeat == 2
            assert conf.problems() == []


def test_none_is_no_timeout() -> None:
    with override_settings(TASKS=tasks(timeout=None)):
        assert conf.options().timeout is None


def test_retention_overrides_only_what_it_names() -> None:
    with override_settings(TASKS=tasks(retention={"failed": None})):
        assert conf.options().retention == {
            "completed": 7 * DAY,
            "cancelled": 30 * DAY,
            "failed": None,
        }
    assert Options().retention["failed"] == 90 * DAY


def test_retention_knows_the_final_statuses() -> None:
    assert set(Options().retention) == {str(each) for each in models.FINAL}


NUMBERS = [
    "lease",
    "heartbeat",
    "tick",
    "max_attempts",
    "timeout",
    "backoff_base",
    "backoff_max",
    "grace",
    "kill_after",
    "max_payload",
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", [True, "30", [1], object()], ids=["true", "text", "list", "object"]
)
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    with override_settings(TASKS=tasks(**{name: value, "database": "jobs"})):
        assert conf.options() == Options(database="jobs")
        (problem,) = conf.problems()
    assert problem.code == "jobqueue.E003"
    assert f'TASKS["default"]["OPTIONS"]["{name}"]' in problem.message
    assert type(value).__name__ in problem.message


@pytest.mark.parametrize("name", ["max_attempts", "max_payload"])
def test_a_count_is_a_whole_number(name: str) -> None:
    with override_settings(TASKS=tasks(**{name: 2.0})):
        assert codes() == ["jobqueue.E003"]


@pytest.mark.parametrize("name", sorted({*NUMBERS} - {"heartbeat", "timeout"}))
def test_none_is_refused_where_it_means_nothing(name: str) -> None:
    with override_settings(TASKS=tasks(**{name: None})):
        assert conf.options() == Options()
        assert codes() == ["jobqueue.E003"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease", 0.99),
        ("lease", DAY + 1),
        ("heartbeat", 0),
        ("tick", 0),
        ("max_attempts", 0),
        ("max_attempts", 32_768),
        ("timeout", 0),
        ("timeout", CENTURY * 2),
        ("backoff_base", -1),
        ("backoff_max", -0.1),
        ("grace", -1),
        ("kill_after", -1),
        ("max_payload", 0),
        ("lease", float("nan")),
        ("timeout", float("inf")),
        ("backoff_max", 10**5000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_out_of_range_is_refused(name: str, value: Any) -> None:
    with override_settings(TASKS=tasks(**{name: value})):
        assert conf.options() == Options()
        (problem,) = conf.problems()
    assert problem.code == "jobqueue.E004"
    assert f'"{name}"' in problem.message


def test_a_wrong_option_does_not_take_the_others_along() -> None:
    with override_settings(TASKS=tasks(lease="long", tick=3, max_attempts=-1, grace=4)):
        assert (conf.options().tick, conf.options().grace) == (3, 4)
        assert (conf.options().lease, conf.options().max_attempts) == (30, 5)
        assert codes() == ["jobqueue.E003", "jobqueue.E004"]


@pytest.mark.parametrize("value", [None, 1, ["jobs"]])
def test_a_database_is_named(value: Any) -> None:
    with override_settings(TASKS=tasks(database=value)):
        assert conf.options().database == "default"
        assert codes() == ["jobqueue.E003"]


def test_a_database_that_does_not_exist_is_not_replaced_by_another() -> None:
    with override_settings(TASKS=tasks(database="typo")):
        assert conf.options().database == "typo"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("password", "jobqueue.E003"),
        (None, "jobqueue.E003"),
        ([7], "jobqueue.E003"),
        (["ssn", " "], "jobqueue.E004"),
    ],
)
def test_words_to_hide_are_a_list_of_words(words: Any, code: str) -> None:
    with override_settings(TASKS=tasks(redact=words)):
        assert conf.options() == Options()
        assert codes() == [code]


def test_no_words_hide_nothing() -> None:
    with override_settings(TASKS=tasks(redact=[])):
        assert conf.options().redact == ()
        assert codes() == []


@pytest.mark.parametrize(
    ("retention", "code"),
    [
        (7, "jobqueue.E003"),
        (None, "jobqueue.E003"),
        ({"failed": "90 days"}, "jobqueue.E003"),
        ({"failed": -1}, "jobqueue.E004"),
        ({"faild": 1}, "jobqueue.E006"),
        ({"processing": 1}, "jobqueue.E006"),
    ],
)
def test_a_wrong_retention_is_refused(retention: Any, code: str) -> None:
    with override_settings(TASKS=tasks(retention=retention)):
        assert conf.options() == Options()
        assert codes() == [code]


@pytest.mark.parametrize(
    ("key", "meant"),
    [("max_atempts", "max_attempts"), ("LEASE", "lease"), ("retentions", "retention")],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(key: str, meant: str) -> None:
    with override_settings(TASKS=tasks(**{key: 1})):
        (problem,) = conf.problems()
    assert problem.code == "jobqueue.E002"
    assert repr(key) in problem.message
    assert f"Did you mean {meant!r}?" in problem.hint
    assert all(each.name in problem.hint for each in fields(Options))


def test_an_unknown_key_like_nothing_is_named_with_the_list() -> None:
    with override_settings(TASKS={"default": {"BACKEND": conf.BACKEND, "OPTIONS": {7: 1}}}):
        (problem,) = conf.problems()
    assert problem.code == "jobqueue.E002"
    assert problem.hint.startswith("Known keys: backoff_base, ")


def test_options_beside_their_dictionary_are_unknown_too() -> None:
    with override_settings(TASKS={"default": {"BACKEND": conf.BACKEND, "OPTION": {}, "lease": 9}}):
        first, second = conf.problems()
    assert "Did you mean 'OPTIONS'?" in first.hint
    assert "'lease'" in second.message


@pytest.mark.parametrize("value", [None, [], "lease=9"])
def test_options_must_be_a_dictionary(value: Any) -> None:
    with override_settings(TASKS={"default": {"BACKEND": conf.BACKEND, "OPTIONS": value}}):
        assert conf.options() == Options()
        assert codes() == ["jobqueue.E001"]


def test_a_heartbeat_that_is_no_shorter_than_the_lease_is_refused() -> None:
    for given in ({"lease": 10, "heartbeat": 10}, {"heartbeat": 31}, {"lease": 3, "heartbeat": 5}):
        with override_settings(TASKS=tasks(**given)):
            assert conf.options().heartbeat == conf.options().lease / 3
            assert codes() == ["jobqueue.E005"]


def test_a_heartbeat_longer_than_half_the_lease_is_dubious() -> None:
    with override_settings(TASKS=tasks(lease=10, heartbeat=5.1)):
        assert conf.options().heartbeat == 5.1
        assert codes() == ["jobqueue.W002"]
    with override_settings(TASKS=tasks(lease=10, heartbeat=5)):
        assert codes() == []


def test_a_backoff_that_starts_at_its_end_is_dubious() -> None:
    with override_settings(TASKS=tasks(backoff_base=10, backoff_max=5)):
        assert (conf.options().backoff_base, conf.options().backoff_max) == (10, 5)
        assert codes() == ["jobqueue.W003"]


def test_options_are_read_at_use() -> None:
    with override_settings(TASKS=tasks(lease=5)):
        assert conf.options().lease == 5
        with override_settings(TASKS=tasks(lease=6)):
            assert conf.options().lease == 6
        assert conf.options().lease == 5
        assert conf.options() is conf.options()


def test_a_dictionary_that_was_changed_in_place_is_read_again() -> None:
    settings = tasks(lease=5)
    with override_settings(TASKS=settings):
        assert conf.options().lease == 5
    settings["default"]["OPTIONS"]["lease"] = 6
    with override_settings(TASKS=settings):
        assert conf.options().lease == 6


def test_the_alias_is_the_one_that_uses_the_backend() -> None:
    others = {"default": {"BACKEND": f"{compat.TASKS_MODULE}.backends.immediate.ImmediateBackend"}}
    with override_settings(TASKS={**others, **tasks("jobs", lease=7)}):
        assert conf.alias() == "jobs"
        assert conf.options().lease == 7
        assert codes() == []


def test_a_subclass_of_the_backend_is_one() -> None:
    own = {"own": {"BACKEND": f"{OwnBackend.__module__}.OwnBackend", "OPTIONS": {"lease": 8}}}
    with override_settings(TASKS=own):
        assert conf.alias() == "own"
        assert conf.options().lease == 8
        assert codes() == []


def test_two_aliases_are_refused_and_the_literal_one_holds() -> None:
    own = {"own": {"BACKEND": f"{OwnBackend.__module__}.OwnBackend", "OPTIONS": {"lease": 8}}}
    with override_settings(TASKS={**own, **tasks("jobs", lease=7)}):
        assert conf.alias() == "jobs"
        (problem,) = conf.problems()
    assert problem.code == "jobqueue.E007"
    assert "jobs, own" in problem.message


def test_a_backend_that_cannot_be_imported_yet_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    late = {"default": {"BACKEND": "jobqueue_late.Late", "OPTIONS": {"lease": 9}}}
    with override_settings(TASKS=late):
        assert conf.alias() is None
        assert conf.options() == Options()
        (tmp_path / "jobqueue_late.py").write_text(
            "from jobqueue.backend import JobQueueBackend\nclass Late(JobQueueBackend): pass\n"
        )
        importlib.invalidate_caches()
        assert conf.alias() == "default"
        assert conf.options().lease == 9
    monkeypatch.delitem(sys.modules, "jobqueue_late")


def test_every_option_is_described() -> None:
    """A string below each field says what it means; none is left out."""
    body = ast.parse(textwrap.dedent(inspect.getsource(Options))).body[0]
    assert isinstance(body, ast.ClassDef)
    following = zip(body.body, [*body.body[1:], None], strict=True)
    described = {
        this.target.id
        for this, then in following
        if isinstance(this, ast.AnnAssign)
        and isinstance(this.target, ast.Name)
        and isinstance(then, ast.Expr)
    }
    assert described == {each.name for each in fields(Options)}


def test_compat_has_what_it_promises() -> None:
    for name in compat.__all__:
        assert hasattr(compat, name), name
    for base, original in [
        (compat.BaseTask, compat.Task),
        (compat.BaseTaskResult, compat.TaskResult),
        (compat.BaseTaskContext, compat.TaskContext),
    ]:
        assert issubclass(base, original)
        assert not any("__dict__" in vars(each) for each in base.__mro__)


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(conf.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_jobqueue_is_imported_without_settings_apps_or_models() -> None:
    done = _python(
        "import sys, jobqueue, jobqueue.compat, jobqueue.conf\n"
        "from django.conf import settings\n"
        "assert not settings.configured and 'jobqueue.models' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="Django 6 has its own django.tasks")
def test_the_absence_of_the_backport_is_an_error_that_says_so() -> None:
    done = _python("import sys; sys.modules['django_tasks'] = None; import jobqueue.compat")
    assert "ImproperlyConfigured" in done.stderr
    assert 'pip install "django-jobqueue[backport]"' in done.stderr
