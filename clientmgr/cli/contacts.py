"""`clientmgr contacts …`: erase a contact, hand out what is kept about it, prove that nothing is left."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.broker.factory import open_broker
from clientmgr.cli.device_export import opened_output
from clientmgr.cli.devices import parse_contact_id
from clientmgr.cli.output import (
    JsonOption,
    RevealOption,
    YesOption,
    actor,
    console,
    errors,
    open_database,
    print_json,
)
from clientmgr.cli.proof_output import (
    ForceOption,
    OutputOption,
    SearchOption,
    chosen_file,
    chosen_texts,
    hand_out,
    open_stores,
    stopped_by_signals,
    watched,
)
from clientmgr.erasure.proof import prove_contact
from clientmgr.erasure.requests import Requested, erased_at, request_erasure, wait_until_erased
from clientmgr.erasure.subject_access import export_contact

app = typer.Typer(help="Contacts: erase one, export what is kept, prove that nothing is left.", no_args_is_help=True)

CustomerOption = Annotated[str, typer.Option("--customer", "-c", help="The customer's id.", show_default=False)]
ContactOption = Annotated[str, typer.Option("--contact", help="The contact's id.", show_default=False)]


@app.command()
def erase(
    customer: CustomerOption,
    contact: ContactOption,
    *,
    deleted_at: Annotated[
        str | None, typer.Option(help="When the customer deleted it, in ISO 8601. Default: now.", metavar="TIME")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its devices are deleted.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait at most.")] = 60.0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Publish the deletion of a contact: its devices go at once, and all else within ERASURE_HOURS."""
    customer_id, contact_id = _contact(customer, contact)
    moment = None if deleted_at is None else _time(deleted_at)
    database, settings = open_database()
    if not yes:
        question = f"Erase contact {contact_id} of customer {customer_id} with its devices?"
        typer.confirm(question, abort=True, err=True)

    async def publish() -> Requested:
        async with open_broker(settings, database) as broker:
            return await request_erasure(
                broker, database, settings, customer_id, contact_id, actor=actor(), deleted_at=moment
            )

    requested = asyncio.run(publish())
    done = erased_at(database, settings, requested)
    if wait and done is None:
        done = wait_until_erased(database, settings, requested, timeout_s=timeout)
    if as_json:
        print_json(
            {
                "customer_id": customer_id,
                "contact_id": contact_id,
                "deleted_at": requested.deleted_at,
                "published": requested.is_published,
                "erased_at": done,
            }
        )
    elif not requested.is_published:
        console.print(f"contact {contact_id} was already deleted as of that time", highlight=False)
    else:
        console.print(f"the deletion of contact {contact_id} is published", highlight=False)
    if wait and done is None:
        raise ClientManagerError(
            f"no worker has carried the deletion out within {timeout:g} s: does `clientmgr run contact-deletion` run?"
        )
    if not as_json and done is not None:
        console.print(f"its devices are deleted since {done:%Y-%m-%d %H:%M:%S} UTC", highlight=False)
        console.print(
            f"messages that name it are erased within {settings.erasure_hours:g} h; "
            f"then: clientmgr contacts prove --customer {customer_id} --contact {contact_id}",
            highlight=False,
        )


@app.command()
def export(
    customer: CustomerOption,
    contact: ContactOption,
    *,
    output: OutputOption = None,
    force: ForceOption = False,
    reveal: RevealOption = False,
) -> None:
    """Write everything that is kept about a contact as one JSON document. This is recorded in the audit log."""
    customer_id, contact_id = _contact(customer, contact)
    stores = open_stores()
    file = chosen_file(output, force=force)
    with stopped_by_signals(), opened_output(file) as stream:
        count = export_contact(
            stores, customer_id, contact_id, stream.write, actor=actor(), reveal=reveal, watch=watched()
        )
    errors.print(f"{count} things exported" + ("" if file is None else f" to {file}"), highlight=False, markup=False)


@app.command()
def prove(
    customer: CustomerOption,
    contact: ContactOption,
    *,
    search: SearchOption = None,
    output: OutputOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look into every place for what is left of a contact. Exit code 0: nothing; 1: something, or it can't be said.

    The report is signed with the audit key; `clientmgr audit check-proof FILE` checks it later.
    """
    customer_id, contact_id = _contact(customer, contact)
    stores = open_stores()
    file = chosen_file(output, force=force)
    with stopped_by_signals():
        report = prove_contact(
            stores, customer_id, contact_id, actor=actor(), texts=chosen_texts(search), watch=watched()
        )
    hand_out(report, file, as_json=as_json or str(output) == "-")


def _contact(customer: str, contact: str) -> tuple[CustomerId, int]:
    return parse_customer_id(customer, field="--customer"), parse_contact_id(contact)


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError("--deleted-at", "a time in ISO 8601, like 2026-11-17T10:00:00Z", text) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
