"""That every flag of every command is shown at work by some test."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import find_commands, load_command_class
from django.core.management.base import BaseCommand

from tests.commands.running import SHOWN


def flags_of(name: str) -> set[str]:
    """`command action --flag` for each flag of a command that is its own."""
    common = {
        text
        for action in BaseCommand().create_parser("manage.py", name)._actions
        for text in action.option_strings
    }

    def walk(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    yield from walk(inner, f"{path} {word}")
            for text in action.option_strings:
                if text not in common:
                    yield f"{path} {text}"

    return set(walk(load_command_class("jobqueue", name).create_parser("manage.py", name), name))


def commands() -> list[str]:
    return find_commands(str(Path(apps.get_app_config("jobqueue").path) / "management"))


def test_every_flag_is_shown_at_work() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    flags = set().union(*(flags_of(name) for name in commands() if name != "runworker"))
    assert flags == set(SHOWN)


def test_every_flag_of_runworker_is_shown_at_work() -> None:
    """Elsewhere: its tests start processes. Each flag stands there as a word of a command line."""
    tests = Path(__file__).parent.parent
    others = [path for path in tests.rglob("test_*.py") if path != Path(__file__)]
    words = "".join(path.read_text() for path in others)
    unseen = {flag for flag in flags_of("runworker") if f'"{flag.split()[1]}"' not in words}
    assert not unseen


@pytest.mark.parametrize("name", commands())
def test_help_is_ascii(name: str) -> None:
    parser = load_command_class("jobqueue", name).create_parser("manage.py", name)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                assert inner.format_help().isascii()
    assert parser.format_help().isascii()
