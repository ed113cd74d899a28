"""`clientmgr topics pause` and `resume`: keep everybody from reading as a subscription, and let it go on."""

from typing import Annotated

import typer

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Role
from clientmgr.broker import pauses
from clientmgr.cli.output import YesOption, actor, console, open_database

SubscriptionArgument = Annotated[str, typer.Argument(show_default=False)]


def register(app: typer.Typer) -> None:
    app.command()(pause)
    app.command()(resume)


def pause(
    subscription: SubscriptionArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; it is shown, and kept in the audit log.")],
    yes: YesOption = False,
) -> None:
    """Keep everybody from reading as a subscription, for all tenants, until it is resumed.

    A batch in hand is finished. All else waits in the log, which keeps it; retries lose none of their attempts.
    """
    database, settings = open_database()
    if not yes:
        typer.confirm(f"Pause {subscription} for all tenants?", abort=True, err=True)
    with database.connect(Role.WRITER, autocommit=True) as connection:
        changed = pauses.pause(
            connection, subscription, AuditLogger.from_settings(settings), reason=reason, actor=actor()
        )
    done = "is paused: clientmgr topics resume lets it go on" if changed else "was paused already"
    console.print(f"{subscription} {done}", markup=False, highlight=False, soft_wrap=True)


def resume(subscription: SubscriptionArgument) -> None:
    """Let a paused subscription go on. Its consumers begin at once."""
    database, settings = open_database()
    with database.connect(Role.WRITER, autocommit=True) as connection:
        changed = pauses.resume(connection, subscription, AuditLogger.from_settings(settings), actor=actor())
    console.print(f"{subscription} {'goes on' if changed else 'was not paused'}", markup=False, highlight=False)
