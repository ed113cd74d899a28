"""Follows a token of the provider `acme` through the system: from the event that sets it to the request."""

import asyncio
import json
import sys
from typing import Any

from clientmgr.base.customer_ids import quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.masking import masked
from clientmgr.contracts.sending import decode_message
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.devices.legacy.items import device_of
from clientmgr.devices.repository import DeviceRepository
from clientmgr.sending.mapping import Mapped, MessageMapper
from tests.house.walking import APPLICATION, AT, CONTACT, CUSTOMER, HASHES, activated, arrive, event, tell

TOKEN = "a-token-of-acme-0123456789"
MESSAGE = {
    "messageId": "m-1",
    "customerId": CUSTOMER,
    "applicationCode": APPLICATION,
    "campaignId": "9001",
    "channel": "push",
    "recipients": [{"contactId": CONTACT, "contents": {"en": {"title": "Hi", "body": "Your order is here"}}}],
    "defaultLanguage": "en",
}


async def main(database: Database) -> dict[str, Any]:
    await arrive(
        database,
        event("registered", "watch", language="en"),
        event("pushTokenSet", "watch", kind="acme_token", pushToken=TOKEN),
        event("contactLinked", "watch", contactId=CONTACT),
    )
    async with await database.connect_async(Role.READER) as connection:
        row = await connection.execute(
            f"SELECT provider, push_token_kind, push_token_status FROM {quoted_schema(CUSTOMER)}.devices"
        )
        stored = await row.fetchone()
        found = await DeviceRepository(HASHES).find_by_contact_keys(connection, CUSTOMER, APPLICATION, [CONTACT])
    _, message = decode_message(json.dumps(MESSAGE).encode())
    mapped = Mapped()
    MessageMapper(message, now_ms=AT, max_message_bytes=1_000_000).map(message.recipients, found, mapped)
    ((provider, (sent,)),) = mapped.sent.items()
    request = json.loads(sent.data)["request"]
    item = {"deviceKey": {"S": "a#b"}, "kind": {"S": "acme_token"}, "pushToken": {"S": TOKEN}}
    return {
        "row": stored,
        "topic": DeviceMapperTopics("tx", "dg00").outputs[provider],
        "request": request,
        "masked": masked(request),
        "not sent": len(mapped.not_sent),
        "legacy device": device_of(CONTACT, "", item).provider,
    }


if __name__ == "__main__":
    tell(asyncio.run(main(activated(*sys.argv[1:]))))
