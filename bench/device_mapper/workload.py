"""The database that variants work on: tenants, contacts with devices, and messages for all of them in the topic."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg

from bench.harness.keys import BENCH_KEY
from bench.harness.servers import BenchPostgres
from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager

FIRST_TENANT = 1000
APPLICATION = "EMS11-C3FD3"
LANGUAGES = ("en", "fr", "de", "hu", "es")
TOPICS = DeviceMapperTopics("batch", "dg00")
TX_TOPICS = DeviceMapperTopics("tx", "dg00")
EXPIRES_AT = 4_000_000_000_000
NOBODY = 10**12
# Every device passes it: what a filter costs is to ask it.
FILTER = {
    "all": [
        {"field": "platform", "op": "in", "value": ["ios", "android", "android-huawei"]},
        {"field": "applicationVersion", "op": ">=", "value": "4.10"},
        {"not": {"field": "language", "op": "=", "value": "xx"}},
    ]
}

DEVICES = f"""
    INSERT INTO {{schema}}.devices (
        application_code, client_id, hardware_id, contact_id, platform, provider, application_version, os_version,
        device_model, sdk_version, language, timezone, push_enabled, push_token, push_token_kind, push_token_status,
        attributes, last_seen_at)
    SELECT '{APPLICATION}', md5(contact || '/' || device), md5('h' || contact || device), contact,
        (ARRAY['ios', 'android', 'android', 'android-huawei'])[kind], (ARRAY['apple', 'fcm', 'fcm', 'huawei'])[kind],
        '4.' || 10 + contact %% 7, '17.4', 'Pixel 9', '3.2.1',
        (ARRAY['en', 'fr-CA', 'de', 'hu', 'es-MX'])[1 + contact %% 5], 'Europe/Budapest', true,
        repeat(md5('t' || contact || device), 4), (ARRAY['apns', 'fcm_token', 'fcm_fid', 'hms'])[kind], 'valid',
        '{{{{"tier": "gold"}}}}', now()
    FROM generate_series(1, %(contacts)s) AS contact, generate_series(1, %(devices)s) AS device,
        LATERAL (SELECT 1 + (contact + device) %% 4 AS kind) AS k
"""

# What tells one variant's messages from another's: all but the seconds that are left, which differ by nature.
DIGEST = """
    SELECT c.topic, count(*), md5(string_agg(regexp_replace(
        convert_from(m.payload, 'UTF8'), '"ttl":"[0-9]+s"', ''), '' ORDER BY m.host_id, m.user_id))
    FROM clientmgr.outbox_message_t AS m JOIN clientmgr.log_counter AS c ON c.id = m.topic_id
    WHERE c.topic LIKE 'sending-batch-push-%' GROUP BY c.topic ORDER BY c.topic
