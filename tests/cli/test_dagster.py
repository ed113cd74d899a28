"""`clientmgr dagster …`: the process becomes Dagster's, just as `up` runs it."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import load_settings
from clientmgr.local.processes.programs import dagster_programs
from clientmgr.operations.code_server_socket import LONGEST_PATH, code_server_socket
from tests.cli.calling import Cli


class Became(BaseException):
    """What the process would be from here on."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.command, self.environment = command, environment


@pytest.fixture(autouse=True)
def _stop_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def become(_program: str, command: list[str], environment: dict[str, str]) -> NoReturn:
        raise Became(command, environment)

    monkeypatch.setattr(os, "execve", become)


def becomes(database: Database, folder: Path, *arguments: str) -> Became:
    with pytest.raises(Became) as caught:
        Cli.on(database, folder)(*arguments)
    return caught.value


@pytest.mark.parametrize("name", ["code-server", "webserver", "daemon"])
def test_it_becomes_what_up_runs(database: Database, tmp_path: Path, name: str) -> None:
    became = becomes(database, tmp_path, "dagster", name)
    settings = load_settings(database_url=database.url, data_dir=tmp_path)
    programs = {program.name: program for program in dagster_programs(settings, {})}
    expected = programs[f"dagster-{name}"]
    assert became.command == [str(word) for word in expected.command]
    assert expected.env.items() <= became.environment.items()
    assert (tmp_path / "dagster" / "dagster.yaml").exists()
    with database.connect(Role.OWNER) as connection:
        assert connection.execute("SELECT FROM pg_namespace WHERE nspname = 'dagster'").rowcount == 1


def test_dagster_s_own_commands_run_on_this_installation_with_the_logins_of_a_run(
    database: Database, tmp_path: Path
) -> None:
    became = becomes(database, tmp_path, "dagster", "cli", "asset", "materialize", "--select", "x", "--help")
    assert became.command[1:] == ["-m", "dagster", "asset", "materialize", "--select", "x", "--help"]
    settings = load_settings(database_url=database.url, data_dir=tmp_path)
    (code_server, *_) = dagster_programs(settings, {})
    assert code_server.env.items() <= became.environment.items()


def test_the_daemon_s_liveness_is_asked_of_dagster_itself(database: Database, tmp_path: Path) -> None:
    became = becomes(database, tmp_path, "dagster", "liveness-check")
    assert became.command[1:] == ["-m", "dagster._daemon", "liveness-check"]
    assert became.environment["DAGSTER_HOME"] == str(tmp_path / "dagster")
    assert "clientmgr_dagster" in became.environment["DAGSTER_POSTGRES_URL"]
    assert became.environment["DATABASE_URL"] == "", "the owner's login is for migrations alone"


def test_whether_the_code_server_answers_is_asked_on_its_socket(database: Database, tmp_path: Path) -> None:
    became = becomes(database, tmp_path, "dagster", "code-server-check")
    socket = str(tmp_path / "dagster" / "code-server.sock")
    assert became.command[1:] == ["-m", "dagster", "api", "grpc-health-check", "--socket", socket]


def test_a_folder_that_is_too_deep_for_a_socket_gets_another_that_is_as_closed(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["deep" * 10] * 3)
    socket = code_server_socket(load_settings(data_dir=deep))
    assert socket == code_server_socket(load_settings(data_dir=deep))
    assert len(bytes(socket)) <= LONGEST_PATH
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    socket.parent.rmdir()
    with pytest.raises(SettingsError, match="DAGSTER_CODE_SERVER_SOCKET"):
        code_server_socket(load_settings(dagster_code_server_socket=str(deep / "socket")))


def test_the_ui_refuses_a_public_address_without_users(database: Database, tmp_path: Path) -> None:
    result = Cli.on(database, tmp_path, DAGSTER_HOST="0.0.0.0")("dagster", "webserver")  # noqa: S104  # it is refused
    assert result.code == 2
    assert "DAGSTER_HOST" in result.err
    assert "DASHBOARD_USERS_FILE" in result.err


@pytest.mark.server
def test_so_does_the_process_that_it_becomes(tmp_path: Path) -> None:
    environment = {**os.environ, "DAGSTER_HOST": "0.0.0.0", "DATA_DIR": str(tmp_path)}  # noqa: S104  # it is refused
    command = [sys.executable, "-m", "clientmgr_dashboard.dagster_ui", "workspace.yaml"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("DAGSTER_HOST: 0.0.0.0 can be reached by others")


@pytest.mark.server
def test_the_dashboard_s_own_process_does_not_import_dagster() -> None:
    look = "import sys, clientmgr_dashboard.server; sys.exit(bool({'dagster', 'graphql'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", look], timeout=120, check=False).returncode == 0
