"""What the workers' tests are made of: events, a transport with a tenant or two, and a look at topics and tables."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg.rows import dict_row

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Broker, ConsumeStats, Message
from clientmgr.broker.postgres.publish import append
from clientmgr.broker.pubsub.wire import KEY_ATTRIBUTE
from clientmgr.contracts import topics
from clientmgr.tenants.schema_manager import TenantSchemaManager
from streaming.runtime.daemon import Daemon, consume_on

Result = TypeVar("Result")
NOW = 1_763_248_000_123

# Makes every message that waits for its time due at once, on either transport.
MAKE_DUE = """
    UPDATE clientmgr.outbox_message_t SET published_at = published_at - interval '1 hour';
    UPDATE clientmgr.delayed_message_t
    SET not_before = now(), original_published_at = original_published_at - interval '1 hour';
    UPDATE clientmgr.pubsub_delayed
    SET not_before = now(), published_at = published_at - interval '1 hour';
"""


def event(
    event_type: str = "updated",
    /,
    *,
    customer: Any = 7,
    client: str = "c1",
    at: int = NOW,
    application: str = "A",
    **payload: Any,
) -> dict[str, Any]:
    """A message of the writer's topic. What follows the names is the payload."""
    return {
        "eventId": f"{event_type}-{customer}-{client}-{at}",
        "eventType": f"client.{event_type}",
        "customerId": customer,
        "applicationCode": application,
        "clientId": client,
        "occurredAt": at,
        "payload": payload,
    }


@dataclass(frozen=True)
class Logged:
    """A message as it lies in a topic."""

    data: bytes
    tenant: str
    attributes: dict[str, str]

    @property
    def event(self) -> Any:
        return json.loads(self.data)


@dataclass(frozen=True)
class Rig:
    """A transport, a database, and the workers on both."""

    settings: Settings
    database: Database
    broker: Broker

    def activate(self, *customers: int) -> None:
        TenantSchemaManager(self.database, self.settings).activate(customers, actor="test")

    def delete(self, customer: int) -> None:
        TenantSchemaManager(self.database, self.settings).delete(customer, actor="test")

    async def publish(
        self, *messages: dict[str, Any] | bytes, topic: str = topics.WRITER, **attributes: str
    ) -> list[bytes]:
        """Publish as the SDK's back end would; returns the bytes."""
        await self.broker.ensure_topic(topic)
        bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
        tenants = [str(one.get("customerId", "")) if isinstance(one, dict) else "" for one in messages]
        await self.broker.publish(
            topic,
            [Message(body, tenant[:20], attributes=attributes) for body, tenant in zip(bodies, tenants, strict=True)],
        )
        return bodies

    async def put_into_log(self, topic: str, *messages: Message) -> None:
        """What nobody checked: as Google's clients bring it through the gateway."""
        await self.broker.ensure_topic(topic)
        async with await self.database.connect_async(Role.WRITER) as connection:
            await append(connection, topic, messages)

    async def burst(self, daemon: Daemon, **overrides: Any) -> ConsumeStats:
        """Run a daemon until nothing is left for it."""
        settings = self.settings.model_copy(update=overrides)
        return await consume_on(self.broker, daemon, settings, asyncio.Event(), burst=True)

    def topic(self, name: str) -> list[Logged]:
        """What was ever published to a topic, oldest first."""
        return read_topic(self.database, name)

    @property
    def errors(self) -> list[Logged]:
        return self.topic(topics.WRITER_ERRORS)

    @property
    def retries(self) -> list[Logged]:
        return self.topic(topics.REPUBLISHER)

    def dead_letters(self) -> list[tuple[bytes, str, str]]:
        """(message, class of the error, error)"""
        rows = self.query("SELECT payload, error_class, exception FROM clientmgr.dead_letter_queue ORDER BY id")
        return [(bytes(payload), error_class, error) for payload, error_class, error in rows]

    def devices(self, customer: int = 7) -> dict[str, dict[str, Any]]:
        """The rows of a tenant by client id."""
        query = f"SELECT * FROM {quoted_schema(CustomerId(customer))}.devices ORDER BY client_id"
        with self.database.connect(Role.READER) as connection, connection.cursor(row_factory=dict_row) as cursor:
            return {row["client_id"]: row for row in cursor.execute(query).fetchall()}

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL as the owner and fetch what it gives."""
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def make_due(self) -> None:
        self.query(MAKE_DUE)


def read_topic(database: Database, topic: str) -> list[Logged]:
    """On either transport: our gateway keeps what is published to it in the log."""
    with database.connect(Role.OWNER) as connection:
        rows = connection.execute(
            """SELECT payload, host_id, attributes FROM clientmgr.outbox_message_t AS m
            JOIN clientmgr.log_counter AS c ON c.id = m.topic_id
            WHERE c.topic = %s AND m.group_id IS NULL ORDER BY c_offset""",
            (topic,),
        ).fetchall()
    return [
        Logged(bytes(data), tenant, {key: value for key, value in attributes.items() if key != KEY_ATTRIBUTE})
        for data, tenant, attributes in rows
    ]


async def until(look: Callable[[], Result], what: str, *, within_s: float = 60.0, every_s: float = 0.02) -> Result:
    """What `look` returns once that is true; meanwhile everything else goes on."""
    deadline = time.monotonic() + within_s
    while not (result := look()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(every_s)
    return result
