"""The pages say what is true: rendered ones are current, links lead somewhere, named tests exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def _render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", PROJECT / "docs" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["state-machine.md", "settings.md"])
def test_a_rendered_page_is_what_the_code_says(name: str) -> None:
    written = (PROJECT / "docs" / name).read_text()
    assert written == _render().PAGES[name](), "run: python docs/render.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_guarantees_name_tests_that_exist() -> None:
    text = (PROJECT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`(tests/[^`]+)`", text)
    assert len(named) >= 11
    for path in named:
        assert (PROJECT / path).exists(), path


def _functions(path: Path) -> set[str]:
    """The tests of a file, those of a class with its name before theirs."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if _is_function(each)}
        elif _is_function(node):
            found.add(node.name)
    return found


def _is_function(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_every_case_names_tests_that_exist() -> None:
    text = (PROJECT / "docs" / "cases.md").read_text()
    rows = re.findall(r"^\| ([A-Z]+-\d+) \| (.+?) \| (.+?) \| (.*?) ?\|$", text, re.M)
    assert len(rows) == len(re.findall(r"^\| [A-Z]+-", text, re.M)) >= 80
    assert len({name for name, *_ in rows}) == len(rows), "an id stands twice"
    for name, _, verdict, tests in rows:
        named = re.findall(r"`(tests/\S+?\.py)::(\S+?)`", tests)
        assert verdict.startswith(("holds", "otherwise", "in part", "not covered yet")), name
        assert len(named) == tests.count("`") // 2
        assert bool(named) is not verdict.startswith("not covered yet"), name
        for path, test in named:
            assert test in _functions(PROJECT / path), f"{name}: {path}::{test}"


def test_every_setting_and_check_has_its_place_on_the_page() -> None:
    from dataclasses import fields

    from jobqueue import checks, conf

    text = (PROJECT / "docs" / "settings.md").read_text()
    for option in fields(conf.Options):
        assert f"| `{option.name}` |" in text
    for code in checks.CODES:
        assert f"`{code}`" in text


def test_the_commands_in_the_pages_exist() -> None:
    from django.core.management import get_commands

    for page in PAGES:
        for command in re.findall(r"manage\.py (\w+)", page.read_text()):
            assert command in get_commands(), f"{page.name} names manage.py {command}"
