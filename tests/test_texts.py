"""What is kept of texts and exceptions: what every database accepts, and readable whatever they do."""

from __future__ import annotations

import contextlib
import json
import linecache
import re
import string
import sys
import traceback
import types
from typing import Any

import pytest
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue import texts
from jobqueue.texts import describe_exception, storable_text

# How long an example takes says nothing on a busy machine.
unhurried = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@unhurried
@given(st.text(st.characters() | st.sampled_from(["\0", "\ud800"])), st.integers(0, 200))
def test_any_text_becomes_storable(text, limit):
    stored = storable_text(text, limit)
    assert len(stored) <= limit
    assert "\0" not in stored
    stored.encode()
    with contextlib.suppress(UnicodeEncodeError):
        text.encode()
        if "\0" not in text and len(text) <= limit:
            assert stored == text


def test_what_was_replaced_can_be_seen():
    assert storable_text("a\0b\ud800c\udce9", 100) == r"a\x00b\ud800c\udce9"


def test_long_text_loses_its_middle_and_says_so():
    text = "begin" + "x" * 10_000_000 + "end"
    stored = storable_text(text, 100)
    assert len(stored) == 100
    assert re.fullmatch(r"beginx+ … \[shortened, 10000008 characters\] … x+end", stored)
    stored = storable_text("begin" + "\0" * 100 + "end", 100)
    assert re.fullmatch(r"begin.* … \[shortened, 108 characters\] … .*end", stored)


def test_subclasses_of_str_become_plain_text():
    assert type(storable_text(SafeString("text"), 10)) is str


# Exceptions


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class CustomError(Exception):
    class InnerError(ValueError):
        pass

    def __init__(self, code, *, detail):
        super().__init__(code)
        self.detail = detail


class LyingError(LookupError):
    __module__ = "os.path"


class GoneError(ArithmeticError):
    __module__ = "no.such.module"


class OddModuleError(KeyError):
    __module__ = 5


class BrokenError(Exception):
    """Raises whatever is asked of it."""

    def __init__(self, error):
        self.error = error

    def __str__(self):
        raise self.error

    __repr__ = __str__


def local_error():
    class LocalError(PermissionError):
        pass

    return LocalError("mine")


