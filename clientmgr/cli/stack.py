"""`clientmgr up` and `clientmgr demo`: the whole system in the foreground."""

import shlex
import sys
from collections.abc import Sequence

import typer
from rich.panel import Panel

from clientmgr.base.hiding import hide_password
from clientmgr.base.logs import configure_logging, logs_as_json
from clientmgr.base.settings import Settings, load_settings
from clientmgr.cli.output import console, log_failures
from clientmgr.cli.services import gateway_address
from clientmgr.contracts import topics
from clientmgr.local.demo.scenario import (
    BUSY,
    DEMO_CUSTOMERS,
    FLEET,
    MESSAGES,
    TRAFFIC,
    activate_demo_customers,
    open_to_all,
    some_contact,
)
from clientmgr.local.processes.system import run_system, stop_on_signals
from clientmgr.operations.dagster_addresses import ui_url
from clientmgr_dashboard.access.exposure import ensure_dagster_is_not_open_to_others, ensure_not_open_to_others


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(demo)


def up() -> None:
    """Run everything in the foreground, with embedded servers where no URL is set. Ctrl-C stops it."""
    settings = _settings()
    with stop_on_signals() as stop:
        run_system(settings, lambda ready: _show_panel("Client Manager is up", ready), stop)


def demo() -> None:
    """Run everything as `up` does, with three tenants and devices that never rest. Ctrl-C stops it; the data stays."""
    from clientmgr.local.demo.nightly_jobs import NightlyJobsOnce  # no other command needs what it imports

    settings = open_to_all(_settings())
    title = f"Client Manager demo is up: tenants {', '.join(map(str, DEMO_CUSTOMERS))}"
    with stop_on_signals() as stop, NightlyJobsOnce(settings, stop) as nightly_jobs:

        def on_ready(ready: Settings) -> None:
            contact_id = some_contact(ready, stop)
            examples = [f"devices find --customer {BUSY} --contact {contact_id}"] if contact_id else []
            if contact_id:
                examples.append(f"device-mapper explain --customer {BUSY} --contact {contact_id}")
            examples += ["failures list --count", "tail sending-batch-push-fcm-dg00", "flippers list"]
            _show_panel(title, ready, examples)
            nightly_jobs.begin(ready)

        run_system(
            nightly_jobs.settings,
            on_ready,
            stop,
            prepare=activate_demo_customers,
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


def _show_panel(title: str, settings: Settings, examples: Sequence[str] = ()) -> None:
    console.print(Panel.fit(_where_to_look(settings, examples), title=title, border_style="green"))


def _where_to_look(settings: Settings, examples: Sequence[str]) -> str:
    ui = ui_url(settings)
    # Other terminals do not know of a folder that only this one was told of.
    elsewhere = "data_dir" in settings.model_fields_set
    command = f"{f'DATA_DIR={shlex.quote(str(settings.data_dir.resolve()))} ' if elsewhere else ''}.venv/bin/clientmgr"
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
