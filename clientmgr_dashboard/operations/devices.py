"""Devices: found by contact, client id or token, with when each part was set. Secrets are masked unless revealed."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.devices.explanation import explain, time_of
from clientmgr.devices.log_traces import LoggedTrace, logged_traces
from clientmgr.devices.lookup import StoredDevice
from clientmgr.devices.revealing import revealed
from clientmgr.devices.timeline import TimelineEntry, timeline
from clientmgr.devices.traces import DeviceTraces, KnownDevice
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    ContactNumber,
    CustomerNumber,
    NotFoundError,
    Page,
    PageNumber,
    PerPage,
    Text,
    api_get,
    api_post,
    paged,
    row_of,
)

MOST_DEVICES = 1_000
"""Of one contact, client id or token. Nobody real has more."""


class ContactRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    contact_id: ContactNumber
    page: PageNumber = 1
    per_page: PerPage = 50


class ClientRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    client_id: Text
    page: PageNumber = 1
    per_page: PerPage = 50


class TokenRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A token belongs in no URL: addresses are kept in histories and logs."""

    customer_id: CustomerNumber
    token: Text
    page: PageNumber = 1
    per_page: PerPage = 50


class DeviceRequest(Struct, frozen=True, rename="camel"):
    customer_id: CustomerNumber
    application_code: Text
    client_id: Text


class RevealRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    customer_id: CustomerNumber
    application_code: Text
    client_id: Text


class DeviceRow(Struct, frozen=True, rename="camel"):
    """A device in a list."""

    application_code: str
    client_id: str
    contact_id: int | None
    platform: str | None
    provider: str
    application_version: str | None
    device_model: str | None
    language: str | None
    push_enabled: bool | None
    push_token_status: str
    push_token: str | None
    """Masked."""
    last_seen_at: datetime | None


class DevicePart(Struct, frozen=True, rename="camel"):
    """Something that is known of a device, and when it was set."""

    name: str
    value: Any
    set_at: datetime | None


class ContactLink(Struct, frozen=True, rename="camel"):
    contact_id: int | None
    """Null: the contact is deleted."""
    linked_at: datetime | None
    contact_deleted_at: datetime | None


class DeviceDetail(Struct, frozen=True, rename="camel"):
    """All that is known of a device; also what is left of a deleted one."""

    customer_id: int
    application_code: str
    client_id: str
    exists: bool
    contact_id: int | None
    is_web: bool
    is_revealed: bool
    parts: list[DevicePart]
    links: list[ContactLink]
    notes: list[str]
    """Why it is so, in sentences."""
    timeline: list[TimelineEntry]
    """What happened to it, the newest first: as far as that is kept."""


async def find_by_contact(context: Context, _visitor: Visitor, request: ContactRequest) -> Page[DeviceRow]:
    return await _find(
        context, request, lambda found: found.lookup.by_contact(request.contact_id, limit=MOST_DEVICES + 1)
    )


async def find_by_client(context: Context, _visitor: Visitor, request: ClientRequest) -> Page[DeviceRow]:
    return await _find(
        context, request, lambda found: found.lookup.by_client(request.client_id, limit=MOST_DEVICES + 1)
    )


async def find_by_token(context: Context, _visitor: Visitor, request: TokenRequest) -> Page[DeviceRow]:
    return await _find(context, request, lambda found: found.by_token(request.token, limit=MOST_DEVICES + 1))


async def show_device(context: Context, _visitor: Visitor, request: DeviceRequest) -> DeviceDetail:
    known, logged = await asyncio.gather(context.read(_known, context, request), context.read(_logged, request))
    return _detail(request.customer_id, known, logged, reveal=False)


async def reveal_device(context: Context, visitor: Visitor, request: RevealRequest) -> DeviceDetail:
    """With its secrets. The audit log records who sees them before they are shown."""
    known, logged = await asyncio.gather(context.read(_known, context, request), context.read(_logged, request))
    device = known.device
    if device is None:
        raise NotFoundError(f"device {request.client_id} is deleted: there is nothing to reveal")
    await context.record(revealed(CustomerId(request.customer_id), device, actor=visitor.actor, command="dashboard"))
    return _detail(request.customer_id, known, logged, reveal=True)


