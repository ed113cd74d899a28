"""The embedded PostgreSQL: closed to whoever has no password, and back with its data after any end."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.local.children.guarded import GuardedProcess
from clientmgr.local.embedded.postgres import EmbeddedPostgres, syncfs_tells_errors
from clientmgr.local.embedded.server import free_port
from tests.embedded.conftest import SMALL
from tests.process_table import mentioning, wait_until_gone
from tests.waiting import eventually

pytestmark = pytest.mark.server

START_POSTGRES = """
import sys
from pathlib import Path
from clientmgr.local.embedded.postgres import EmbeddedPostgres

EmbeddedPostgres(Path(sys.argv[1])).start()
"""


def run(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_it_listens_on_a_free_port_of_the_loopback_only(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    assert postgres.port > 0
    assert run(postgres, "SELECT current_database(), host(inet_server_addr())") == [("clientmgr", "127.0.0.1")]
    assert run(postgres, "SHOW listen_addresses") == [("127.0.0.1",)]


def test_it_listens_on_the_configured_port(data_dir: Path) -> None:
    port = free_port()
    server = EmbeddedPostgres(data_dir / "postgres", port=port, tuning=SMALL)
    server.start()
    try:
        assert f":{port}/" in server.url()
        assert run(server, "SELECT inet_server_port()") == [(port,)]
    finally:
        server.stop()


def test_after_a_crash_the_file_system_is_written_back_at_once_and_not_file_by_file(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    expected = "syncfs" if syncfs_tells_errors() else "fsync"
    assert run(postgres, "SHOW recovery_init_sync_method") == [(expected,)]


def test_a_recovery_is_waited_for_as_long_as_it_gets_on(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clientmgr.local.embedded.server.READY_TIMEOUT_S", 0.3)
    postgres.folder.mkdir(parents=True, exist_ok=True)
    recovering = GuardedProcess("recovery", ["sleep", "60"], env={}, cwd=postgres.folder)
    said: list[str] = []

    def answers() -> bool:
        said.append(f"LOG:  redo in progress, elapsed time: {len(said)}0.00 s")
        postgres.log_file.write_text("\n".join(said[:30]))
        return len(said) == 30

    monkeypatch.setattr(postgres, "_answers", answers)
    try:
        postgres._wait_until_ready(recovering)
        assert len(said) == 30, "30 looks take twice the time-out"
        monkeypatch.setattr(postgres, "_answers", lambda: False)
        with pytest.raises(EmbeddedServerError, match="did not answer"):
            postgres._wait_until_ready(recovering)
    finally:
        recovering.stop()


def test_nobody_gets_in_without_the_password(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    for url in (postgres.superuser_url(), postgres.url(), *postgres.role_settings().values()):
        known = conninfo_to_dict(url)["password"]
        for password in ("", "wrong"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(url.replace(str(known), password))
    with psycopg.connect(postgres.superuser_url()) as connection:
        methods = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
    assert methods == [("scram-sha-256",)]


def test_its_secrets_and_data_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", tuning=SMALL)
    before = os.umask(0)
    try:
        server.start()
    finally:
        server.stop()
        os.umask(before)
    assert stat.S_IMODE(server.password_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700


def test_the_password_is_in_no_command_line(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    assert mentioning(postgres.folder)
    assert not mentioning(postgres.password)


def test_data_is_kept_across_a_restart(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    run(postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
    postgres.stop()
    assert not mentioning(postgres.folder)
    postgres.start()
    assert run(postgres, "SELECT answer FROM kept") == [(42,)]


def test_a_crashed_server_comes_back_on_its_port_with_its_data(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    url = postgres.url()
    run(postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
    postgres.crash()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    postgres.restart_on_same_port()
    assert postgres.url() == url
    assert run(postgres, "SELECT answer FROM kept") == [(42,)]
    log = postgres.log_file.read_text()
    assert "automatic recovery in progress" in log, "the crash was none"
    assert "received immediate shutdown request" in (postgres.folder / "server.previous.log").read_text()


def test_it_starts_at_once_after_its_postmaster_was_killed(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    run(postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
    busy = psycopg.connect(postgres.url(), autocommit=True)
    os.kill(int((postgres.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    eventually(lambda: postgres.exit_code() is not None, "the end is noticed")
    assert postgres.exit_code() == 128 + signal.SIGKILL
    postgres.restart_on_same_port()
    assert run(postgres, "SELECT answer FROM kept") == [(42,)]
    busy.close()


def test_an_unfinished_initdb_does_not_block_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    owner = subprocess.Popen([sys.executable, "-c", START_POSTGRES, folder])
    eventually(lambda: list(folder.glob("data.unfinished-*/base")), "initdb is under way")
    owner.kill()
    owner.wait()
    assert not (folder / "data").exists(), "it was too late to interrupt initdb"
    server = EmbeddedPostgres(folder, tuning=SMALL)
    server.start()
    try:
        assert run(server, "SELECT 1") == [(1,)]
        eventually(lambda: not list(folder.glob("data.unfinished-*")), "the half-made one is removed")
    finally:
        server.stop()
    wait_until_gone(mentioning(folder))


def test_its_folder_may_have_any_name(tmp_path: Path, made_postgres: Path) -> None:
    folder = tmp_path / 'it\'s a "folder" ü $HOME'
    shutil.copytree(made_postgres, folder)
    server = EmbeddedPostgres(folder, tuning=SMALL)
    server.start()
    try:
        assert run(server, "SELECT 1") == [(1,)]
    finally:
        server.stop()


def test_a_failed_start_tells_what_the_server_said(postgres: EmbeddedPostgres) -> None:
    (postgres.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        EmbeddedServerError, match=r"(?s)PostgreSQL ended while starting: .*initialized by PostgreSQL version 9"
    ):
        postgres.start()
    assert not mentioning(postgres.folder)
