"""The programs that make up the system, as `up` runs them. Dagster is started as a program, never imported."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clientmgr.base.errors import SettingsError
from clientmgr.base.java import spark_environment
from clientmgr.base.private_files import ensure_private_folder
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.handing_out import handed_to, handed_to_all
from clientmgr.local.processes.dagster_home import write_dagster_home
from clientmgr.local.processes.shared_spark import shared_spark_programs, with_shared_spark
from clientmgr.local.processes.supervisor import (
    Program,
    forward_console_line,
    forward_line,
    forward_record_or_console_line,
)
from clientmgr.operations.code_server_socket import code_server_socket
from clientmgr.operations.dagster_addresses import dagster_database_url

ROLLBACK_S = 3.0
INTERRUPTED_RUNS_S = 15.0


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A command of our own command line that is to run for as long as the system does."""

    name: str
    arguments: tuple[str, ...]
    entries: tuple[DaemonEntry, ...]
    """What it is handed: what each of these names."""


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
    environment = {
        # A thread of glibc's takes memory of its own otherwise, and hardly ever gives it back.
        "MALLOC_ARENA_MAX": "2",
        **os.environ,
        **(environment or {}),
        **settings.environment(),
        "LOG_FORMAT": log_format,
    }
    commands = own_commands()
    own = [*sharing(commands), *enumerate(more, len(commands))]
    return [
        *shared_spark_programs(settings, environment),
        *dagster_programs(settings, environment),
        *(own_program(one, number, settings, environment) for number, one in own),
    ]


def own_commands() -> list[OwnCommand]:
    """Our own part of the system, each process by itself, in the order of its start and of its metrics' ports."""
    return [
        OwnCommand(process.name, process.arguments, (daemons.entry_of_process(process.name),))
        for process in daemons.started()
    ]


def sharing(commands: Iterable[OwnCommand]) -> list[tuple[int, OwnCommand]]:
    """Those that share a process as one `run` of several, in the place and with the number of the first of them."""
    found: dict[str, tuple[int, OwnCommand]] = {}
    for number, command in enumerate(commands):
        (entry,) = command.entries
        name = entry.shares or command.name
        if name in found:
            first, others = found[name]
            _run, *ours = command.arguments
            found[name] = first, OwnCommand(name, (*others.arguments, *ours), (*others.entries, entry))
        else:
            found[name] = number, replace(command, name=name)
    return list(found.values())


def own_program(command: OwnCommand, number: int, settings: Settings, environment: dict[str, str]) -> Program:
    """A process of ours. Where METRICS_PORT is set, it is the first one's port; each has the next of its number."""
    metrics_port = settings.metrics_port + number if settings.metrics_port else 0
    return Program(
        command.name,
        [sys.executable, "-m", "clientmgr", *command.arguments],
        {**handed_to_all(command.entries, environment), "METRICS_PORT": str(metrics_port)},
        # It drains for as long as it may, then rolls back: that takes a moment too.
        grace_seconds=settings.shutdown_timeout_s + ROLLBACK_S,
        forward=forward_line if environment["LOG_FORMAT"] == "json" else forward_console_line,
    )


def dagster_programs(settings: Settings, environment: dict[str, str]) -> list[Program]:
    """Dagster's code server, daemon and its UI behind our guard, on PostgreSQL, with a home below our data folder."""
    code_server, daemon, webserver = daemons.DAGSTER
    workspace = str(config_file("workspace.yaml"))
    # At its info level the daemon tells every five seconds that no sensor has news.
    level = "warning" if settings.log_level == "info" else settings.log_level
    patience_s, socket = settings.shutdown_timeout_s, str(code_server_socket(settings))
    return [
        Program(
            code_server.name,
            [
                *(sys.executable, "-m", "clientmgr_dagster.code_server", socket),
                *("--log-level", level, "--patience", str(patience_s)),
            ],
            {**dagster_environment(code_server, settings, environment), **spark_environment(settings)},
            # It waits for the runs under way, then interrupts them: they need a moment to say that they failed.
            grace_seconds=patience_s + INTERRUPTED_RUNS_S,
        ),
        Program(
            daemon.name,
            [
                *(sys.executable, "-m", "clientmgr_dagster.code_server.awaited", socket),
                *(sys.executable, "-m", "clientmgr_dagster.daemon", workspace, "--log-level", level),
            ],
            dagster_environment(daemon, settings, environment),
            grace_seconds=settings.shutdown_timeout_s,
        ),
        Program(
            webserver.name,
            [sys.executable, "-m", "clientmgr_dashboard.dagster_ui", workspace],
            dagster_environment(webserver, settings, environment),
            grace_seconds=settings.shutdown_timeout_s + ROLLBACK_S,
            forward=forward_line if environment.get("LOG_FORMAT") == "json" else forward_record_or_console_line,
        ),
    ]


def dagster_environment(entry: DaemonEntry, settings: Settings, environment: dict[str, str]) -> dict[str, str]:
    """What a program of Dagster's is started with. Makes its home."""
    ensure_private_folder(settings.data_dir)
    home = settings.data_dir.resolve() / "dagster"
    write_dagster_home(home, config_file("dagster.yaml"))
    return {
        **handed_to(entry, environment),
        "DAGSTER_HOME": str(home),
        "DAGSTER_AUTOMATION": "stopped" if settings.dagster_automation == "stopped" else "running",
        "DAGSTER_POSTGRES_URL": dagster_database_url(settings),
        "DAGSTER_ARTIFACTS_DIR": str(home),
        # Ten times cheaper materialisation events.
        "DAGSTER_EVENT_BATCH_SIZE": "500",
        # One event that names a run's tenants, instead of one for each: they would be most of the log. The webserver
        # creates the runs that people launch. These are planned by partition: the UI shows that as in progress.
        **({} if entry.name == "dagster-webserver" else {"DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS": "1"}),
        "DAGSTER_CODE_SERVER_SOCKET": str(code_server_socket(settings)),
        "PYTHONUNBUFFERED": "1",
    }


def config_file(name: str) -> Path:
    """`workspace.yaml` or `dagster.yaml`: at the checkout's root, or inside the installed package."""
    package = Path(__file__).resolve().parents[2]
    for candidate in (package / "_config" / name, package.parent / name):
        if candidate.is_file():
            return candidate
    raise SettingsError(f"{name} is missing: looked in {package / '_config'} and {package.parent}")