async def _find(
    context: Context,
    request: ContactRequest | ClientRequest | TokenRequest,
    find: Callable[[DeviceTraces], list[StoredDevice]],
) -> Page[DeviceRow]:
    """`find`: one more than the most, if there are so many."""

    def read(connection: Connection[Any]) -> list[StoredDevice]:
        return find(_traces(connection, context, request.customer_id))

    found = await context.read(read)
    rows = [_row(device.masked()) for device in found[:MOST_DEVICES]]
    page = paged(rows, request.page, request.per_page)
    return msgspec.structs.replace(page, is_at_least=len(found) > MOST_DEVICES)


def _traces(connection: Connection[Any], context: Context, customer_id: int) -> DeviceTraces:
    return DeviceTraces(connection, CustomerId(customer_id), KeyedHashes.from_settings(context.settings))


def _known(connection: Connection[Any], context: Context, request: DeviceRequest | RevealRequest) -> KnownDevice:
    traces = _traces(connection, context, request.customer_id)
    found = traces.everything(request.client_id, request.application_code)
    if not found:
        raise NotFoundError(
            f"customer {request.customer_id} has no device {request.client_id} in application "
            f"{request.application_code}, and no trace of a deleted one"
        )
    return found[0]


def _logged(connection: Connection[Any], request: DeviceRequest | RevealRequest) -> list[LoggedTrace]:
    customer_id = CustomerId(request.customer_id)
    return logged_traces(connection, customer_id, request.application_code, request.client_id)


def _row(device: StoredDevice) -> DeviceRow:
    token = device.push_token
    if token is None and device.web_push is not None:
        token = device.web_push["endpoint"]
    return row_of(DeviceRow, device, push_token=token)


def _detail(customer_id: int, known: KnownDevice, logged: Sequence[LoggedTrace], *, reveal: bool) -> DeviceDetail:
    device = known.device
    if device is not None and not reveal:
        device = device.masked()
    return row_of(
        DeviceDetail,
        known,
        customer_id=customer_id,
        exists=device is not None,
        contact_id=None if device is None else device.contact_id,
        is_web=device is not None and (device.provider == "vapid" or device.platform == "web"),
        is_revealed=reveal,
        parts=[] if device is None else _parts(device),
        links=[
            ContactLink(link.contact_id, time_of(link.linked_version), time_of(link.contact_deleted_version))
            for link in known.links
        ],
        notes=explain(known),
        timeline=timeline(known, logged),
    )


def _parts(device: StoredDevice) -> list[DevicePart]:
    parts = [
        DevicePart(name, getattr(device, name), time_of(device.info_versions.get(name)))
        for name in INFO_FIELDS
        if name in device.info_versions
    ]
    status_version = device.push_token_status_version or device.push_token_version
    return [
        *parts,
        DevicePart("contact_id", device.contact_id, time_of(device.contact_version)),
        DevicePart("push_token", device.push_token, time_of(device.push_token_version)),
        DevicePart("push_token_kind", device.push_token_kind, time_of(device.push_token_version)),
        DevicePart("push_token_status", device.push_token_status, time_of(status_version)),
        *([DevicePart("web_push", device.web_push, time_of(device.push_token_version))] if device.web_push else []),
        DevicePart("provider", device.provider, None),
        DevicePart("last_seen", None, device.last_seen_at),
        *([DevicePart("orphaned_since", None, device.orphaned_since)] if device.orphaned_since else []),
        DevicePart("row_created", None, device.created_at),
        DevicePart("row_updated", None, device.updated_at),
    ]


OPERATIONS = (
    api_get("/devices/by-contact", "The devices of a contact.", find_by_contact),
    api_get("/devices/by-client", "The devices with a client id, one of each application.", find_by_client),
    api_post(
        "/devices/by-token",
        "The devices that hold a push token or web push endpoint.",
        find_by_token,
        needs=Role.VIEWER,
    ),
    api_get("/devices/one", "All that is known of a device.", show_device),
    api_post("/devices/reveal", "A device with its secrets. Recorded in the audit log.", reveal_device),
)
