"""Every command used wrongly says so in a sentence and an exit code: nobody has to read a traceback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from clientmgr.cli import app
from tests.cli.calling import Cli
from tests.keys import TEST_KEY

NEEDS_NO_SERVER = {"config", "dashboard user", "live token", "pubsub-gateway token", "audit check-proof"}
RUNS_ON = {"up", "demo", "load", "bridge", "pubsub-gateway", "live fleet", "device-mapper send-samples"}
"""They wait for a server that is away, or start one. So do daemons and Dagster's programs."""


def leaves() -> Iterator[tuple[str, Any]]:
    def walk(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
        if not isinstance(command, TyperGroup):
            yield " ".join(words), command
            return
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), [*words, name])

    return walk(typer.main.get_command(app), [])


def required(command: Any) -> list[str]:
    """Words for all that a command must be given."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            choices = getattr(parameter.type_descriptor, "choices", None) or ("7",)
            value = str(next(iter(choices)))
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    return [*words, "--yes"] if "--yes" in flags else words


COMMANDS = dict(leaves())
ASKS_A_SERVER = {
    name: command
    for name, command in COMMANDS.items()
    if name not in NEEDS_NO_SERVER | RUNS_ON and name.partition(" ")[0] not in {"run", "dagster"}
}


@pytest.fixture
def nowhere(tmp_path: Path) -> Cli:
    """Nobody listens where it says."""
    urls = dict.fromkeys(("DATABASE_URL", "DATABASE_READER_URL"), "postgresql://nobody@127.0.0.1:1/none")
    return Cli({**urls, "REDIS_URL": "redis://127.0.0.1:1/0", "DATA_DIR": str(tmp_path), "AUDIT_HASH_KEY": TEST_KEY})


def test_there_are_commands_to_try() -> None:
    assert len(ASKS_A_SERVER) > 40
    assert COMMANDS.keys() >= NEEDS_NO_SERVER


@pytest.mark.parametrize("name", ASKS_A_SERVER)
def test_a_server_that_is_not_there_is_a_sentence(nowhere: Cli, name: str) -> None:
    result = nowhere(*name.split(), *required(COMMANDS[name]))
    assert result.code in (2, 3), result
    (*_, said) = result.err.strip().splitlines()
    assert said.startswith(("error: ", "Error: ")), result
    assert "clientmgr." not in said, "what it is called inside"
    if result.code == 3:
        assert "`clientmgr config` shows where it is looked for" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_there_is_not_is_named(name: str) -> None:
    result = Cli({})(*name.split(), "--no-such-option")
    assert result.code == 2
    assert "--no-such-option" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ["devices", "export", "-c", "7", "-o"],
        ["contacts", "export", "-c", "7", "--contact", "1", "-o"],
        ["contacts", "prove", "-c", "7", "--contact", "1", "-o"],
        ["tenants", "prove", "-c", "7", "-o"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_file_that_can_not_be_written_is_named_before_any_work(
    nowhere: Cli, tmp_path: Path, words: list[str]
) -> None:
    for wrong in (tmp_path / "missing" / "out.json", tmp_path):
        result = nowhere(*words, str(wrong))
        assert result.code == 2
        assert str(wrong) in result.err, result
        assert "Errno" not in result.err


@pytest.mark.parametrize(
    "words",
    [
        ["device-mapper", "explain", "--customer", "7", "--contact", "1", "--message", "PATH"],
        ["publish", "outbox", "--file", "PATH"],
        ["tenants", "activate", "--file", "PATH"],
        ["audit", "check-proof", "PATH"],
        ["devices", "import", "PATH"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_file_that_can_not_be_read_is_named(nowhere: Cli, tmp_path: Path, words: list[str]) -> None:
    missing = str(tmp_path / "missing.json")
    result = nowhere(*[missing if word == "PATH" else word for word in words])
    assert result.code == 2
    assert missing in result.err
    assert "Errno" not in result.err
