"""Exit codes that scripts can rely on: 0 done, 1 failed or found, 2 usage or setting, 3 no server, 130 interrupted."""

import os
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.migrations import ADVISORY_LOCK
from clientmgr.cli.endings import _control_schema_is_missing
from clientmgr.local.embedded.server import free_port
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.keys import TEST_KEY
from tests.waiting import eventually


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


def test_0_when_the_work_is_done(cli: Cli) -> None:
    assert cli("tenants", "activate", "5").code == 0
    assert cli("tenants", "activate", "5").code == 0
    assert cli("audit", "verify").code == 0


def test_1_when_one_of_the_tenants_failed(cli: Cli, database: Database) -> None:
    with database.connect(Role.OWNER) as connection:
        connection.execute("CREATE SCHEMA tenant_6")
    result = cli("tenants", "activate", "5", "6", "--json")
    assert result.code == 1
    assert {row["customer_id"]: row["change"] for row in result.json} == {5: "created", 6: "failed"}
    assert "already exists" in result.json[1]["error"]


def test_1_when_the_customer_is_unknown(cli: Cli) -> None:
    result = cli("tenants", "status", "5")
    assert (result.code, result.out) == (1, "customer 5 was never activated\n")


def test_1_when_the_audit_log_was_changed(cli: Cli, database: Database) -> None:
    cli.ok("tenants", "activate", "5")
    with database.connect(Role.OWNER) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE clientmgr.audit_log SET actor = 'nobody' WHERE customer_id = 5")
    result = cli("audit", "verify")
    assert result.code == 1
    assert result.out.splitlines()[1].startswith("5 ")
    as_json = cli("audit", "verify", "--json")
    assert as_json.code == 1
    assert as_json.json["intact"] is False


def test_3_when_nothing_is_wrong_with_the_audit_log_but_an_anchor_can_not_be_read(
    database: Database, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cli = Cli.on(database, tmp_path, AUDIT_ANCHORS=f"file:{tmp_path}/here.jsonl,file:{tmp_path}/file/away.jsonl")
    result = cli("audit", "verify")
    assert result.code == 3
    assert "can't be compared" in result.out
    assert "nothing is wrong with what could be checked, but that is no proof: 1 row in 1 chain" in result.out
    as_json = cli("audit", "verify", "--json")
    assert (as_json.code, as_json.json["intact"], as_json.json["state"]) == (3, False, "not proven")
    assert cli("audit", "anchor").code == 3
    (tmp_path / "file").unlink()
    assert cli("audit", "verify").code == 0


def test_1_when_the_audit_log_does_not_continue_its_anchors_until_somebody_accepts_it(
    cli: Cli, database: Database
) -> None:
    cli.ok("tenants", "activate", "5")
    assert cli.ok("audit", "anchor", "--json").json[0]["outcome"] == "anchored"
    with database.connect(Role.OWNER) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM clientmgr.audit_log WHERE customer_id = 5")
        connection.execute("DELETE FROM clientmgr.audit_heads WHERE customer_id = 5")
        connection.execute("DELETE FROM clientmgr.tenants WHERE customer_id = 5")
        connection.execute('DROP SCHEMA "tenant_5" CASCADE')
    assert cli("audit", "verify").code == 1
    refused = cli("audit", "anchor")
    assert (refused.code, "the whole chain is gone" in refused.err) == (1, True)
    cli.ok("audit", "anchor", "--accept", "restored from Monday's backup")
    cli.ok("audit", "verify")
    (accepted, *_) = cli.ok("audit", "list", "--action", "audit.anchor", "--json").json
    assert (accepted["outcome"], accepted["details"]) == ("accepted", {"reason": "restored from Monday's backup"})


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["tenants", "list", "--no-such-option"],
        ["tenants", "list", "--status", "sleeping"],
        ["tenants", "activate"],
        ["tenants", "delete"],
        ["audit", "list", "--limit", "0"],
        ["audit", "list", "--limit", "many"],
    ],
    ids=" ".join,
)
def test_2_when_it_is_called_wrongly(words: list[str]) -> None:
    result = Cli({"DATABASE_URL": "postgresql://nobody.asks.it/db"})(*words)
    assert result.code == 2
    assert result.out == ""
    assert result.err != ""


def test_2_when_a_setting_is_wrong() -> None:
    for words in (["config"], ["tenants", "list"], ["up"]):
        result = Cli({"TENANT_CONNECTIONS": "many"})(*words)
        assert result.code == 2
        assert (
            result.err
            == "error: TENANT_CONNECTIONS: expected a valid integer, unable to parse string as an integer, got 'many'\n"
        )


def test_2_when_nothing_says_where_the_database_is(tmp_path: Path) -> None:
    result = Cli({"DATA_DIR": str(tmp_path / "data")})("tenants", "list")
    assert result.code == 2
    assert "no embedded stack is running" in result.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["tenants", "list"],
        ["tenants", "activate", "5"],
        ["tenants", "delete", "5", "-y"],
        ["audit", "list"],
        ["migrate"],
    ],
    ids=" ".join,
)
def test_3_when_the_database_can_not_be_reached(tmp_path: Path, words: list[str]) -> None:
    unreachable = f"postgresql://me:hunter2@127.0.0.1:{free_port()}/db"
    result = Cli({"DATABASE_URL": unreachable, "DATA_DIR": str(tmp_path)})(*words)
    assert result.code == 3
    assert result.err.startswith("error: PostgreSQL: ")
    assert "Connection refused" in result.err
    assert "hunter2" not in result.err
    assert "Traceback" not in result.err


def test_3_when_the_database_refuses_us(database: Database, tmp_path: Path) -> None:
    result = Cli({"DATABASE_URL": database.url + "_missing", "DATA_DIR": str(tmp_path)})("tenants", "list")
    assert result.code == 3
    assert "does not exist" in result.err


def test_a_database_without_the_control_schema_says_how_to_make_it(empty_database: Database, tmp_path: Path) -> None:
    cli = Cli.on(empty_database, tmp_path)
    commands = [("tenants", "list"), ("tenants", "activate", "5"), ("audit", "list"), ("audit", "verify")]
    for words in commands:
        result = cli(*words)
        assert result.code == 1, words
        assert "`clientmgr migrate` makes it" in result.err, words
    cli.ok("migrate")
    for words in commands:
        cli.ok(*words)


def test_a_server_without_our_roles_has_no_control_schema_either() -> None:
    refused = psycopg.OperationalError('connection failed: FATAL:  role "clientmgr_reader" does not exist')
    assert _control_schema_is_missing(refused)
    assert not _control_schema_is_missing(psycopg.OperationalError('FATAL:  role "me" does not exist'))


def test_130_when_interrupted(database: Database, tmp_path: Path) -> None:
    with (
        database.connect(Role.OWNER, autocommit=True) as holder,
        database.connect(Role.OWNER, autocommit=True) as watcher,
    ):
        holder.execute("SELECT pg_advisory_lock(%s)", (ADVISORY_LOCK,))
        process = subprocess.Popen(
            [CLIENTMGR, "migrate"],
            cwd=tmp_path,
            env={**os.environ, "DATABASE_URL": database.url, "AUDIT_HASH_KEY": TEST_KEY},
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs us in the background has us ignore Ctrl-C, and our children with us.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
        eventually(lambda: watcher.execute(waiting).fetchone() is not None, "it waits for the lock")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told


def test_whoever_stops_reading_gets_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [CLIENTMGR, "config", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert told == ""
