"""The databases that variants work on: made once with tenants and messages, copied for each turn, then compared."""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import sql

from bench.harness.keys import BENCH_KEY
from bench.harness.servers import BenchPostgres
from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.store import DeviceStore
from clientmgr.local.load.traffic import LoadConfig, generate
from clientmgr.operations.migrations import migrate_database
from clientmgr.tenants.schema_manager import TenantSchemaManager

Item = TypeVar("Item")

START_AT = 1_763_248_000_000
"""When the first event happens. Fixed, so that every run has the same events."""
FIRST_TENANT = 1000

# What tells one variant's rows from another's. Left out: when a row was written, which differs by nature.
DIGEST = """
    SELECT
        (SELECT count(*) FROM {schema}.devices),
        (SELECT md5(string_agg(
            (to_jsonb(d) - 'created_at' - 'updated_at' - 'orphaned_since')::text, ''
            ORDER BY application_code, client_id
        )) FROM {schema}.devices AS d),
        (SELECT md5(string_agg((to_jsonb(t) - 'recorded_at')::text, '' ORDER BY device_hash))
            FROM {schema}.device_tombstones AS t),
        (SELECT md5(string_agg((to_jsonb(t) - 'recorded_at')::text, '' ORDER BY contact_hash, deleted_version))
            FROM {schema}.contact_tombstones AS t),
        (SELECT md5(string_agg(c::text, '' ORDER BY token_hash)) FROM {schema}.push_token_claims AS c),
        (SELECT md5(string_agg(l::text, '' ORDER BY device_hash, linked_version, contact_hash))
            FROM {schema}.contact_links AS l),
        (SELECT count(*) FROM clientmgr.audit_log WHERE customer_id = {customer_id} AND action = 'contact.delete'),
        (SELECT sum(rows_affected) FROM clientmgr.audit_log
            WHERE customer_id = {customer_id} AND action = 'contact.delete')
"""


@dataclass(frozen=True)
class Source:
    """A database with tenants and messages that wait for a daemon. Variants get copies of it."""

    server: BenchPostgres
    name: str
    tenants: tuple[CustomerId, ...]

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def copy(self, name: str) -> str:
        """A database like this one; returns its URL."""
        self.server.drop_database(name)
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as connection:
            query = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log")
            connection.execute(query.format(sql.Identifier(name), sql.Identifier(self.name)))
        return self.server.url(name)

    def digest(self, url: str) -> dict[str, object]:
        """What a variant left in its copy, by tenant."""
        with psycopg.connect(url) as connection:
            return {
                schema: connection.execute(DIGEST.format(schema=schema, customer_id=customer_id).encode()).fetchone()
                for customer_id in self.tenants
                for schema in [quoted_schema(customer_id)]
            }


def settings_for(url: str) -> Settings:
    """No Redis: the tenants' statuses are one query a batch."""
    return load_settings(database_url=url, redis_url="", audit_hash_key=BENCH_KEY, log_level="error")


def source_of_events(
    server: BenchPostgres, name: str, *, tenants: int, events: int, skew: float, at_once: int = 100
) -> Source:
    """`events` messages in the writer's topic, published `at_once` a transaction."""
    source = with_tenants(server, name, tenants)
    config = LoadConfig(
        tenants=source.tenants,
        start_at=START_AT,
        devices=max(events // tenants // 10, 10),
        skew=skew,
        duplicates=0.02,
        late=0.01,
        out_of_order=0.05,
    )
    messages = (item.message for item in itertools.islice(generate(config), events))
    asyncio.run(_publish(source, topics.WRITER, messages, at_once))
    return source


def source_of_deletions(server: BenchPostgres, name: str, *, tenants: int, contacts: int) -> Source:
    """Contacts with two devices each, and a message for each contact in the topic of contact deletion."""
    source = with_tenants(server, name, tenants)
    contacts_of = {
        tenant: range(1, contacts // tenants + (number < contacts % tenants) + 1)
        for number, tenant in enumerate(source.tenants)
    }
    asyncio.run(_fill(source, contacts_of))
    # Round and round the tenants, as deletions come in life.
    in_turn = itertools.chain.from_iterable(
        itertools.zip_longest(*([(tenant, contact) for contact in ids] for tenant, ids in contacts_of.items()))
    )
    messages = (_deletion(*pair) for pair in in_turn if pair is not None)
    asyncio.run(_publish(source, topics.CONTACT_DELETION, messages, 100))
    return source


def with_tenants(server: BenchPostgres, name: str, tenants: int) -> Source:
    """Tenants that have nothing yet."""
    server.create_database(name)
    source = Source(server, name, tuple(CustomerId(FIRST_TENANT + number) for number in range(tenants)))
    migrate_database(Database(source.url))
    TenantSchemaManager(Database(source.url), settings_for(source.url)).activate(source.tenants, actor="bench")
    return source


async def _publish(source: Source, topic: str, messages: Iterable[Message], at_once: int) -> None:
    async with PostgresBroker(Database(source.url), settings_for(source.url)) as broker:
        for name in (topic, topics.REPUBLISHER, topics.WRITER_ERRORS, topics.CONTACT_DELETION_ERRORS):
            await broker.ensure_topic(name)
        await broker.ensure_subscription(topic, topic)
        for part in _parts(messages, at_once):
            await broker.publish(topic, part)
    with psycopg.connect(source.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def _fill(source: Source, contacts_of: dict[CustomerId, range]) -> None:
    store = DeviceStore.from_settings(settings_for(source.url))
    async with await Database(source.url).connect_async(Role.WRITER) as connection:
        for tenant, contacts in contacts_of.items():
            for part in _parts(contacts, 1000):
                linked = [decode_event(_link(tenant, contact, device)) for contact in part for device in (1, 2)]
                await store.apply_events(connection, {tenant: linked})
            await connection.commit()


def _link(tenant: CustomerId, contact: int, device: int) -> bytes:
    return json.dumps(
        {
            "eventId": f"link-{contact}-{device}",
            "eventType": "client.contactLinked",
            "customerId": tenant,
            "applicationCode": "EMS11-C3FD3",
            "clientId": f"{contact:08x}-{device:04x}-4000-8000-{tenant:012x}",
            "occurredAt": START_AT,
            "payload": {"contactId": contact},
        }
    ).encode()


def _deletion(tenant: CustomerId, contact: int) -> Message:
    content = {"eventId": f"{tenant}-{contact}", "customerId": tenant, "contactId": contact, "deletedAt": START_AT + 1}
    return Message(json.dumps(content).encode(), str(tenant), str(contact))


def _parts(items: Iterable[Item], size: int) -> Iterator[Sequence[Item]]:
    remaining = iter(items)
    while part := list(itertools.islice(remaining, size)):
        yield part
