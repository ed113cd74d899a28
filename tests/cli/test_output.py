"""Output: JSON that programs parse, tables that people read at any width, secrets that nobody sees."""

import contextlib
import json
import os
import pty
import re
import subprocess
import termios
from pathlib import Path

import pytest
from rich.console import Console

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.base.data_folder import lock_folder, running_note
from clientmgr.base.database import Database, Role
from clientmgr.base.hiding import HIDDEN
from clientmgr.base.settings import Settings
from clientmgr.cli import output
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.keys import TEST_KEY


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


def narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(output, "console", Console(width=columns, force_terminal=True, color_system=None))


def test_tenants_as_json(cli: Cli) -> None:
    assert cli.ok("tenants", "list", "--json").json == []
    created = cli.ok("tenants", "activate", "5", "123456789012345678", "--json").json
    assert [(row["customer_id"], row["change"], row["error"]) for row in created] == [
        (5, "created", None),
        (123456789012345678, "created", None),
    ]
    listed = cli.ok("tenants", "list", "--json").json
    assert [(row["customer_id"], row["status"]) for row in listed] == [(5, "active"), (123456789012345678, "active")]
    assert listed[0]["activated_at"][:2] == "20"
    assert cli.ok("tenants", "list", "--status", "deleted", "--json").json == []
    assert cli.ok("tenants", "status", "5", "--json").json["schema"] == "tenant_5"
    assert cli.ok("tenants", "status", "--json").json["active"] == 2
    assert cli.ok("tenants", "migrate", "--json").json == []
    (dropped,) = cli.ok("tenants", "delete", "5", "--yes", "--json").json
    assert (dropped["change"], dropped["rows_deleted"]) == ("dropped", 0)


def test_the_audit_log_as_json(cli: Cli) -> None:
    (first,) = cli.ok("audit", "list", "--json").json
    assert (first["customer_id"], first["seq"], first["action"]) == (0, 1, "database.migrate")
    cli.ok("tenants", "activate", "5", "6")
    cli.ok("tenants", "delete", "5", "--yes")
    rows = cli.ok("audit", "list", "-c", "5", "--json").json
    assert [(row["seq"], row["action"], row["outcome"]) for row in rows] == [
        (4, "account.delete", "completed"),
        (3, "account.delete", "dropped"),
        (2, "account.delete", "intended"),
        (1, "tenant.activate", "created"),
    ]
    assert all(row["actor"].startswith("cli:") for row in rows)
    assert len(cli.ok("audit", "list", "--limit", "2", "--json").json) == 2
    assert [row["customer_id"] for row in cli.ok("audit", "list", "--action", "tenant.activate", "--json").json] != []
    assert cli.ok("audit", "list", "-c", "7", "--json").json == []


def test_a_verification_says_how_much_it_looked_at(cli: Cli) -> None:
    cli.ok("tenants", "activate", "5", "6")
    assert cli.ok("audit", "verify").out == "the audit log is intact: 3 rows in 3 chains, compared with 0 anchors\n"
    again = cli.ok("audit", "verify").out
    assert again.startswith("the audit log is intact: 4 rows in 3 chains, compared with 1 anchor, the newest of 20")
    verdict = cli.ok("audit", "verify", "--json").json
    assert verdict.pop("anchored_at") is not None
    assert verdict == {
        "intact": True, "state": "intact", "rows": 4, "chains": 3, "anchors": 1, "not_readable": [], "findings": []
    }  # fmt: skip
    one = cli.ok("audit", "verify", "--customer", "5", "--json").json
    assert (one["rows"], one["chains"], one["anchors"]) == (1, 1, 1)


def test_an_empty_list_says_so(cli: Cli) -> None:
    assert cli.ok("tenants", "list").out == "no tenants yet: clientmgr tenants activate CUSTOMER_ID\n"
    assert cli.ok("audit", "list", "-c", "5").out == "nothing recorded yet\n"
    assert cli.ok("tenants", "migrate").out == "nothing to do\n"


def test_many_results_are_counted_and_not_listed(cli: Cli) -> None:
    assert cli.ok("tenants", "activate", *map(str, range(1, 23))).out == "22 created\n"


def audit_one(database: Database, **entry: object) -> None:
    values = {"customer_id": PLATFORM, "actor": "test", "action": "a.b", "outcome": "done", **entry}
    with database.connect(Role.WRITER) as connection:
        AuditLogger(TEST_KEY.encode()).append(connection, [AuditEntry(**values)])  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [80, 60, 30])
