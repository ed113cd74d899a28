"""`clientmgr live …`: tokens for clients of the broadcast, and a demo fleet."""

import asyncio
import sys
from typing import Annotated

import typer

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.data_folder import attach
from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings

app = typer.Typer(help="Live positions: tokens for watchers, and a demo fleet.", no_args_is_help=True)


@app.command("token")
def print_token(
    events: Annotated[list[str], typer.Argument(metavar="EVENT...", help="Events that may be watched; * for all.")],
    hours: Annotated[float, typer.Option(min=0.0, help="How long the token is good for.")] = 24.0,
) -> None:
    """Print a signed token for the WebSocket: /live#token=… or /ws?token=…"""
    from clientmgr.live.tokens import make_token, token_key

    sys.stdout.write(make_token(token_key(load_settings()), events, hours * 3600) + "\n")


@app.command("fleet")
def run_fleet(
    devices: Annotated[int, typer.Option(min=1, max=100_000, help="How many move.")] = 60,
    rate: Annotated[float, typer.Option(min=0.01, help="Positions a second, of each device.")] = 1.0,
    orphans: Annotated[int, typer.Option(min=0, help="Devices besides, that take part in nothing.")] = 1,
) -> None:
    """Let a made-up fleet take part in made-up events and move, until Ctrl-C. It publishes to the telemetry stream."""
    from clientmgr.local.fleet import Fleet, move

    settings = attach(load_settings(), with_key=False)
    configure_logging(settings, process="fleet")

    async def main(stop: asyncio.Event) -> None:
        await move(settings, Fleet.of(devices, orphans=orphans), rate, stop)

    raise typer.Exit(run_until_stopped(main))
