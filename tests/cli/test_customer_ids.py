"""Customer ids that are none are refused by every command that takes one, and nothing is created."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.operations.migrations import migrate_database
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.conftest import _throwaway_database

BAD_IDS = [
    "0", "-1", "1; drop schema x", "١٢٣", "1" * 30, "1234567890123456789", "", "1\n", " 1", "+1", "1e3", "true", "007",
]  # fmt: skip


def everything_in(database: Database) -> list[tuple[object, ...]]:
    """Schemas, registered tenants and the audit log's length: what a refused command must leave as it was."""
    with database.connect(Role.OWNER) as connection:
        return connection.execute(
            """
            SELECT 'schema', nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
            UNION ALL SELECT 'tenant', customer_id::text || status FROM clientmgr.tenants
            UNION ALL SELECT 'audit', count(*)::text FROM clientmgr.audit_log
            ORDER BY 1, 2
            """
        ).fetchall()


@pytest.fixture(scope="module")
def database(postgres_server: EmbeddedPostgres) -> Iterator[Database]:
    """One for all tests here: they prove that nothing changes in it, or add what nobody else counts on."""
    for database in _throwaway_database(postgres_server, "template1"):
        migrate_database(database)
        yield database


@pytest.fixture(scope="module")
def cli(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    cli = Cli.on(database, tmp_path_factory.mktemp("data"))
    cli.ok("tenants", "activate", "1", "123")
    return cli


@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
def test_no_command_takes_it(cli: Cli, database: Database, bad: str) -> None:
    before = everything_in(database)
    commands = [
        ("tenants", "activate", bad),
        ("tenants", "activate", "5", bad, "6"),
        ("tenants", "migrate", bad),
        ("tenants", "delete", "--yes", bad),
        ("tenants", "status", bad),
        ("audit", "list", "-c", bad),
        ("audit", "verify", "-c", bad),
    ]
    for command in commands:
        if command[0] == "audit" and bad == "0":
            continue  # there it stands for the platform itself
        result = cli(*command)
        assert result.code == 2, command
        assert "expected a positive integer of at most 18 digits, got" in result.err, command
        assert result.out == "", command
    assert everything_in(database) == before


@pytest.mark.parametrize("bad", [bad for bad in BAD_IDS if bad not in ("", "1\n")], ids=repr)
def test_no_file_brings_it_in(cli: Cli, database: Database, tmp_path: Path, bad: str) -> None:
    before = everything_in(database)
    lines = f"5\n{bad}\n6\n"
    (tmp_path / "ids").write_text(lines, encoding="utf-8")
    for command in ("activate", "migrate"):
        for result in (
            cli("tenants", command, "--file", str(tmp_path / "ids")),
            cli("tenants", command, "--file", "-", stdin=lines.encode()),
        ):
            assert result.code == 2
            assert "CUSTOMER_ID: expected a positive integer of at most 18 digits" in result.err
    assert everything_in(database) == before


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"], ids=repr)
def test_only_a_line_feed_ends_a_line_of_a_file(cli: Cli, separator: str) -> None:
    assert cli("tenants", "activate", "--file", "-", stdin=f"7{separator}8".encode()).code == 2


@pytest.mark.parametrize("contents", ["", "\n \n\n"])
def test_a_file_without_any_id_is_refused(cli: Cli, contents: str) -> None:
    result = cli("tenants", "activate", "--file", "-", stdin=contents.encode())
    assert result.code == 2
    assert "CUSTOMER_ID: expected at least one customer id" in result.err


def test_a_file_that_can_not_be_read_is_an_error_in_words(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe1")
    for file in (tmp_path / "missing", tmp_path / "binary", tmp_path):
        result = cli("tenants", "activate", "--file", str(file))
        assert result.code == 2
        assert "--file: expected a text file that can be read" in result.err


def test_a_good_file_is_taken_whatever_ends_its_lines(cli: Cli) -> None:
    result = cli.ok("tenants", "activate", "--json", "--file", "-", stdin=b"7\r\n\r\n8\n9")
    assert [(row["customer_id"], row["change"]) for row in result.json] == [(id_, "created") for id_ in (7, 8, 9)]


def test_the_real_command_refuses_it_too(database: Database, tmp_path: Path) -> None:
    before = everything_in(database)
    result = subprocess.run(
        [CLIENTMGR, "tenants", "activate", "1; drop schema x"],
        cwd=tmp_path,
        env={"DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "error: CUSTOMER_ID: expected a positive integer of at most 18 digits, got '1; drop schema x'\n"
    )
    assert everything_in(database) == before
    assert list(tmp_path.iterdir()) == []
