"""What a device takes: a tenant with many, written by the events of a device's life, and every relation's size."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import psycopg

from bench.batch.workload import NOW, ORPHANED_BEFORE
from bench.harness.measure import measure
from bench.harness.servers import BenchPostgres
from bench.scaling.measured import Device
from bench.writer.databases import START_AT, settings_for, with_tenants
from clientmgr.base.customer_ids import CustomerId, in_schema, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.contracts.device_events import DecodedEvent, decode_event
from clientmgr.devices.queries import device_queries
from clientmgr.devices.store import DeviceStore
from clientmgr_dagster.spark.tenant_source import IN_CONTACTS, IN_PAGES

DEVICES_A_BATCH = 500
EVENTS_A_DEVICE = 3

_RELATIONS = """
SELECT c.relname, pg_relation_size(c.oid) + coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0)
FROM pg_class AS c WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'i')
"""


def measure_devices(server: BenchPostgres, devices: int) -> Device:
    """Its sizes after a vacuum, and what a nightly query over all of it takes."""
    source = with_tenants(server, "scaling_devices", 1)
    (customer_id,) = source.tenants
    asyncio.run(_write(source.url, customer_id, devices))
    with psycopg.connect(server.superuser_url(source.name), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        sizes: dict[str, int] = dict(connection.execute(_RELATIONS, (schema_name(customer_id),)).fetchall())
        _count(connection, customer_id)
        counted = measure(lambda: _count(connection, customer_id))
    server.drop_database(source.name)
    largest_first = sorted(sizes.items(), key=lambda one: -one[1])
    return Device(devices, {name: int(size) for name, size in largest_first}, counted.wall_s)


def _count(connection: psycopg.Connection[Any], customer_id: CustomerId) -> None:
    query = in_schema(device_queries("batch")["dashboard_metrics"], customer_id)
    query = query.replace(IN_PAGES, "true").replace(IN_CONTACTS, "true")
    connection.execute(query.encode(), {"collected_at": NOW, "orphaned_before": ORPHANED_BEFORE})


async def _write(url: str, customer_id: CustomerId, devices: int) -> None:
    """In batches, as the writer has them."""
    store = DeviceStore.from_settings(settings_for(url))
    async with await Database(url).connect_async(Role.WRITER) as connection:
        events = (event for number in range(devices) for event in _life(customer_id, number))
        while batch := list(itertools.islice(events, DEVICES_A_BATCH * EVENTS_A_DEVICE)):
            await store.apply_events(connection, {customer_id: batch})
            await connection.commit()


def _life(customer_id: CustomerId, number: int) -> Iterator[DecodedEvent]:
    """A registration, a push token and a contact; two devices a contact, one device in ten without."""
    information = {
        "hardwareId": f"{number:032x}",
        "platform": ("ios", "android")[number % 2],
        "applicationVersion": f"4.{number % 20}",
        "deviceModel": f"Model {number % 50}",
        "osVersion": f"17.{number % 7}",
        "sdkVersion": "3.2.1",
        "language": ("en", "de", "fr")[number % 3],
        "timezone": "Europe/Vienna",
        "pushEnabled": number % 5 > 0,
        "attributes": {"plan": "basic", "n": number},
    }
    yield _event(customer_id, number, 0, "client.registered", information)
    yield _event(customer_id, number, 1, "client.pushTokenSet", {"pushToken": f"{number:0142x}", "kind": "fcm_token"})
    if number % 10:
        yield _event(customer_id, number, 2, "client.contactLinked", {"contactId": 1000 + number // 2})
    else:
        yield _event(customer_id, number, 2, "client.updated", {"language": "it"})


def _event(customer_id: CustomerId, number: int, turn: int, kind: str, payload: dict[str, Any]) -> DecodedEvent:
    event = {
        "eventId": f"{number}-{turn}",
        "eventType": kind,
        "customerId": customer_id,
        "applicationCode": "EMS11-C3FD3",
        "clientId": f"{number:08x}-0000-4000-8000-{customer_id:012x}",
        "occurredAt": START_AT + turn,
        "payload": payload,
    }
    return decode_event(json.dumps(event).encode())
