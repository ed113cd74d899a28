"""The programs that make up the system, as `up` runs them. Dagster is started as a program, never imported."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clientmgr.base.errors import SettingsError
from clientmgr.base.java import spark_environment
from clientmgr.base.private_files import ensure_private_folder
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.handing_out import handed_to
from clientmgr.local.processes.shared_spark import shared_spark_programs, with_shared_spark
from clientmgr.local.processes.supervisor import (
    Program,
    forward_console_line,
    forward_line,
    forward_record_or_console_line,
)
from clientmgr.operations.dagster_addresses import dagster_database_url

ROLLBACK_S = 3.0


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A command of our own command line that is to run for as long as the system does."""

    name: str
    arguments: tuple[str, ...]
    entry: DaemonEntry
    """What it is handed."""


def all_programs(
    settings: Settings,
    *,
    log_format: str,
    more: Sequence[OwnCommand] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Program]:
    """All programs besides the servers, in the order of their start, each with what its entry names.

    `environment` goes before ours.
    """
    settings = with_shared_spark(settings)
    environment = {**os.environ, **(environment or {}), **settings.environment(), "LOG_FORMAT": log_format}
    own = [*own_commands(), *more]
    return [
        *shared_spark_programs(settings, environment),
        *dagster_programs(settings, environment),
        *(own_program(command, number, settings, environment) for number, command in enumerate(own)),
    ]


def own_commands() -> list[OwnCommand]:
    """Our own part of the system, in the order of its start and of its metrics' ports."""
    return [
        OwnCommand(process.name, process.arguments, daemons.entry_of_process(process.name))
        for process in daemons.started()
    ]


def own_program(command: OwnCommand, number: int, settings: Settings, environment: dict[str, str]) -> Program:
    """A process of ours. Where METRICS_PORT is set, it is the first one's port; each has the next."""
    metrics_port = settings.metrics_port + number if settings.metrics_port else 0
    return Program(
        command.name,
        [sys.executable, "-m", "clientmgr", *command.arguments],
        {**handed_to(command.entry, environment), "METRICS_PORT": str(metrics_port)},
        # It drains for as long as it may, then rolls back: that takes a moment too.
        grace_seconds=settings.shutdown_timeout_s + ROLLBACK_S,
        forward=forward_line if environment["LOG_FORMAT"] == "json" else forward_console_line,
    )


def dagster_programs(settings: Settings, environment: dict[str, str]) -> list[Program]:
    """Dagster's daemon and its UI behind our guard, on PostgreSQL storage, with a home below our data folder."""
    daemon, webserver = daemons.DAGSTER
    workspace = str(config_file("workspace.yaml"))
    # At its info level the daemon tells every five seconds that no sensor has news.
    level = "warning" if settings.log_level == "info" else settings.log_level
    log_options = ["--log-format", "json", "--log-level", level, "--code-server-log-level", level]
    return [
        Program(
            daemon.name,
            [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace, *log_options],
            dagster_environment(daemon, settings, environment),
            grace_seconds=settings.shutdown_timeout_s,
        ),
        Program(
            webserver.name,
            [sys.executable, "-m", "clientmgr_dashboard.dagster_ui", workspace],
            dagster_environment(webserver, settings, environment),
            grace_seconds=settings.shutdown_timeout_s + ROLLBACK_S,
            # Its code server's lines come with its own, as JSON in any case.
            forward=forward_line if environment.get("LOG_FORMAT") == "json" else forward_record_or_console_line,
        ),
    ]


def dagster_environment(entry: DaemonEntry, settings: Settings, environment: dict[str, str]) -> dict[str, str]:
    """What a program of Dagster's is started with. Makes its home, with our dagster.yaml in it."""
    ensure_private_folder(settings.data_dir)
    home = settings.data_dir.resolve() / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(config_file("dagster.yaml").read_text())
    return {
        **handed_to(entry, environment),
        **spark_environment(settings),
        "DAGSTER_HOME": str(home),
        "DAGSTER_POSTGRES_URL": dagster_database_url(settings),
        "DAGSTER_ARTIFACTS_DIR": str(home),
        # Ten times cheaper materialisation events.
        "DAGSTER_EVENT_BATCH_SIZE": "500",
        # `dagster api grpc --log-format`, which the daemon and the webserver do not pass on to their code servers.
        "DAGSTER_CLI_API_GRPC_LOG_FORMAT": "json",
        "PYTHONUNBUFFERED": "1",
    }


def config_file(name: str) -> Path:
    """`workspace.yaml` or `dagster.yaml`: at the checkout's root, or inside the installed package."""
    package = Path(__file__).resolve().parents[2]
    for candidate in (package / "_config" / name, package.parent / name):
        if candidate.is_file():
            return candidate
    raise SettingsError(f"{name} is missing: looked in {package / '_config'} and {package.parent}")
