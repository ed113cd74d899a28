"""Items of the legacy store as the events that would have made them: an import goes by the rules of events. Pure.

An item is read as the device mapper reads it. Its events carry the item's own times: in any order with live events, and
however often it is imported, what is newer stays.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import FUTURE_TOLERANCE_MS, InvalidMessageError, is_identifier
from clientmgr.contracts.device_events import DecodedEvent, decode_event
from clientmgr.contracts.device_fields import INFO, Kind
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.devices.legacy.items import device_of

EVENT_ID: Final = "legacy-import"
OLDEST: Final = 1
"""The version of an item that has no time of its own: every event is newer."""
UNREADABLE: Final = "the item is not DynamoDB's JSON"
_ITEM: Final = msgspec.json.Decoder(dict[str, dict[str, Any]])


class UnnameableError(InvalidMessageError):
    """Under this key no device can have registered, and the mapper passes it over too."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as the scan left it."""

    device_key: str
    contact_id: str
    item: str


@dataclass(frozen=True, slots=True)
class ImportedDevice:
    """What an item says, as events and, if its token was found to be bad, a verdict."""

    events: tuple[DecodedEvent, ...]
    verdict: Verdict | None = None


def read_item(customer_id: CustomerId, stored: StoredItem, *, now_ms: int) -> ImportedDevice:
    """The item's events, or `InvalidMessageError` that names the field that can't be imported."""
    application_code, separator, client_id = stored.device_key.partition("#")
    contact_id = int(stored.contact_id) if stored.contact_id.isascii() and stored.contact_id.isdecimal() else 0
    if not (separator and is_identifier(application_code) and is_identifier(client_id) and 0 < contact_id < 2**63):
        raise UnnameableError("contactKey, deviceKey: expected a customer, a contact, an application and a client")
    try:
        device = device_of(contact_id, f"{application_code}#", _ITEM.decode(stored.item))
    except (msgspec.MsgspecError, ValueError, KeyError, AttributeError):
        raise InvalidMessageError(UNREADABLE) from None
    version = _version_of(device, now_ms)
    envelope = {
        "eventId": EVENT_ID,
        "customerId": customer_id,
        "applicationCode": application_code,
        "clientId": client_id,
        "occurredAt": version,
    }

    def event(event_type: str, payload: dict[str, Any], **other: Any) -> DecodedEvent:
        message = {**envelope, "eventType": event_type, "payload": payload, **other}
        return decode_event(msgspec.json.encode(message), now_ms=now_ms)

    events = [event("client.registered", _info(device)), event("client.contactLinked", {"contactId": contact_id})]
    seen = _past(device.last_seen_at, now_ms)
    if seen is not None and seen > version:
        events.append(event("client.updated", {}, occurredAt=seen))
    verdict = None
    if device.push_token_kind is not None:
        events.append(event("client.pushTokenSet", _token(device)))
        if device.push_token_status == "invalid":  # noqa: S105  # a status
            digest = token_digest(device.token_text or "")
            verdict = Verdict(application_code, client_id, digest, "invalid", version)
    return ImportedDevice(tuple(events), verdict)


def reason_of(error: InvalidMessageError) -> str:
    """Why an item was refused, without what it holds: the reason is kept, and the item is somebody's data."""
    return str(error).partition(", got")[0].partition(" (")[0][:200]


def _version_of(device: ContactDevice, now_ms: int) -> int:
    """When the older system last changed the item. A time of the future counts as none: it would freeze the device."""
    times: list[int | None] = [getattr(device, name) for name in ("updated_at", "last_seen_at", "created_at")]
    return next((past for time in times if (past := _past(time, now_ms)) is not None), OLDEST)


def _past(time: int | None, now_ms: int) -> int | None:
    return time if time is not None and 0 < time <= now_ms + FUTURE_TOLERANCE_MS else None


def _info(device: ContactDevice) -> dict[str, Any]:
    values = {field: getattr(device, field.name) for field in INFO}
    return {
        field.json_name: msgspec.Raw(value) if field.kind is Kind.JSON else value
        for field, value in values.items()
        if value is not None
    }


def _token(device: ContactDevice) -> dict[str, Any]:
    if device.web_push is not None:
        return {"kind": device.push_token_kind, "webPush": msgspec.Raw(device.web_push.encode())}
    return {"kind": device.push_token_kind, "pushToken": device.push_token}
