"""`clientmgr dagster …`: Dagster's own programs one by one, as `up` runs them, for other supervisors than `up`."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from clientmgr.base.data_folder import attach
from clientmgr.base.java import spark_environment
from clientmgr.base.settings import load_settings
from clientmgr.contracts import daemons
from clientmgr.local.processes.programs import dagster_environment, dagster_programs
from clientmgr.operations.code_server_socket import code_server_socket
from clientmgr.operations.dagster_addresses import ensure_dagster_login
from clientmgr_dashboard.access.exposure import ensure_dagster_is_not_open_to_others

app = typer.Typer(
    help="Dagster's code server, daemon and webserver in the foreground, each by itself; and its own commands.",
    no_args_is_help=True,
)


@app.command("code-server")
def run_code_server() -> None:
    """Run the server of our definitions, which starts the runs. One a system; SIGTERM waits for its runs first."""
    _become("dagster-code-server")


@app.command("webserver")
def run_webserver() -> None:
    """Run Dagster's UI on DAGSTER_HOST:DAGSTER_PORT, with the dashboard's users and sessions."""
    ensure_dagster_is_not_open_to_others(load_settings())
    _become("dagster-webserver")


@app.command("daemon")
def run_daemon() -> None:
    """Run Dagster's daemon: it decides when sensors, schedules and queued runs are due. One a system."""
    _become("dagster-daemon")


@app.command("liveness-check")
def check_liveness() -> None:
    """End with exit code 0 if Dagster's daemon has given a sign of life lately, for a probe."""
    settings = attach(load_settings())
    command = [sys.executable, "-m", "dagster._daemon", "liveness-check"]
    environment = {**os.environ, **settings.environment()}
    _, daemon, _ = daemons.DAGSTER
    _replace_process(command, dagster_environment(daemon, settings, environment))


@app.command("code-server-check")
def check_code_server() -> None:
    """End with exit code 0 if the code server answers, for a probe."""
    settings = attach(load_settings())
    socket = str(code_server_socket(settings))
    command = [sys.executable, "-m", "dagster", "api", "grpc-health-check", "--socket", socket]
    _replace_process(command, dict(os.environ))


@app.command("cli", context_settings={"allow_interspersed_args": False})
def run_command(
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Dagster's, with its options.")],
) -> None:
    """Run a command of Dagster's own in this installation: `asset materialize …`, `run list`, `debug export …`."""
    settings = attach(load_settings())
    ensure_dagster_login(settings)
    # It does in this process what the code server would have a run do.
    code_server, *_ = daemons.DAGSTER
    environment = dagster_environment(code_server, settings, {**os.environ, **settings.environment()})
    command = [sys.executable, "-m", "dagster", *arguments]
    _replace_process(command, {**environment, **spark_environment(settings)})


def _become(name: str) -> NoReturn:
    """Signals and exit codes are then Dagster's own, without us in between."""
    settings = attach(load_settings())
    ensure_dagster_login(settings)
    environment = {**os.environ, **settings.environment()}
    program = next(one for one in dagster_programs(settings, environment) if one.name == name)
    _replace_process([str(word) for word in program.command], dict(program.env))


def _replace_process(command: list[str], environment: dict[str, str]) -> NoReturn:
    os.execve(command[0], command, environment)  # noqa: S606  # no shell is wanted
