"""Every command explains itself."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from clientmgr.cli import app
from tests.cli.calling import Cli

ROOT = Path(__file__).resolve().parent.parent.parent


def commands() -> Iterator[list[str]]:
    """All commands and groups of commands, by the words that call them."""

    def walk(command: object, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, [*words, name])

    return walk(typer.main.get_command(app), [])


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(["clientmgr", *words]))
def test_help_tells_what_it_does_and_how_to_call_it(words: list[str]) -> None:
    result = Cli({"COLUMNS": "200"}).ok(*words, "--help")
    assert " ".join(["Usage: clientmgr", *words]) in result.out
    assert result.err == ""
    described = result.out.partition("Usage:")[2].split("\n", 2)[2].partition("╭")[0].strip()
    assert len(described) > 15, "a sentence about what it does"


def test_all_commands_of_the_ground_floor_are_there() -> None:
    known = {" ".join(words) for words in commands()}
    assert known >= {
        "up", "demo", "config", "migrate",
        "tenants list", "tenants activate", "tenants migrate", "tenants delete", "tenants status",
        "audit list", "audit verify", "audit anchor",
    }  # fmt: skip


def test_it_says_which_version_it_is() -> None:
    released = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert Cli({}).ok("--version").out == f"clientmgr {released}\n"


@pytest.mark.parametrize("words", [[], ["tenants"], ["audit"]], ids=["clientmgr", "tenants", "audit"])
def test_a_group_without_a_command_shows_its_commands(words: list[str]) -> None:
    result = Cli({})(*words)
    assert result.code == 2
    assert "Commands" in result.out + result.err
