"""The demo's story, for people to follow: contact 50042 of tenant 1002 says that no message comes any more.

Its shop's app has asked everybody anew whether they want messages, since release 4.2.0. The release says yes in text
where the contract wants true: those events fail, and the devices stay as they were, without push. To mend the event and
to replay it lets the next message through (README.md, "Why did nothing come?").
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.devices.lookup import DeviceLookup

SHOP: Final = CustomerId(1002)
APPLICATION: Final = "SHOP-APP"
UNREACHED: Final = 50_042
"""The contact who asks. Of the generated traffic nobody is anywhere near: no deletion of the demo's is of this one."""
OTHERS: Final = range(50_043, 50_048)
BROKEN_RELEASE: Final = {"applicationVersion": "4.2.0", "pushEnabled": "yes"}
DAY_MS: Final = 86_400_000
_QUERIES: Final = named_queries("demo/queries/history.sql")


def event(customer: CustomerId, client: str, kind: str, at: int, /, *, application: str, **payload: Any) -> Message:
    """A message of the writer's topic."""
    body = {
        "eventId": f"{client}-{kind}-{at}",
        "eventType": f"client.{kind}",
        "customerId": customer,
        "applicationCode": application,
        "clientId": client,
        "occurredAt": at,
        "payload": payload,
    }
    return Message(msgspec.json.encode(body), str(customer), client)


def client_of(contact_id: int) -> str:
    return f"phone-of-{contact_id}"


def events(now_ms: int) -> list[Message]:
    """What the phones said: long ago how they were, a few minutes ago what nobody understands."""
    return [message for contact_id in (UNREACHED, *OTHERS) for message in _of(contact_id, now_ms)]


def _of(contact_id: int, now_ms: int) -> list[Message]:
    long_ago = now_ms - 40 * DAY_MS
    phone = {
        "platform": "ios",
        "deviceModel": "iPhone17,3",
        "osVersion": "26.1",
        "applicationVersion": "4.1.3",
        "language": "en" if contact_id % 2 == 0 else "de",
        "timezone": "Europe/Berlin",
        "pushEnabled": False,
    }
    told: Sequence[tuple[str, int, dict[str, Any]]] = (
        ("registered", long_ago, phone),
        ("pushTokenSet", long_ago + 1, {"kind": "apns", "pushToken": f"{contact_id:064x}"}),
        ("contactLinked", long_ago + 2, {"contactId": contact_id}),
        ("updated", now_ms - 5 * 60_000, dict(BROKEN_RELEASE)),
    )
    client = client_of(contact_id)
    return [event(SHOP, client, kind, at, application=APPLICATION, **payload) for kind, at, payload in told]


def tell(settings: Settings) -> None:
    """Publish it, at the first start only: what was mended stays mended."""
    database = Database.from_settings(settings)
    with database.connect(Role.READER) as connection:
        if DeviceLookup(connection, SHOP).by_client(client_of(UNREACHED), limit=1):
            return
    messages = events(time.time_ns() // 1_000_000)

    async def publish() -> None:
        async with open_broker(settings, database) as broker:
            await broker.ensure_topic(topics.WRITER)
            await broker.publish(topics.WRITER, messages)

    asyncio.run(publish())


def make_history(settings: Settings, devices: dict[CustomerId, int]) -> None:
    """Ninety nights and a day of numbers for the charts, at the first start only. `devices`: how many each has now."""
    with Database.from_settings(settings).connect(Role.WRITER) as connection:
        connection.execute(
            _QUERIES["make_history"].encode(),
            {"customers": list(devices), "devices": list(devices.values())},
        )
        connection.execute(_QUERIES["make_samples"])
