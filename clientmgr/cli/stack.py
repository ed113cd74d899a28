"""`clientmgr up` and `clientmgr demo`: the whole system in the foreground."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.panel import Panel

from clientmgr.base.hiding import hide_password
from clientmgr.base.logs import configure_logging, logs_as_json
from clientmgr.base.settings import Settings, load_settings
from clientmgr.cli.output import console, errors, log_failures
from clientmgr.cli.services import gateway_address
from clientmgr.contracts import topics
from clientmgr.local.demo.scenario import (
    DEMO_CUSTOMERS,
    FLEET,
    MESSAGES,
    TRAFFIC,
    open_to_all,
    prepare,
)
from clientmgr.local.demo.story import SHOP, UNREACHED
from clientmgr.local.processes.system import run_system, stop_on_signals
from clientmgr.local.processes.terminal import quiet_terminal
from clientmgr.operations.dagster_addresses import ui_url
from clientmgr_dashboard.access.exposure import ensure_dagster_is_not_open_to_others, ensure_not_open_to_others

EXAMPLES = (
    f"devices find --customer {SHOP} --contact {UNREACHED}",
    f"device-mapper explain --customer {SHOP} --contact {UNREACHED}",
    "failures list --count",
    "tail sending-batch-push-fcm-dg00",
    "flippers list",
)


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(demo)


def up() -> None:
    """Run everything in the foreground, with embedded servers where no URL is set. Ctrl-C stops it."""
    with stop_on_signals() as stop, _log(_settings()) as (settings, show):
        run_system(settings, lambda ready: show(_panel("Client Manager is up", ready)), stop)


def demo() -> None:
    """Run everything as `up` does, with three tenants and devices that never rest. Ctrl-C stops it; the data stays."""
    from clientmgr.local.demo.nightly_jobs import NightlyJobsOnce  # no other command needs what it imports

    title = f"Client Manager demo is up: tenants {', '.join(map(str, DEMO_CUSTOMERS))}"
    with (
        stop_on_signals() as stop,
        _log(open_to_all(_settings())) as (settings, show),
        NightlyJobsOnce(settings, stop) as nightly_jobs,
    ):

        def before_programs(ready: Settings) -> None:
            prepare(ready)
            nightly_jobs.start_legacy_store()

        def on_ready(ready: Settings) -> None:
            show(_panel(title, ready, EXAMPLES))
            nightly_jobs.begin(ready)

        run_system(
            nightly_jobs.settings,
            on_ready,
            stop,
            prepare=before_programs,
            more=[TRAFFIC, MESSAGES, FLEET],
            environment=nightly_jobs.environment,
        )


def _settings() -> Settings:
    settings = load_settings()
    configure_logging(settings)
    # Before anything is started: each of them by itself would be started again and again.
    ensure_not_open_to_others(settings)
    ensure_dagster_is_not_open_to_others(settings)
    if logs_as_json(settings, sys.stderr):
        log_failures()
    return settings


@contextmanager
def _log(settings: Settings) -> Iterator[tuple[Settings, Callable[[Panel], None]]]:
    """Where the log goes. Gives the settings for all processes, and what shows the box."""
    if settings.log_format != "auto" or not (errors.is_terminal and console.is_terminal):
        yield settings, console.print
        return
    with quiet_terminal(settings, errors) as terminal:
        yield settings.model_copy(update={"log_format": "json"}), terminal.show


def _panel(title: str, settings: Settings, examples: Sequence[str] = ()) -> Panel:
    return Panel.fit(_where_to_look(settings, examples), title=title, border_style="green")


def _where_to_look(settings: Settings, examples: Sequence[str]) -> str:
    ui = ui_url(settings)
    # Other terminals do not know of a folder that only this one was told of.
    elsewhere = "data_dir" in settings.model_fields_set
    folder = f"DATA_DIR={shlex.quote(str(settings.data_dir.resolve()))} " if elsewhere else ""
    command = f"{folder}{_own_command()}"
    return "\n".join(
        [
            f"Dashboard        http://{settings.dashboard_host}:{settings.dashboard_port}",
            f"Dagster UI       {ui}",
            f"Lineage          {ui}/asset-groups",
            f"Live map         http://{settings.live_ws_host}:{settings.live_ws_port}/live",
            f"PostgreSQL       {hide_password(settings.database_url)}",
            f"Redis            {hide_password(settings.redis_url)}",
            f"Pub/Sub gateway  PUBSUB_EMULATOR_HOST={gateway_address(settings, settings.pubsub_gateway_port)}",
            f"Data, logs       {settings.data_dir.resolve()}",
            "",
            "In another terminal, in this folder:",
            *(
                f"  {command} {example}"
                for example in (
                    "tenants list",
                    "tenants activate 42",
                    "topics",
                    f"tail {topics.WRITER}",
                    *examples,
                    "audit verify",
                )
            ),
            "",
            "Ctrl-C stops everything.",
        ]
    )


def _own_command() -> str:
    """As it was called, from the folder that we are in."""
    called = Path(sys.argv[0])
    if called.name != "clientmgr":
        return f"{shlex.quote(sys.executable)} -m clientmgr"
    if not called.is_absolute() or not called.is_relative_to(Path.cwd()):
        return shlex.quote(str(called))
    return shlex.quote(str(called.relative_to(Path.cwd())))