"""


@dataclass(frozen=True)
class Scenario:
    """What is sent to whom."""

    recipients: int
    devices: int = 1
    filtered: bool = False
    tenants: int = 4
    a_message: int = 500
    repeated: int = 1
    """How often each contact is sent to, by messages of different ids."""

    @property
    def title(self) -> str:
        return (
            f"{self.recipients:,} recipients, {self.devices} device{'s' * (self.devices > 1)} each"
            f"{', with a filter' * self.filtered}"
        )

    def contacts_of(self) -> dict[CustomerId, int]:
        return {CustomerId(FIRST_TENANT + number): self.recipients // self.tenants for number in range(self.tenants)}

    def bodies(self) -> Iterator[tuple[CustomerId, bytes]]:
        """The messages, round and round the tenants."""
        in_turn = itertools.zip_longest(*(self._of(tenant, count) for tenant, count in self.contacts_of().items()))
        return (one for some in in_turn for one in some if one is not None)

    def _of(self, tenant: CustomerId, contacts: int) -> Iterator[tuple[CustomerId, bytes]]:
        for turn in range(self.repeated):
            for start in range(1, contacts + 1, self.a_message):
                some = range(start, min(start + self.a_message, contacts + 1))
                message_id = f"{tenant}-{start}-{turn}"
                yield tenant, message_body(tenant, message_id, list(map(recipient, some)), filtered=self.filtered)


def recipient(contact_id: int) -> dict[str, Any]:
    contents = {
        language: {
            "title": f"Hello {contact_id}",
            "body": f"Your order {contact_id} is on its way and will be with you on Friday ({language}).",
            "url": "https://shop.example.com/orders",
        }
        for language in LANGUAGES
    }
    return {"contactId": contact_id, "contents": contents}


def message_body(tenant: CustomerId, message_id: str, recipients: list[dict[str, Any]], *, filtered: bool) -> bytes:
    """A message for these, and for one contact that has no device: all mappers share the topic of not-sent events."""
    return msgspec.json.encode(
        {
            "messageId": message_id,
            "customerId": tenant,
            "applicationCode": APPLICATION,
            "campaignId": "9001",
            "channel": "push",
            "expiresAt": EXPIRES_AT,
            "options": {"appleTopic": "com.acme.app"},
            "filter": FILTER if filtered else None,
            "defaultLanguage": "en",
            "recipients": [*recipients, recipient(NOBODY)],
        }
    )


def settings_for(url: str, **overrides: Any) -> Settings:
    """No Redis: the tenants' statuses are one query a batch."""
    return load_settings(
        **{
            "database_url": url,
            "redis_url": "",
            "audit_hash_key": BENCH_KEY,
            "log_level": "error",
            "client_fetcher_fallback_enabled": False,
            **overrides,
        }
    )


def make_database(server: BenchPostgres, name: str, scenario: Scenario) -> str:
    """A database with the scenario's devices and messages; returns its URL."""
    server.create_database(name)
    url = server.url(name)
    migrate_database(Database(url))
    TenantSchemaManager(Database(url), settings_for(url)).activate(tuple(scenario.contacts_of()), actor="bench")
    with psycopg.connect(url) as connection:
        for tenant, contacts in scenario.contacts_of().items():
            query = DEVICES.format(schema=quoted_schema(tenant)).encode()
            connection.execute(query, {"contacts": contacts, "devices": scenario.devices})
    asyncio.run(_publish(url, scenario))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return url


async def _publish(url: str, scenario: Scenario) -> None:
    async with PostgresBroker(Database(url), settings_for(url)) as broker:
        for topics in (TOPICS, TX_TOPICS):
            for topic in (topics.input, *topics.outputs.values(), NOT_SENT, DEVICE_MAPPER_ERRORS):
                await broker.ensure_topic(topic)
            await broker.ensure_subscription(topics.subscription, topics.input)
        for tenant, body in scenario.bodies():
            await broker.publish(TOPICS.input, [Message(body, str(tenant))])


def digest(url: str) -> list[tuple[Any, ...]]:
    """What a variant has sent, by topic."""
    with psycopg.connect(url) as connection:
        return connection.execute(DIGEST).fetchall()


def unread(url: str) -> int:
    """Messages of the batch that nobody has mapped yet."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            """SELECT count(*) FROM clientmgr.consumer_offsets AS o JOIN clientmgr.outbox_message_t AS m
            ON m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
            WHERE o.group_id = %s""",
            (TOPICS.subscription,),
        ).fetchone()
    return 0 if row is None else int(row[0])


def forget_progress(url: str) -> None:
    """All messages unread again, all outputs gone: ready for the next variant."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """DELETE FROM clientmgr.outbox_message_t AS m USING clientmgr.log_counter AS c
            WHERE c.id = m.topic_id AND c.topic NOT LIKE 'sending-%-devicemapper-%'"""
        )
        connection.execute("UPDATE clientmgr.consumer_offsets SET next_offset = 1, attempts = 0, retry_at = NULL")
        connection.execute("VACUUM ANALYZE clientmgr.outbox_message_t")
