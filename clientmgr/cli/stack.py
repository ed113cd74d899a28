"""`clientmgr up` and `clientmgr demo`: the whole system in the foreground."""

import sys
from collections.abc import Callable

import typer
from rich.panel import Panel

from clientmgr.cli.output import console, log_failures
from clientmgr.cli.services import gateway_address
from clientmgr.demo import DEMO_CUSTOMERS, fill_with_demo_data
from clientmgr.logs import configure_logging, logs_as_json
from clientmgr.processes.system import run_system, stop_on_signals, ui_url
from clientmgr.settings import Settings, hide_password, load_settings


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(demo)


def up() -> None:
    """Run everything in the foreground, with embedded servers where no URL is set. Ctrl-C stops it."""
    _run(lambda settings: None, "Client Manager is up")


def demo() -> None:
    """Run everything as `up` does, with demo data: three tenants with devices. Ctrl-C stops it; the data stays."""
    _run(fill_with_demo_data, f"Client Manager demo is up: tenants {', '.join(map(str, DEMO_CUSTOMERS))}")


def _run(prepare: Callable[[Settings], None], title: str) -> None:
    settings = load_settings()
    configure_logging(settings)
    if logs_as_json(settings, sys.stderr):
        log_failures()

    def on_ready(ready: Settings) -> None:
        prepare(ready)
        console.print(Panel.fit(_where_to_look(ready), title=title, border_style="green"))

    with stop_on_signals() as stop:
        run_system(settings, on_ready, stop)


def _where_to_look(settings: Settings) -> str:
    ui = ui_url(settings)
    return "\n".join(
        [
            f"Dagster UI       {ui}",
            f"Lineage          {ui}/asset-groups",
            f"PostgreSQL       {hide_password(settings.database_url)}",
            f"Redis            {hide_password(settings.redis_url)}",
            f"Pub/Sub gateway  PUBSUB_EMULATOR_HOST={gateway_address(settings, settings.pubsub_gateway_port)}",
            f"Data, logs       {settings.data_dir.resolve()}",
            "",
            "In another terminal, in this folder:",
            "  .venv/bin/clientmgr tenants list",
            "  .venv/bin/clientmgr tenants activate 42",
            "  .venv/bin/clientmgr audit verify",
            "",
            "Ctrl-C stops everything.",
        ]
    )
