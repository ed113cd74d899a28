"""`clientmgr pubsub-gateway` and `clientmgr bridge`: services in the foreground, until Ctrl-C or SIGTERM.

The registry (clientmgr/contracts/daemons.py) describes them like all other daemons. Their commands are written here by
hand because they take arguments of their own.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.data_folder import attach
from clientmgr.base.database import Database
from clientmgr.base.logs import configure_logging, get_logger, logs_as_json
from clientmgr.base.metrics_server import serve_metrics
from clientmgr.base.settings import Settings, load_settings
from clientmgr.cli import gateway_tokens
from clientmgr.cli.output import log_failures
from clientmgr.contracts import daemons
from clientmgr.operations.heartbeats import beating

log = get_logger(__name__)

MAX_PORT = 65_535
# A service that listens on every address is reached at the machine's own.
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


def register(app: typer.Typer) -> None:
    gateway = typer.Typer()
    gateway.callback(invoke_without_command=True)(pubsub_gateway)
    gateway_tokens.register(gateway)
    app.add_typer(gateway, name="pubsub-gateway")
    app.command()(bridge)


def pubsub_gateway(
    context: typer.Context,
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: PUBSUB_GATEWAY_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 is a free one. Default: PUBSUB_GATEWAY_PORT.")
    ] = None,
    host_port: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Both at once, as Google's emulator takes them.")
    ] = None,
    emulator: Annotated[
        bool,
        typer.Option(
            "--emulator",
            help="For tests: bring a database along, in a temporary folder that is removed at the end. Asks nobody for "
            "credentials, and so listens on this machine only.",
        ),
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="With --emulator: keep the data in this folder.", file_okay=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print where it listens; the log says it too.")] = False,
) -> None:
    """Speak Google's Pub/Sub protocol on the PostgreSQL log, for any Pub/Sub client. Ctrl-C stops it.

    In place of Google's emulator, with nothing else to install or to start:

    clientmgr pubsub-gateway --emulator --port 8085
    """
    if context.invoked_subcommand is not None:
        return
    if host_port is not None:
        if host is not None or port is not None:
            raise typer.BadParameter("say where to listen either by --host-port or by --host and --port")
        host, port = _host_and_port(host_port)
    if data_dir is not None and not emulator:
        raise typer.BadParameter("--data-dir is for --emulator; otherwise the data is where DATABASE_URL says")
    where = {"pubsub_gateway_host": host, "pubsub_gateway_port": port}
    raise typer.Exit(_emulate(where, data_dir, quiet=quiet) if emulator else _run_gateway(where, quiet=quiet))


def _run_gateway(where: dict[str, Any], *, quiet: bool) -> int:
    settings = _settings("pubsub-gateway", **where)

    with beating(settings, "pubsub-gateway"):
        # gRPC does its own I/O: measured, uvloop gains nothing.
        return run_until_stopped(lambda stop: _serve_gateway(settings, stop, quiet=quiet), use_uvloop=False)


def _emulate(where: dict[str, Any], data_dir: Path | None, *, quiet: bool) -> int:
    from clientmgr.local.emulator import emulator_database, emulator_settings

    settings = emulator_settings(**_given(where))
    configure_logging(settings, process="pubsub-gateway")

    async def main(stop: asyncio.Event) -> None:
        # Nothing else runs in this loop yet. A signal meanwhile is kept: the gateway stops as soon as it is there.
        with emulator_database(settings, data_dir) as ready:
            await _serve_gateway(ready, stop, quiet=quiet)

    return run_until_stopped(main, use_uvloop=False)


async def _serve_gateway(settings: Settings, stop: asyncio.Event, *, quiet: bool) -> None:
    # gRPC is slow to import: other commands need not wait for it.
    from clientmgr.broker.gateway.server import serve

    # Its gauges describe the whole system. Imported by another process, they would stay at 0 and say that all is well.
    from clientmgr.operations.maintenance import run_maintenance

    database = Database.from_settings(settings)

    def on_ready(chosen_port: int) -> None:
        if not quiet:
            setting = "GATEWAY_ADDRESS" if settings.pubsub_gateway_tls_certificate else "EMULATOR_HOST"
            sys.stdout.write(f"export PUBSUB_{setting}={gateway_address(settings, chosen_port)}\n")
            sys.stdout.flush()

    async with serve_metrics(settings):
        # The gateway runs wherever the system does: it looks after the log as a whole.
        maintenance = asyncio.create_task(run_maintenance(settings, database))
        try:
            await serve(settings, database, stop, on_ready=on_ready)
        finally:
            maintenance.cancel()
            await asyncio.gather(maintenance, return_exceptions=True)


def bridge(
    subscriptions: Annotated[
        list[str],
        typer.Argument(metavar="SUBSCRIPTION[=TOPIC]...", help="What to copy, and where to if not by its name."),
    ],
    burst: Annotated[bool, typer.Option("--burst", help="Stop when nothing is left to copy.")] = False,
) -> None:
    """Copy Pub/Sub subscriptions into topics of the PostgreSQL log, each message once. Ctrl-C stops it."""
    settings = _settings("bridge")
    database = Database.from_settings(settings)
    # Google's client is slow to import: other commands need not wait for it.
    from clientmgr.broker.bridge import parse_routes, run

    routes = parse_routes(subscriptions)

    async def main(stop: asyncio.Event) -> None:
        async with serve_metrics(settings):
            log.info("copying", routes=routes)
            stats = await run(settings, database, stop, routes=routes, burst=burst)
        for subscription, topic in routes.items():
            log.info(
                "copied",
                subscription=subscription,
                topic=topic,
                messages=stats.copied.get(subscription, 0),
                seen_before=stats.seen_before.get(subscription, 0),
            )

    with beating(settings, "bridge"):
        code = run_until_stopped(main, use_uvloop=False)
    raise typer.Exit(code)


def gateway_address(settings: Settings, port: int) -> str:
    """What clients on this machine set PUBSUB_EMULATOR_HOST to."""
    host = settings.pubsub_gateway_host
    return f"{EVERY_ADDRESS.get(host, host)}:{port}"


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise typer.BadParameter(f"expected HOST:PORT or :PORT, got {text!r}", param_hint="--host-port")
    return host or "127.0.0.1", int(port)


def _given(overrides: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in overrides.items() if value is not None}


def _settings(process: str, **overrides: Any) -> Settings:
    """The settings of a service, with its options before all else. From here on its failures go to its log."""
    settings = attach(
        load_settings(**_given(overrides)), with_key="AUDIT_HASH_KEY" in daemons.entry_of_process(process).settings
    )
    configure_logging(settings, process=process)
    if logs_as_json(settings, sys.stderr):
        log_failures()
    return settings
