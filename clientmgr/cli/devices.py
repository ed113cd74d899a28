"""`clientmgr devices …`: what support people ask about devices. Secrets are masked; to reveal them is audited first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.base.wording import plural
from clientmgr.cli import device_import
from clientmgr.cli.device_export import EXPORTERS, opened_output
from clientmgr.cli.device_output import as_object, as_row, show_device
from clientmgr.cli.output import (
    JsonOption,
    RevealOption,
    actor,
    check_output,
    console,
    errors,
    open_database,
    print_json,
    progress_bar,
    show_rows,
)
from clientmgr.devices.imports.files import format_of
from clientmgr.devices.lookup import DeviceLookup, StoredDevice
from clientmgr.devices.revealing import revealed
from clientmgr.devices.traces import DeviceTraces
from clientmgr.erasure.contact_end import end_of_contact
from clientmgr.erasure.subject import Keys

app = typer.Typer(help="Devices: show one, find some, import and export them.", no_args_is_help=True)

CustomerOption = Annotated[str, typer.Option("--customer", "-c", help="The customer's id.", show_default=False)]


@app.command()
def show(
    customer: CustomerOption,
    client: Annotated[str, typer.Option(help="The device's client id.", show_default=False)],
    application: Annotated[str | None, typer.Option(help="Only in this application.")] = None,
    *,
    reveal: RevealOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything known of a device, each part with the time it was set; also what is left of a deleted one."""
    customer_id = parse_customer_id(customer, field="--customer")
    database, settings = open_database()
    with database.connect(Role.READER) as connection:
        traces = DeviceTraces(connection, customer_id, KeyedHashes.from_settings(settings))
        found = traces.everything(client, application)
    if not found:
        where = "" if application is None else f" in application {application}"
        raise ClientManagerError(f"customer {customer_id} has no device {client}{where}, and no trace of a deleted one")
    if reveal:
        _audit_reveal(database, settings, customer_id, "show", [known.device for known in found if known.device])
    if as_json:
        print_json([as_object(customer_id, known, reveal=reveal) for known in found])
        return
    for number, known in enumerate(found):
        if number:
            console.print()
        show_device(customer_id, known, reveal=reveal)


@app.command()
def find(
    customer: CustomerOption,
    *,
    contact: Annotated[str | None, typer.Option(help="Devices of this contact.")] = None,
    client: Annotated[str | None, typer.Option(help="Devices with this client id.")] = None,
    token: Annotated[
        str | None, typer.Option(help="The device that holds this push token or web push endpoint.")
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="Devices with this hardware id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    reveal: RevealOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find devices by contact, client id, push token or hardware id."""
    customer_id = parse_customer_id(customer, field="--customer")
    given = {"contact": contact, "client": client, "token": token, "hardware": hardware}
    if sum(value is not None for value in given.values()) != 1:
        raise InvalidInputError("--contact, --client, --token, --hardware", "one of them", "")
    contact_id = None if contact is None else parse_contact_id(contact)
    database, settings = open_database()
    empty = "no such device"
    with database.connect(Role.READER) as connection:
        lookup = DeviceLookup(connection, customer_id)
        traces = DeviceTraces(connection, customer_id, KeyedHashes.from_settings(settings))
        if contact_id is not None:
            found = lookup.by_contact(contact_id, limit=limit)
            if ended := end_of_contact(connection, customer_id, contact_id, Keys.from_settings(settings)):
                empty = f"no such device: {ended.sentence(contact_id)}"
        elif client is not None:
            found = lookup.by_client(client, limit=limit)
        elif token is not None:
            found = traces.by_token(token, limit=limit)
        else:
            found = lookup.by_hardware(str(hardware), limit=limit)
    if reveal:
        _audit_reveal(database, settings, customer_id, "find", found)
    shown = found if reveal else [device.masked() for device in found]
    columns = ["application_code", "client_id", "contact_id", "platform", "application_version", "language"]
    columns += ["push_token_status", "push_token", "last_seen_at"]
    show_rows([as_row(device) for device in shown], columns, as_json=as_json, empty=empty, wrapped={"push_token"})
    if len(found) == limit:
        errors.print(f"there may be more than these {limit}: --limit", highlight=False)


@app.command()
def export(
    customer: CustomerOption,
    *,
    form: Annotated[
        Literal["csv", "ndjson", "parquet"] | None,
        typer.Option("--format", help="The form of the output. Default: as the file's name says, else csv."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file. Default: standard output.")] = None,
    reveal: RevealOption = False,
) -> None:
    """Export all devices of a customer, as they are at this moment. A file appears when it is complete.

    With --reveal, `clientmgr devices import` reads it back.
    """
    customer_id = parse_customer_id(customer, field="--customer")
    if form is None:
        form = format_of(output, None) if output is not None and output.suffix else "csv"
    if output is not None:
        check_output(output)
    database, settings = open_database()
    with database.connect(Role.READER) as connection:
        lookup = DeviceLookup(connection, customer_id)
        if reveal:
            _audit(database, settings, [_export_entry(customer_id, form, "started")])
        columns, portions = lookup.export(reveal=reveal)
        exported = 0
        with (
            opened_output(output) as stream,
            EXPORTERS[form](stream, columns) as write,
            progress_bar("exporting", lookup.estimated_count() or None) as progress,
        ):
            for rows in portions:
                write(rows)
                exported += len(rows)
                progress.advance(progress.task_ids[0], len(rows))
    if reveal:
        _audit(database, settings, [_export_entry(customer_id, form, "done", exported)])
    errors.print(f"{plural(exported, 'device')} exported", highlight=False)


def parse_contact_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):
        raise InvalidInputError("--contact", "a positive integer", text)
    return int(text)


def _audit_reveal(
    database: Database, settings: Settings, customer_id: CustomerId, command: str, devices: Sequence[StoredDevice]
) -> None:
    """Record who is about to see which devices' secrets."""
    entries = [revealed(customer_id, device, actor=actor(), command=command) for device in devices]
    if entries:
        _audit(database, settings, entries)


def _export_entry(customer_id: CustomerId, form: str, outcome: str, rows: int | None = None) -> AuditEntry:
    details = {"command": "export", "format": form}
    return AuditEntry(customer_id, actor(), "device.reveal", outcome, rows_affected=rows, details=details)


def _audit(database: Database, settings: Settings, entries: Sequence[AuditEntry]) -> None:
    with database.connect(Role.WRITER) as connection:
        AuditLogger.from_settings(settings).append(connection, entries)


device_import.register(app)
