"""What staff may not see: values of secret keys at any depth, in values, in stored JSON and in prose."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from jobqueue import conf
from jobqueue.admin.hiding import HIDDEN, hide, hide_in_json, hide_in_text, is_secret, names_secret


@contextmanager
def redact(*words: str) -> Iterator[None]:
    tasks = copy.deepcopy(settings.TASKS)
    tasks["default"]["OPTIONS"] = {"redact": list(words)}
    with override_settings(TASKS=tasks):
        yield


def hidden(text: str) -> str:
    return "".join(hide_in_json(text))


@pytest.mark.parametrize(
    "key",
    ["password", "API_KEY", "apiToken", "Authorization", "auth", "x-auth", "sessionid", "Cookie"],
)
def test_secret_keys(key: str) -> None:
    assert is_secret(key)
    assert names_secret(["order", key, "deeper"])


@pytest.mark.parametrize("key", ["order_id", "author", "Authors", "co-author", "", "amount"])
def test_other_keys(key: str) -> None:
    assert not is_secret(key)


def test_hide_at_every_depth() -> None:
    value = {
        "a": [{"b": {"password": "canary", "n": 9007199254740993}}],
        "token": {"x": ["canary"]},
    }
    before = copy.deepcopy(value)
    assert hide(value) == {
        "a": [{"b": {"password": HIDDEN, "n": 9007199254740993}}],
        "token": HIDDEN,
    }
    assert value == before


def test_hide_survives_any_depth() -> None:
    value: Any = {"password": "canary", "n": 1}
    for _ in range(5_000):
        value = [{"in": value}]
    value = hide(value)
    for _ in range(5_000):
        value = value[0]["in"]
    assert value == {"password": HIDDEN, "n": 1}


@pytest.mark.parametrize("value", [None, "password", 7, [], {}, [None, "x"]])
def test_what_has_no_keys_stays(value: Any) -> None:
    assert hide(value) == value
    assert hidden(json.dumps(value)) == json.dumps(value)


JSON = {
    '{"a": 1}': '{"a": 1}',
    '{"password": "canary", "n": 1.50}': f'{{"password": "{HIDDEN}", "n": 1.50}}',
    '{"token":{"x":["canary","}"]},"b":2}': f'{{"token":"{HIDDEN}","b":2}}',
    '[{"b": {"Secret" : [1, "a\\"]", {}]}}, 3]': f'[{{"b": {{"Secret" : "{HIDDEN}"}}}}, 3]',
    '{"pass\\u0077ord": "canary"}': f'{{"pass\\u0077ord": "{HIDDEN}"}}',
    '{"key": 12345678901234567890}': f'{{"key": "{HIDDEN}"}}',
    '["password", "token"]': '["password", "token"]',
    '{"a": "{\\"password\\": 1}"}': '{"a": "{\\"password\\": 1}"}',
    # Cut off, or no JSON.
    '{"password": "canary': f'{{"password": "{HIDDEN}"',
    '{"password": {"a": "canary': f'{{"password": "{HIDDEN}"',
    '{"password": ': f'{{"password": "{HIDDEN}"',
    '{"password"': '{"password"',
    '{"a": "cut \\': '{"a": "cut \\',
    "not json": "not json",
    "": "",
}


@pytest.mark.parametrize(("text", "wanted"), JSON.items())
def test_hide_in_json(text: str, wanted: str) -> None:
    assert hidden(text) == wanted


def test_hide_in_json_is_exact_and_quick() -> None:
    text = json.dumps(
        {"rows": [{"n": 9007199254740993 + n, "name": "ä" * 20} for n in range(50_000)]}
    )
    began = time.monotonic()
    assert hidden(text) == text
    assert hidden("[" * 100_000) == "[" * 100_000
    assert len(hidden('{"password": ' + "[" * 100_000)) < 100
    assert time.monotonic() - began < 5


TEXTS = {
    "login(password='hunter2', user='ann')": f"login(password={HIDDEN}, user='ann')",
    'ValueError: {"api_key": "x y", "n": 1}': f'ValueError: {{"api_key": {HIDDEN}, "n": 1}}',
    "Authorization: Bearer abc.def": f"Authorization: {HIDDEN}",
    "{'credentials': {'user': 'canary'}, 'n': 1}": f"{{'credentials': {HIDDEN}, 'n': 1}}",
    "postgres://ann:hunter2@db/x": f"postgres://ann:{HIDDEN}@db/x",
    "KeyError: 'order'": "KeyError: 'order'",
    "the author: Ann": "the author: Ann",
    "a keyboard: broken": "a keyboard: broken",
    "token": "token",
}


@pytest.mark.parametrize(("text", "wanted"), TEXTS.items())
def test_hide_in_text(text: str, wanted: str) -> None:
    assert hide_in_text(text) == wanted
    assert hide_in_text(wanted) == wanted


@pytest.mark.parametrize(
    "text", ["a" * 64_000, "token" * 12_000, 'token="' * 9_000, "token={" * 9_000, "token-" * 9_000]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.monotonic()
    hide_in_text(text)
    hidden('{"' + text)
    assert time.monotonic() - began < 2


def test_words_of_the_site() -> None:
    with redact("ssn"):
        assert is_secret("user_SSN")
        assert not is_secret("password")
        assert hide_in_text("ssn=123 password=abc") == f"ssn={HIDDEN} password=abc"
        assert hidden('{"ssn": 1, "password": 2}') == f'{{"ssn": "{HIDDEN}", "password": 2}}'
    with redact():
        assert not is_secret("password")
        assert hide_in_text("password=abc") == "password=abc"
        assert hidden('{"password": 2}') == '{"password": 2}'
    assert conf.options().redact == conf.REDACT
