"""Every command explains itself."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from clientmgr.cli import app
from clientmgr.cli.commands import COMMANDS
from tests.cli.calling import Cli

ROOT = Path(__file__).resolve().parent.parent.parent


def commands() -> Iterator[list[str]]:
    """All commands and groups of commands, by the words that call them."""

    def walk(command: Any, words: list[str]) -> Iterator[list[str]]:
        yield words
        if isinstance(command, TyperGroup):
            context = typer.Context(command)
            for name in command.list_commands(context):
                yield from walk(command.get_command(context, name), [*words, name])

    return walk(typer.main.get_command(app), [])


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(["clientmgr", *words]))
def test_help_tells_what_it_does_and_how_to_call_it(words: list[str]) -> None:
    result = Cli({"COLUMNS": "200"}).ok(*words, "--help")
    assert " ".join(["Usage: clientmgr", *words]) in result.out
    assert result.err == ""
    described, options = result.out.partition("Usage:")[2].split("\n", 2)[2].split("Options:", 1)
    assert len(described.strip()) > 15, "a sentence about what it does"
    assert "<bool>" not in options, "a flag takes no value"
    assert "<list[" not in options, "a type of Python says nothing to people"
    for line in re.split(r"\n  (?=-)", options.partition("Commands:")[0].strip()):
        assert len(re.split(r"\s{2,}", line, maxsplit=1)) == 2, f"no help for {line}"


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


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(name: str) -> None:
    own = " ".join(Cli({"COLUMNS": "200"}).ok(name, "--help").out.split())
    assert COMMANDS[name].help.rstrip(".").partition(":")[0] in own


HEAVY = (
    "rich",
    "psycopg",
    "pydantic",
    "structlog",
    "asyncio",
    "dagster",
    "pyspark",
    "google",
    "grpc",
    "prometheus_client",
)

LEFT_OUT_OF_A_LIST = ("dagster", "pyspark", "google", "grpc", "redis", "boto3", "clientmgr.erasure", "clientmgr.broker")


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (["--help"], HEAVY),
        (["--version"], HEAVY),
        (["tenants", "list"], LEFT_OUT_OF_A_LIST),
    ],
    ids=" ".join,
)
def test_a_command_imports_what_it_needs_and_no_more(
    command: list[str], left_out: tuple[str, ...], tmp_path: Path
) -> None:
    """Imports are what a person waits for: by what is imported, and never by the clock."""
    code = (
        f"import sys; sys.argv = ['clientmgr', *{command!r}]\n"
        "from clientmgr.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"found = [name for name in {left_out!r} if name in sys.modules]\n"
        "sys.exit(' '.join(found) or 0)"
    )
    environment = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
