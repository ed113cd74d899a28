"""`clientmgr run …`: the daemons. The command line finds this group by its entry point, so that it need not know us."""

from typing import Annotated

import typer

from clientmgr.embedded.stack import attach
from clientmgr.settings import load_settings
from streaming import contact_deletion, push_token_status, republisher, writer
from streaming.daemon import Daemon, run_daemon
from streaming.push_token_status import TokenType

app = typer.Typer(
    help="Run a daemon in the foreground. SIGTERM and Ctrl-C let it finish what it has in hand.", no_args_is_help=True
)

BurstOption = Annotated[
    bool, typer.Option("--burst", help="Stop, with exit code 0, when there is nothing left to read.")
]


@app.command("writer")
def run_writer(burst: BurstOption = False) -> None:
    """Write device events (client-manager.writer) to the tenants' tables."""
    _run(writer.DAEMON, burst=burst)


@app.command("republisher")
def run_republisher(burst: BurstOption = False) -> None:
    """Try again what the writer could not write (client-manager.republisher), at most five times."""
    _run(republisher.DAEMON, burst=burst)


@app.command("push-token-status")
def run_push_token_status(
    token_type: Annotated[TokenType, typer.Option("--type", "-t", help="Whose verdicts to read.")] = TokenType.BOTH,
    burst: BurstOption = False,
) -> None:
    """Apply the providers' verdicts on push tokens."""
    _run(push_token_status.daemon(token_type), burst=burst)


@app.command("contact-deletion")
def run_contact_deletion(burst: BurstOption = False) -> None:
    """Delete the devices of deleted contacts (client-manager.contact-deletion)."""
    _run(contact_deletion.DAEMON, burst=burst)


def _run(daemon: Daemon, *, burst: bool) -> None:
    raise typer.Exit(run_daemon(daemon, attach(load_settings()), burst=burst))
