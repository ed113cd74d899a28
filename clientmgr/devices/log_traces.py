"""What the log still has about a device: its events, verdicts, what was sent to it and why not. For people who ask.

No index knows devices: of each topic the tenant's newest messages are looked through. No payload leaves this module,
because it may hold a token: only ids, times and names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.masking import masked_words
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts import topics

_QUERIES = named_queries("broker/queries/about_device.sql")

LOOK_AT: Final = 5000
"""Messages of a tenant's partition, of each topic."""
MOST: Final = 200
_TOPICS: Final = (
    topics.WRITER,
    topics.WRITER_ERRORS,
    topics.PUSH_TOKEN_STATUS,
    topics.WEB_PUSH_TOKEN_STATUS,
    topics.NOT_SENT,
)


@dataclass(frozen=True, slots=True)
class LoggedTrace:
    """A message that names the device."""

    topic: str
    offset: int
    published_at: datetime
    id: str
    """Its eventId, outMessageId or messageId."""
    what: str
    """The event's type, or `sent`, `not sent`, `verdict`, `failed`."""
    detail: str
    occurred_ms: int | None
    """When it happened, if the message says so."""


def logged_traces(
    connection: Connection[Any], customer_id: CustomerId, application_code: str, client_id: str
) -> list[LoggedTrace]:
    """The newest first."""
    wanted = {
        "tenant": str(customer_id),
        "topics": list(_TOPICS),
        "pattern": topics.PROVIDER_TOPIC,
        "needle": json.dumps(client_id, ensure_ascii=False).encode(),
        "look_at": LOOK_AT,
        "limit": MOST,
    }
    found = []
    for topic, offset, published_at, data, attributes in connection.execute(_QUERIES["about_device"], wanted):
        try:
            body = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        # The label says whose partition it is in; the message itself, whose it is.
        if not isinstance(body, dict) or body.get("customerId") != customer_id:
            continue
        if said := _said(topic, body, attributes, application_code, client_id):
            name, what, detail = said
            at = body.get("occurredAt")
            occurred = at if isinstance(at, int) and 0 < at < 253_402_300_800_000 else None
            # A reason is whatever its sender wrote.
            found.append(LoggedTrace(topic, offset, published_at, name, what, masked_words(detail), occurred))
    return found


def _said(
    topic: str, body: Mapping[str, Any], attributes: Mapping[str, str], application_code: str, client_id: str
) -> tuple[str, str, str] | None:
    """Its id, what it is, and a detail. None: it is about another device."""
    if topic == topics.NOT_SENT:
        return _not_sent(body, client_id)
    if (body.get("applicationCode"), body.get("clientId")) != (application_code, client_id):
        return None
    event_id, kind = _text(body, "eventId"), _text(body, "eventType").removeprefix("client.")
    match topic:
        case topics.WRITER:
            return event_id, kind, ""
        case topics.WRITER_ERRORS:
            return event_id, "failed", f"{kind}: {attributes.get('errorClass', '')}"
        case topics.PUSH_TOKEN_STATUS | topics.WEB_PUSH_TOKEN_STATUS:
            return event_id, "verdict", ", ".join(filter(None, (_text(body, "status"), _text(body, "reason"))))
    return _text(body, "outMessageId"), "sent", f"to {_text(body, 'provider')}, message {_text(body, 'messageId')}"


def _not_sent(body: Mapping[str, Any], client_id: str) -> tuple[str, str, str] | None:
    """Of a contact, for all its devices; it does not say of which application."""
    devices = body.get("devices")
    named = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    reason = next((one.get("reason") for one in named if one.get("clientId") == client_id), None)
    return None if reason is None else (_text(body, "messageId"), "not sent", str(reason))


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""
