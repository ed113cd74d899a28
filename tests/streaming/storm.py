"""A storm of events over many tenants (shuffled, doubled, some malformed), and the rows that it must leave behind.

No two events of a tenant share a millisecond, so that the model is no more than the sorted history, one by one.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from tests.devices.malformed import MALFORMED

BEGINNING = 1_763_000_000_000
DEVICES, APPLICATIONS, TOKENS, CONTACTS = 150, ("A", "B"), 60, 40
MALFORMED_SHARE, DOUBLED_SHARE = 0.01, 0.05
# JSON objects only: each is made unique by an extra field, to be counted by its bytes.
_MALFORMED = [data for data, _ in MALFORMED.values() if data.startswith(b'{"eventId"')]

Event = dict[str, Any]
Row = tuple[Any, ...]
"""language, application version, token, its status, contact, last seen"""


@dataclass
class Storm:
    """What is published, in this order, and what each tenant's history is."""

    arriving: list[tuple[CustomerId, bytes]] = field(default_factory=list)
    malformed: list[bytes] = field(default_factory=list)
    histories: dict[CustomerId, list[Event]] = field(default_factory=lambda: defaultdict(list))


def brew(tenants: Iterable[CustomerId], size: int, *, seed: int) -> Storm:
    """`size` messages in all, duplicates and malformed ones included."""
    choose = random.Random(seed)
    customers = list(tenants)
    storm = Storm()
    for number in range(size):
        customer = choose.choice(customers)
        history = storm.histories[customer]
        draw = choose.random()
        if draw < MALFORMED_SHARE:
            bad = choose.choice(_MALFORMED).removesuffix(b"}") + f', "serial": {number}}}'.encode()
            storm.malformed.append(bad)
            storm.arriving.append((customer, bad))
        elif draw < MALFORMED_SHARE + DOUBLED_SHARE and history:
            storm.arriving.append((customer, json.dumps(choose.choice(history)).encode()))
        else:
            history.append(_event(choose, customer, BEGINNING + len(history)))
            storm.arriving.append((customer, json.dumps(history[-1]).encode()))
    choose.shuffle(storm.arriving)
    return storm


def _event(choose: random.Random, customer: CustomerId, at: int) -> Event:
    event_type, payload = choose.choice(_KINDS)(choose)
    return {
        "eventId": f"{customer}-{at}",
        "eventType": f"client.{event_type}",
        "customerId": customer,
        "applicationCode": choose.choice(APPLICATIONS),
        "clientId": f"c{choose.randrange(DEVICES)}",
        "occurredAt": at,
        "payload": payload,
    }


_KINDS: list[Callable[[random.Random], tuple[str, dict[str, Any]]]] = [
    lambda choose: ("registered", {"language": choose.choice(["en", "fr"]), "applicationVersion": "1.0"}),
    lambda choose: ("updated", {"language": choose.choice(["de", "hu", None])}),
    lambda choose: ("updated", {"applicationVersion": f"{choose.randrange(9)}.0"}),
    lambda choose: ("pushTokenSet", {"kind": "fcm_token", "pushToken": f"t{choose.randrange(TOKENS)}"}),
    lambda choose: ("pushTokenSet", {"kind": "apns", "pushToken": f"t{choose.randrange(TOKENS)}"}),
    lambda choose: ("pushTokenCleared", {}),
    lambda choose: ("contactLinked", {"contactId": choose.randrange(1, CONTACTS)}),
    lambda choose: ("contactUnlinked", {}),
    lambda choose: ("deleted", {}) if choose.random() < 0.3 else ("updated", {"osVersion": "15"}),
]


def expected_rows(history: Iterable[Event]) -> dict[tuple[str, str], Row]:
    """What the sorted history leaves of a tenant, by application and client."""
    devices: dict[tuple[str, str], dict[str, Any]] = {}
    holders: dict[tuple[str, str], tuple[str, str]] = {}
    for event in sorted(history, key=lambda one: int(one["occurredAt"])):
        key = (event["applicationCode"], event["clientId"])
        payload = event["payload"]
        if event["eventType"] == "client.deleted":
            devices.pop(key, None)
            continue
        device = devices.setdefault(key, {"status": "none"})
        device["seen"] = event["occurredAt"]
        match event["eventType"].removeprefix("client."):
            case "registered" | "updated":
                device |= payload
            case "pushTokenSet":
                token = (key[0], payload["pushToken"])
                former = devices.get(holders.get(token, key))
                if former is not None and former is not device and former.get("token") == token[1]:
                    former |= {"token": None, "status": "superseded"}
                holders[token] = key
                device |= {"token": token[1], "status": "valid"}
            case "pushTokenCleared":
                device |= {"token": None, "status": "none"}
            case "contactLinked":
                device["contact"] = payload["contactId"]
            case "contactUnlinked":
                device["contact"] = None
    names = ("language", "applicationVersion", "token", "status", "contact", "seen")
    return {key: tuple(device.get(name) for name in names) for key, device in devices.items()}


def stored_rows(database: Database, customer: CustomerId) -> dict[tuple[str, str], Row]:
    with database.connect(Role.READER) as connection:
        found = connection.execute(
            f"""SELECT application_code, client_id, language, application_version, push_token, push_token_status,
                contact_id, last_seen_version FROM {quoted_schema(customer)}.devices"""
        ).fetchall()
    return {(row[0], row[1]): row[2:] for row in found}