@pytest.mark.parametrize(
    ("error", "path", "short"),
    [
        (ValueError("bad"), "builtins.ValueError", "ValueError: bad"),
        (ValueError(), "builtins.ValueError", "ValueError"),
        (ValueError("\n  two \nlines"), "builtins.ValueError", "ValueError: two"),
        (KeyError("k"), "builtins.KeyError", "KeyError: 'k'"),
        (json.JSONDecodeError("m", "d", 0), "json.decoder.JSONDecodeError", None),
        (CustomError(1, detail=2), f"{__name__}.CustomError", "CustomError: 1"),
        (CustomError.InnerError(1), "builtins.ValueError", "InnerError: 1"),
        (local_error(), "builtins.PermissionError", "LocalError: mine"),
        (LyingError("x"), "builtins.LookupError", "LyingError: x"),
        (type("loads", (LookupError,), {"__module__": "json"})("x"), "builtins.LookupError", None),
        (GoneError("x"), "builtins.ArithmeticError", "GoneError: x"),
        (OddModuleError("x"), "builtins.KeyError", "OddModuleError: 'x'"),
        (SystemExit(3), "builtins.SystemExit", "SystemExit: 3"),
        (KeyboardInterrupt(), "builtins.KeyboardInterrupt", "KeyboardInterrupt"),
        (GeneratorExit(), "builtins.GeneratorExit", "GeneratorExit"),
        (ExceptionGroup("g", [ValueError(1)]), "builtins.ExceptionGroup", None),
        (type("Odd\ud800"[:3], (IndexError,), {})("x"), "builtins.IndexError", "Odd: x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exception_has_a_class_that_can_be_imported_and_one_line(error, path, short):
    told = describe_exception(raised(error))
    assert told.class_path == path
    assert issubclass(type(error), import_string(path))
    if short is not None:
        assert told.short == short
    assert "\n" not in told.short


def test_a_class_of_the_main_module_is_told_as_its_base(monkeypatch):
    error = type("MainError", (OSError,), {"__module__": "__main__"})
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "MainError", error, raising=False)
    monkeypatch.setattr(main, "__spec__", json.__spec__)
    assert describe_exception(error()).class_path == "builtins.OSError"


def test_a_class_of_a_module_made_by_hand_is_told_as_its_base(monkeypatch):
    module = types.ModuleType("made_by_hand")
    error = type("HandError", (ValueError,), {"__module__": "made_by_hand"})
    module.HandError = error
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    assert describe_exception(error()).class_path == "builtins.ValueError"


@pytest.mark.parametrize(
    "error", [ValueError("in str"), SystemExit(), KeyboardInterrupt(), RecursionError()]
)
def test_a_broken_str_is_no_second_failure(error):
    told = describe_exception(raised(BrokenError(error)))
    assert told.class_path == f"{__name__}.BrokenError"
    assert told.short == "BrokenError: <its text could not be made>"
    assert "raise error" in told.traceback


def test_a_class_that_answers_nothing():
    class RudeMeta(type):
        def __getattribute__(cls, name):
            raise KeyboardInterrupt

        __repr__ = __hash__ = __eq__ = __instancecheck__ = __getattribute__

    class RudeError(EOFError, metaclass=RudeMeta):
        def __getattribute__(self, name):
            raise SystemExit

    error = RudeError("x")
    try:
        raise error
    except EOFError:
        told = describe_exception(error)
    assert told.class_path == "builtins.EOFError"
    assert told.short == "RudeError: x"
    assert told.traceback


def test_a_str_that_answers_with_a_trick():
    class Tricky(str):
        __slots__ = ()

        def __str__(self):
            raise ValueError

        splitlines = encode = replace = __len__ = __getitem__ = __str__

    class TrickyError(Exception):
        def __str__(self):
            return Tricky("tricky")

    assert describe_exception(raised(TrickyError())).short == "TrickyError: tricky"


def test_attributes_that_break_while_the_traceback_is_written():
    class NotedError(ValueError):
        @property
        def __notes__(self):
            raise SystemExit

        @property
        def __cause__(self):
            raise SystemExit

    told = describe_exception(raised(NotedError("noted")))
    assert told.class_path == "builtins.ValueError"
    assert told.short == "NotedError: noted"
    assert "raise error" in told.traceback
    assert "NotedError: noted" in told.traceback


def test_causes_notes_and_groups_are_told():
    inner = raised(KeyError("inner"))
    inner.add_note("a note\0")
    group = ExceptionGroup("several", [inner, raised(OSError("disk"))])
    try:
        raise ValueError("outer") from group
    except ValueError as error:
        told = describe_exception(error)
    assert told.short == "ValueError: outer"
    for part in ("several", "'inner'", r"a note\x00", "OSError: disk", "direct cause"):
        assert part in told.traceback
    assert told.traceback.rstrip().endswith("ValueError: outer")


def test_causes_in_a_circle_and_by_the_thousand():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert "two" in describe_exception(raised(one)).traceback
    error: Exception = ValueError("first")
    for number in range(5_000):
        following = ValueError(number)
        following.__cause__ = error
        error = following
    told = describe_exception(raised(error))
    assert told.short == "ValueError: 4999"
    assert told.traceback.rstrip().endswith("ValueError: 4999")


@pytest.mark.parametrize("text", ["bad \0 byte", "lone \ud800", "glāžš 🐟", "x" * 10_000_000])
def test_any_text_of_an_exception_can_be_stored(text):
    told = describe_exception(raised(ValueError(text)))
    assert len(told.short) <= 300
    assert len(told.traceback) <= 50_000
    for part in told:
        assert storable_text(part, len(part)) == part
    assert told.short.startswith("ValueError: " + storable_text(text[:5], 100))


def test_a_source_line_with_u0000_can_be_stored():
    source = "raise ValueError('a\0b')\n"
    linecache.cache["<made>"] = (len(source), None, [source], "<made>")
    try:
        exec(compile("raise ValueError('x')\n", "<made>", "exec"))
    except ValueError as error:
        told = describe_exception(error)
    assert r"raise ValueError('a\x00b')" in told.traceback


def test_recursion_ends_in_a_readable_text():
    def one(n):
        return two(n + 1)

    def two(n):
        return one(n + 1)

    try:
        one(0)
    except RecursionError as error:
        told = describe_exception(error)
    assert told.class_path == "builtins.RecursionError"
    assert len(told.traceback) <= 50_000
    assert "maximum recursion depth exceeded" in told.traceback


def test_our_own_first_frames_are_left_out(tmp_path):
    runner = compile("def run(task):\n    task()\n", texts._RUNNER, "exec")
    namespace: dict[str, Any] = {}
    exec(runner, namespace)

    def fails():
        raise ValueError("in the task")

    def shown(task) -> list[str]:
        try:
            namespace["run"](task)
        except (ValueError, TypeError) as error:
            error.__traceback__ = error.__traceback__.tb_next  # this test's own frame
            told = describe_exception(error)
            assert "Traceback" in told.traceback
            return re.findall(r"in (\w+)\n", told.traceback)
        return []

    assert shown(fails) == ["fails"]
    # Where nothing else is left, our frame is better than none.
    assert shown(None) == ["run"]


def test_an_exception_never_raised_has_no_frames():
    assert describe_exception(ValueError("x")).traceback == "ValueError: x\n"


@unhurried
@given(st.text(string.printable + "\0\ud800é"))
def test_messages_are_told_as_python_tells_them(text):
    told = describe_exception(ValueError(text))
    python = "".join(traceback.format_exception_only(ValueError(text)))
    assert told.traceback == storable_text(python, 50_000)
