"""Messages that are not what the writer's topic carries: what is wrong with each, and the field that must be named."""

import json
import time
from typing import Any

GOOD: dict[str, Any] = {
    "eventId": "e1",
    "eventType": "client.updated",
    "customerId": 7,
    "applicationCode": "A",
    "clientId": "c1",
    "occurredAt": 1_763_248_000_123,
    "payload": {"language": "en"},
}
TOKEN = GOOD | {"eventType": "client.pushTokenSet"}
LINK = GOOD | {"eventType": "client.contactLinked"}
MERGE = GOOD | {"eventType": "client.contactMerged"}
HASH = "0123456789abcdef" * 2
WEB_PUSH = {"endpoint": "https://push/1", "keys": {"p256dh": "p", "auth": "a"}}


def _without(field: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != field}


def _with(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def _payload(base: dict[str, Any] = GOOD, /, **payload: Any) -> dict[str, Any]:
    return base | {"payload": payload}


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


AHEAD = int(time.time() * 1000) + 3_600_000

_CASES: list[tuple[str, dict[str, Any] | bytes, str]] = [
    *((f"no {field}", _without(field), field) for field in GOOD if field != "payload"),
    (
        "no payload where one is needed",
        {**_without("payload"), "eventType": "client.contactLinked"},
        "payload.contactId",
    ),
    ("customer 0", _with(customerId=0), "customerId"),
    ("customer -1", _with(customerId=-1), "customerId"),
    ("customer of 30 digits", _with(customerId=10**29), "customerId"),
    ("customer of 19 digits", _with(customerId=10**18), "customerId"),
    ("customer with SQL", _with(customerId="1; drop schema clientmgr cascade"), "customerId"),
    ("customer as text", _with(customerId="7"), "customerId"),
    ("customer true", _with(customerId=True), "customerId"),
    ("customer null", _with(customerId=None), "customerId"),
    ("customer 7.5", _with(customerId=7.5), "customerId"),
    ("unknown type", _with(eventType="client.exploded"), "eventType"),
    ("type as number", _with(eventType=3), "eventType"),
    ("empty client id", _with(clientId=""), "clientId"),
    ("client id as number", _with(clientId=5), "clientId"),
    ("client id too long", _with(clientId="c" * 513), "clientId"),
    ("client id too long in bytes", _with(clientId="\N{PILE OF POO}" * 200), "clientId"),
    ("NUL in client id", _with(clientId="a\0b"), "clientId"),
    ("NUL in application code", _with(applicationCode="\0"), "applicationCode"),
    ("time as text", _with(occurredAt="2025-11-16"), "occurredAt"),
    ("time with a fraction", _with(occurredAt=1.5), "occurredAt"),
    ("time 0", _with(occurredAt=0), "occurredAt"),
    ("time ahead", _with(occurredAt=AHEAD), "occurredAt"),
    ("time absurd", _with(occurredAt=2**60), "occurredAt"),
    ("payload a list", _with(payload=[]), "payload"),
    ("payload null", _with(payload=None), "payload"),
    ("language as number", _payload(language=3), "payload.language"),
    ("push enabled as text", _payload(pushEnabled="yes"), "payload.pushEnabled"),
    ("attributes a list", _payload(attributes=[1]), "payload.attributes"),
    ("NUL in a field", _payload(osVersion="a\0"), "payload.osVersion"),
    ("NUL deep in attributes", _payload(attributes={"a": [{"b": "\0"}]}), "payload.attributes"),
    ("NUL in a name", _payload(pushSettings={"\0": 1}), "payload.pushSettings"),
    ("attributes nested too deep", _payload(attributes={"a": _nested(600)}), "payload.attributes"),
    ("token kind unknown", _payload(TOKEN, kind="pigeon", pushToken="t"), "payload.kind"),
    ("token without kind", _payload(TOKEN, pushToken="t"), "payload.kind"),
    ("kind without token", _payload(TOKEN, kind="apns"), "payload.pushToken"),
    ("empty token", _payload(TOKEN, kind="apns", pushToken=""), "payload.pushToken"),
    ("NUL in token", _payload(TOKEN, kind="apns", pushToken="\0"), "payload.pushToken"),
    ("web push with a token", _payload(TOKEN, kind="webpush", pushToken="t"), "payload.webPush"),
    ("both tokens", _payload(TOKEN, kind="apns", pushToken="t", webPush=WEB_PUSH), "payload.kind"),
    ("web push without keys", _payload(TOKEN, kind="webpush", webPush={"endpoint": "e"}), "payload.webPush.keys"),
    (
        "web push with half the keys",
        _payload(TOKEN, kind="webpush", webPush={"endpoint": "e", "keys": {"auth": "a"}}),
        "payload.webPush.keys.p256dh",
    ),
    ("contact 0", _payload(LINK, contactId=0), "payload.contactId"),
    ("contact as text", _payload(LINK, contactId="42"), "payload.contactId"),
    ("contact too large", _payload(LINK, contactId=2**63), "payload.contactId"),
    ("no contact", _payload(LINK), "payload.contactId"),
    ("contact null", _payload(LINK, contactId=None), "payload.contactId"),
    ("contact and hash", _payload(LINK, contactId=42, contactHash=HASH), "payload.contactHash"),
    ("hash too short", _payload(LINK, contactHash=HASH[1:]), "payload.contactHash"),
    ("hash too long", _payload(LINK, contactHash=HASH + "0"), "payload.contactHash"),
    ("hash with a line's end", _payload(LINK, contactHash=HASH + "\n"), "payload.contactHash"),
    ("hash of other letters", _payload(LINK, contactHash=HASH.upper()), "payload.contactHash"),
    ("merge from nobody", _payload(MERGE, intoContactId=42), "payload.fromContactId"),
    ("merge into nobody", _payload(MERGE, fromContactHash=HASH), "payload.intoContactId"),
    ("merge with itself", _payload(MERGE, fromContactId=42, intoContactId=42), "payload.intoContactId"),
    (
        "merge of a hash with itself",
        _payload(MERGE, fromContactHash=HASH, intoContactHash=HASH),
        "payload.intoContactId",
    ),
    (
        "merge from contact and hash",
        _payload(MERGE, fromContactId=41, fromContactHash=HASH, intoContactId=42),
        "payload.fromContactHash",
    ),
    ("a number beyond numbers", b'{"attributes": 1e999}', "eventId"),
    ("an array", b"[]", "message"),
    ("a string", b'"client.updated"', "message"),
    (
        "a number that no float holds",
        json.dumps(_payload(attributes={"n": "X"})).replace('"X"', "1e400").encode(),
        "payload.attributes",
    ),
]
MALFORMED: dict[str, tuple[bytes, str]] = {
    name: (message if isinstance(message, bytes) else json.dumps(message).encode(), field)
    for name, message, field in _CASES
}
