"""Values as people read them: exact, in order, never too much of them, and nothing that is markup."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from jobqueue.admin import trees
from jobqueue.admin.hiding import HIDDEN

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def nested(depth: int, inside: Any = 1) -> Any:
    for _ in range(depth):
        inside = {"in": [inside]}
    return inside


def test_tree_is_exact_and_in_order() -> None:
    value = {"b": 9007199254740993, "a": "1", "c": [1.5, None, True, 1e300, {}, []], "": -0.0}
    html = trees.tree(value, see=True)
    for shown in ("9007199254740993", "&quot;1&quot;", "1.5", "null", "true", "1e+300", "-0.0"):
        assert shown in html
    assert text_of(html).index("&quot;a&quot;") < text_of(html).index("&quot;b&quot;")
    assert html.count("<details>") == 1


def test_tree_hides_secret_keys() -> None:
    html = trees.tree({"a": {"b": {"c": {"password": "canary", "x": 1}}}}, see=True)
    assert "canary" not in html
    assert HIDDEN in html
    assert "canary" not in trees.preview([{"password": "canary"}], {"token": "canary"})
    assert "canary" not in trees.preview_of_json('[{"password": "canary', '{"token": "canary')


def test_tree_without_the_right() -> None:
    html = trees.tree({"order": "canary"}, see=False)
    assert "canary" not in html
    assert "Can see jobs" in html


def test_tree_escapes() -> None:
    html = trees.tree({EVIL: [EVIL, {EVIL: EVIL}]}, see=True, download='/x"y')
    assert "<script" not in html
    assert "<img" not in html
    assert EVIL[:30] not in trees.tree(EVIL, see=True)


def test_tree_of_many_items() -> None:
    html = trees.tree(list(range(1_000)), see=True, download="/all")
    assert "and 800 more" in html
    assert '<a href="/all">' in html
    assert html.count("<li>") == 201


@pytest.mark.parametrize(
    "value",
    [
        [[list(range(200)) for _ in range(200)] for _ in range(20)],
        {"x" * 50 + str(n): EVIL * 20 for n in range(2_000)},
        ["<" * 100_000] * 500,
        "y" * 1_000_000,
    ],
)
def test_tree_stays_small(value: Any) -> None:
    html = trees.tree(value, see=True, download="/all")
    assert len(html) < 100_000
    assert "/all" in html


@pytest.mark.parametrize("depth", [99, 500, 20_000])
def test_tree_of_deep_nests(depth: int) -> None:
    html = trees.tree(nested(depth), see=True)
    assert html.count("<details>") < trees.DEPTH
    assert html.count("<ul") == html.count("</ul>") <= trees.DEPTH
    assert len(trees.preview([nested(depth)], {})) <= 160


def test_long_numbers_and_odd_characters() -> None:
    digits = "9" * 10_000
    value = trees.loads(f"[{digits}, -{digits}]")
    assert digits[: trees.CHARACTERS] in trees.tree(value, see=True)
    assert "shortened, 10,000 characters" in trees.tree(value[0], see=True)
    assert trees.tree(7**9_000, see=True)
    html = trees.tree(["\ud800", "\u202eabc", "\0", "ä שלום"], see=True)
    html.encode()
    assert "\\ud800" in html
    assert "\\u202e" in html
    assert "ä שלום" in html


@pytest.mark.parametrize("value", [None, "text", 7, [], {}, True, 1.5])
def test_whatever_stands_in_the_column(value: Any) -> None:
    assert trees.tree(value, see=True)
    assert len(trees.preview(value, value)) <= 160


def test_preview() -> None:
    assert trees.preview([1, "a", [2, {"b": None}]], {"order": 7, "password": "x"}) == (
        f'1, "a", [2, {{"b": null}}], order=7, password={HIDDEN}'
    )
    assert trees.preview([], {}) == ""
    long = trees.preview(["x" * 1_000_000], {str(n): n for n in range(100_000)})
    assert len(long) == 160
    assert long.endswith("…")
    assert "\u202e" not in trees.preview(["\u202e"], {"\u202e": 1})


def test_preview_of_json() -> None:
    text = json.dumps([1, "a" * 500])
    assert trees.preview_of_json(text[:200], '{"order": 7}').startswith('1, "aaa')
    assert trees.preview_of_json("[]", '{"order": 7}') == '"order": 7'
    assert trees.preview_of_json("null", "") == ""
