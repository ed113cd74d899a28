"""`clientmgr run …`: the daemons. The command line finds this group by its entry point, so that it need not know us.

A daemon is imported by the command that runs it: with its libraries it takes longer to import than most commands run.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clientmgr.base.data_folder import attach
from clientmgr.base.settings import load_settings

if TYPE_CHECKING:
    from streaming.runtime.daemon import Daemon

app = typer.Typer(
    help="Run a daemon in the foreground. SIGTERM and Ctrl-C let it finish what it has in hand.", no_args_is_help=True
)

BurstOption = Annotated[
    bool, typer.Option("--burst", help="Stop, with exit code 0, when there is nothing left to read.")
]


@app.command("writer")
def run_writer(burst: BurstOption = False) -> None:
    """Write device events (client-manager.writer) to the tenants' tables."""
    from streaming import writer

    _run(writer.DAEMON, burst=burst)


@app.command("republisher")
def run_republisher(burst: BurstOption = False) -> None:
    """Try again what the writer could not write (client-manager.republisher), at most five times."""
    from streaming import republisher

    _run(republisher.DAEMON, burst=burst)


@app.command("push-token-status")
def run_push_token_status(
    token_type: Annotated[
        Literal["push", "web", "both"], typer.Option("--type", "-t", help="Whose verdicts to read.")
    ] = "both",  # noqa: S107  # it names tokens, it is none
    burst: BurstOption = False,
) -> None:
    """Apply the providers' verdicts on push tokens."""
    from streaming import push_token_status

    _run(push_token_status.daemon(push_token_status.TokenType(token_type)), burst=burst)


@app.command("contact-deletion")
def run_contact_deletion(burst: BurstOption = False) -> None:
    """Delete the devices of deleted contacts (client-manager.contact-deletion)."""
    from streaming import contact_deletion

    _run(contact_deletion.DAEMON, burst=burst)


@app.command("telemetry-writer")
def run_telemetry_writer(burst: BurstOption = False) -> None:
    """Write every position of the telemetry stream to live.positions."""
    from streaming.live.telemetry import writer as telemetry

    raise typer.Exit(telemetry.run_telemetry_writer(attach(load_settings()), burst=burst))


@app.command("broadcast")
def run_broadcast() -> None:
    """Send positions from the telemetry stream to WebSocket subscribers; serve /live, /metrics and /healthz."""
    from streaming.live.broadcast import server

    raise typer.Exit(server.run_broadcast(attach(load_settings())))


@app.command("live")
def run_live() -> None:
    """Run broadcast and telemetry-writer in one process, stopped in that order."""
    from streaming.live import combined

    raise typer.Exit(combined.run_live(attach(load_settings())))


@app.command("dashboard")
def run_dashboard() -> None:
    """Serve the dashboard: what operators look at, and what they do about it. Loopback only unless users are set."""
    from clientmgr_dashboard import server

    raise typer.Exit(server.run_dashboard(attach(load_settings())))


@app.command("device-mapper")
def run_device_mapper(
    sending_type: Annotated[
        Literal["batch", "tx"], typer.Option("--type", "-t", help="Which traffic to map.", show_default=False)
    ],
    delivery_group: Annotated[str, typer.Option("--dg", help="Of which delivery group.")] = "dg00",
    burst: BurstOption = False,
) -> None:
    """Map personalised messages (sending-<batch|tx>-devicemapper-<dg>) to a message for each device."""
    from clientmgr.contracts.topics import DeviceMapperTopics
    from streaming.device_mapper.mapper import daemon

    _run(daemon(DeviceMapperTopics(sending_type, delivery_group)), burst=burst)


def _run(daemon: "Daemon", *, burst: bool) -> None:
    from streaming.runtime.daemon import run_daemon

    raise typer.Exit(run_daemon(daemon, attach(load_settings()), burst=burst))
