"""Asking for a customer's activation or deletion by the messages that customers' own systems send.

So whoever asks needs no right to change schemas: Dagster's sensors act on the message, and the newest request decides.
The message and the audit row that says who asked commit together.
"""

import time
from typing import Final
from uuid import uuid4

import msgspec

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import publishers
from clientmgr.contracts.lifecycle import ActivateCustomer, DeleteAccount
from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER

ACTIVATION: Final = "tenant.activation_requested"
DELETION: Final = "account.deletion_requested"


async def request_activation(database: Database, settings: Settings, customer_id: CustomerId, *, actor: str) -> None:
    request = ActivateCustomer(f"activate-{uuid4()}", customer_id, _now_ms())
    entry = AuditEntry(customer_id, actor, ACTIVATION, "published", details={"event": request.event_id})
    await _publish(database, settings, ACTIVATE_CUSTOMER, request, entry)


async def request_deletion(database: Database, settings: Settings, customer_id: CustomerId, *, actor: str) -> None:
    request = DeleteAccount(f"delete-{uuid4()}", customer_id, actor, _now_ms())
    entry = AuditEntry(customer_id, actor, DELETION, "published", details={"event": request.event_id})
    await _publish(database, settings, ACCOUNT_DELETION, request, entry)


async def _publish(
    database: Database, settings: Settings, topic: str, request: ActivateCustomer | DeleteAccount, entry: AuditEntry
) -> None:
    # The sensors read the log, whatever transport the daemons use.
    async with PostgresBroker(database, settings) as broker:
        await broker.ensure_topic(topic)
        async with await database.connect_async(Role.WRITER) as connection, connection.transaction():
            await AuditLogger.from_settings(settings).append_async(connection, [entry])
            data = msgspec.json.encode(request)
            message = Message(data, str(entry.customer_id), attributes=publishers.stamp(topic, entry.actor))
            # Last: from here on the transaction holds up everyone else who publishes to the topic.
            await broker.publish(topic, [message], connection=connection)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