def test_the_audit_log_is_complete_at_any_width(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    long_words = {"reason": "because the customer asked for it in writing", "reference": "r" * 40}
    audit_one(database, customer_id=123456789012345678, rows_affected=3, contact_id=9, details=long_words)
    narrow(monkeypatch, columns)
    shown = cli.ok("audit", "list").out
    assert max(len(line) for line in shown.splitlines()) <= columns
    squeezed = "".join(shown.split())
    for expected in ("123456789012345678", "a.b:done", "rows=3", "reason=becausethecustomerasked", "r" * 40):
        assert expected in squeezed or expected in squeezed.replace("\n", "")
    assert "…" not in shown


def test_the_usual_audit_row_is_one_or_two_lines_on_80_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("tenants", "activate", "5")
    narrow(monkeypatch, 80)
    header, *row = cli.ok("audit", "list", "-c", "5").out.splitlines()
    assert header.split() == ["recorded", "at", "customer", "id", "seq", "actor", "event"]
    assert len(row) <= 2
    assert "tenant.activate: created," in row[0]


def test_a_table_in_a_pipe_is_as_wide_as_its_contents(cli: Cli, database: Database) -> None:
    audit_one(database, details={"reason": "x" * 500})
    header, row = cli.ok("audit", "list", "--action", "a.b").out.splitlines()
    assert "x" * 500 in row
    assert header.startswith("recorded at")


def test_what_comes_from_a_store_is_neither_markup_nor_a_control_sequence(cli: Cli, database: Database) -> None:
    audit_one(database, actor="[red]me[/red]", outcome="\x1b[2J", details={"note": "[bold]x", "lines": "a\nb"})
    _, row = cli.ok("audit", "list", "--action", "a.b").out.splitlines()
    assert "[red]me[/red]" in row
    assert "[bold]x" in row
    assert "\\x1b[2J" in row
    assert "a\\nb" in row


def test_config_shows_every_setting_and_hides_every_secret(tmp_path: Path) -> None:
    secrets = {
        "DATABASE_URL": "postgresql://me:hunter2@host/db",
        "DATABASE_READER_URL": "postgresql://me@host/db?sslmode=require&password=hunter2",
        "DATABASE_WRITER_URL": "postgresql://me:hun#hunter2?hunter2@host/db",
        "REDIS_URL": "redis://:hunter2@host/0",
        "AUDIT_HASH_KEY": f"hunter2{TEST_KEY}",
        "DATA_DIR": str(tmp_path),
    }
    cli = Cli(secrets)
    table = cli.ok("config").out
    shown = cli.ok("config", "--json").json
    assert list(shown) == [name.upper() for name in Settings.model_fields]
    assert all(name in table for name in shown)
    assert "hunter2" not in table + str(shown)
    assert shown["DATABASE_URL"] == f"postgresql://me:{HIDDEN}@host/db"
    assert shown["DATABASE_READER_URL"] == f"postgresql://me@host/db?sslmode=require&password={HIDDEN}"
    assert shown["DATABASE_WRITER_URL"] == f"postgresql://me:{HIDDEN}@host/db"
    assert shown["AUDIT_HASH_KEY"] == HIDDEN
    assert shown["DATA_DIR"] == str(tmp_path)
    assert [type(shown[name]) for name in ("LOG_LEVEL", "BROKER_BATCH_SIZE", "SPARK_SHARED")] == [str, int, bool]
    assert list(tmp_path.iterdir()) == []


def test_config_shows_the_servers_that_run_in_the_folder(tmp_path: Path) -> None:
    note = {"database_url": "postgresql://o:hunter2@127.0.0.1:5/db", "redis_url": "redis://:hunter2@127.0.0.1:6/0"}
    with lock_folder(tmp_path):
        running_note(tmp_path).write_text(json.dumps(note))
        shown = Cli({"DATA_DIR": str(tmp_path), "DATABASE_URL": "", "REDIS_URL": ""}).ok("config", "--json").json
    assert shown["DATABASE_URL"] == f"postgresql://o:{HIDDEN}@127.0.0.1:5/db"
    assert shown["REDIS_URL"] == f"redis://:{HIDDEN}@127.0.0.1:6/0"


def test_a_table_holds_no_python() -> None:
    values = {"on": True, "keys": {"auth": {"a": [1, None]}}, "languages": ["de", "en"], "none": None}
    with output.console.capture() as capture:
        output.show_record(values)
    assert capture.get().splitlines() == ["on: true", 'keys: auth={"a": [1, null]}', "languages: de, en", "none: –"]


@pytest.mark.parametrize(
    "wrong", ["mysql://me:hunter2@host/db", "me:hunter2@host/db", "host=h password=hunter2", "mysql://me:hun/hunter2@h"]
)
def test_a_wrong_url_is_named_without_its_password(wrong: str) -> None:
    result = Cli({"DATABASE_URL": wrong})("config")
    assert result.code == 2
    assert result.err.startswith(
        "error: DATABASE_URL: expected a URL like postgresql://user:password@host:5432/database"
    )
    assert "hunter2" not in result.err


def test_a_dotenv_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TENANT_CONNECTIONS=3\nBROKER_BATCH_SIZE=7\n")
    environment = {**os.environ, "BROKER_BATCH_SIZE": "8"}
    told = subprocess.run(
        [CLIENTMGR, "config"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    values = {line.split()[0]: line.split()[1] for line in told.splitlines()}
    assert (values["TENANT_CONNECTIONS"], values["BROKER_BATCH_SIZE"]) == ("3", "8")


def test_delete_asks_and_no_means_no(cli: Cli, database: Database) -> None:
    cli.ok("tenants", "activate", "5")
    for answer in (b"n\n", b"\n", b""):
        result = cli("tenants", "delete", "5", stdin=answer)
        assert result.code == 1
        assert "Drop tenant_5 with all its devices?" in result.err
        assert result.out.strip() == ""
    assert cli.ok("tenants", "status", "5", "--json").json["status"] == "active"
    assert [row["action"] for row in cli.ok("audit", "list", "-c", "5", "--json").json] == ["tenant.activate"]
    assert "dropped" in cli.ok("tenants", "delete", "5", stdin=b"y\n").out


def test_on_a_terminal_a_table_fits_it(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 70))
    # readline, which somebody may have imported here, tells its idea of the size to all children.
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [CLIENTMGR, "config"], cwd=tmp_path, env=environment, stdin=terminal, stdout=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
            while chunk := os.read(ours, 65536):
                shown += chunk
        assert process.wait() == 0
    os.close(ours)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()
    assert any("TENANT_CONNECTIONS" in line for line in lines)
    assert max(map(len, lines)) <= 70
