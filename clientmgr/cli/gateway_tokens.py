"""`clientmgr pubsub-gateway token`: makes a token for a client of the gateway, and its entry in the identities file."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from clientmgr.base.customer_ids import parse_customer_id

PATTERN = "* stands for any characters. Repeat it for more."


def register(app: typer.Typer) -> None:
    app.command()(token)


def token(
    name: Annotated[str, typer.Argument(help="Who gets it. The audit log says pubsub:NAME.", show_default=False)],
    *,
    tenants: Annotated[
        str, typer.Option(help="Customers whose messages it may publish and read: ids with commas, or all.")
    ],
    publish: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help=f"May publish there, but no account deletions. {PATTERN}")
    ] = None,
    subscribe: Annotated[
        list[str] | None, typer.Option(metavar="SUBSCRIPTION", help=f"May read and acknowledge. {PATTERN}")
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help=f"May make subscriptions on these topics. {PATTERN}")
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"May make, change, delete and seek topics and subscriptions of this name. {PATTERN}"
        ),
    ] = None,
    account_deletion: Annotated[
        bool, typer.Option("--account-deletion", help="May ask for the deletion of accounts.")
    ] = False,
    days: Annotated[int, typer.Option(min=0, help="Days until the token expires. 0: never.")] = 365,
) -> None:
    """Make a token. It is printed once, on standard error; the entry for PUBSUB_GATEWAY_IDENTITIES on standard output.

    The gateway reads the file again when it changes. Who takes an entry out ends its open streams.

    clientmgr pubsub-gateway token crm --publish 'client-manager.writer' --tenants 1001 >> identities.toml
    """
    from clientmgr.broker.gateway.identities import check_name, digest_of, new_token

    check_name(name)
    of_all = tenants == "all"
    customers = [] if of_all else [parse_customer_id(one.strip(), field="--tenants") for one in tenants.split(",")]
    made = new_token()
    expires = f", expires = {datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" if days else ""
    entry = [
        f"[{json.dumps(name)}]",
        f'tokens = [{{ sha256 = "{digest_of(made)}"{expires} }}]',
        f"publish = {json.dumps(publish or [])}",
        f"subscribe = {json.dumps(subscribe or [])}",
        f"attach = {json.dumps(attach or [])}",
        f"admin = {json.dumps(admin or [])}",
        f"account_deletion = {json.dumps(account_deletion)}",
        f"tenants = {json.dumps('all' if of_all else customers)}",
    ]
    sys.stdout.write("\n".join(entry) + "\n")
    sys.stdout.flush()
    sys.stderr.write(f"{made}\n")
