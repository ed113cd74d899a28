"""Requests in the message log are known before a sensor has read them, each is read once, and none is kept for ever."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.broker.postgres.publish import append
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from clientmgr.contracts.lifecycle import decode_activation
from clientmgr.tenants import requests_in_log
from clientmgr.tenants.directory import TenantDirectory
from clientmgr.tenants.schema_manager import TenantSchemaManager

pytestmark = pytest.mark.anyio

AT = 1_763_248_000_123


@pytest.fixture
def settings(database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database)


@pytest.fixture
async def directory(anyio_backend: str, settings: Settings) -> AsyncIterator[TenantDirectory]:
    directory = TenantDirectory(settings)
    yield directory
    await directory.close()


@pytest.fixture
async def connection(anyio_backend: str, database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def publish(
    anyio_backend: str, database: Database, settings: Settings, connection: AsyncConnection[Any]
) -> AsyncIterator[Callable[..., Any]]:
    async with PostgresBroker(database, settings) as broker:

        async def publish(*customers: int, topic: str = topics.ACTIVATE_CUSTOMER, at: int = AT) -> None:
            """Without a tenant, as some of Google's clients do."""
            await broker.ensure_topic(topic)
            bodies = [
                {"eventId": f"{topic}-{at}", "customerId": customer, "occurredAt": at, "requestedBy": "test"}
                for customer in customers
            ]
            await append(connection, topic, [Message(json.dumps(body).encode()) for body in bodies])

        yield publish


async def statuses(
    directory: TenantDirectory, connection: AsyncConnection[Any], *customers: int
) -> Sequence[str | None]:
    found = await directory.statuses_with_requests(connection, [CustomerId(customer) for customer in customers])
    return [found[CustomerId(customer)] for customer in customers]


async def test_a_log_without_these_topics_has_no_requests(
    directory: TenantDirectory, connection: AsyncConnection[Any]
) -> None:
    assert await statuses(directory, connection, 7) == [None]


async def test_a_request_is_known_as_soon_as_it_is_in_the_log_however_many_there_are(
    directory: TenantDirectory,
    connection: AsyncConnection[Any],
    publish: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests_in_log, "MESSAGES_A_READ", 2)
    await publish(1, 2, 3, 4, 5)
    assert await statuses(directory, connection, 1, 5, 6) == ["activating", "activating", None]
    await publish(6)
    assert await statuses(directory, connection, 6, 7) == ["activating", None]


async def test_a_message_is_read_once_and_forgotten_when_the_sensor_has_recorded_it(
    database: Database,
    settings: Settings,
    directory: TenantDirectory,
    connection: AsyncConnection[Any],
    publish: Callable[..., Any],
) -> None:
    await publish(7)
    assert await statuses(directory, connection, 7) == ["activating"]
    # The log no longer has it: only whoever remembers it can tell.
    rows = await (await connection.execute("DELETE FROM clientmgr.outbox_message_t RETURNING c_offset")).fetchall()
    assert await statuses(directory, connection, 7) == ["activating"]

    def sensor_passes_it() -> None:
        with CursorReader(database, settings, topics.ACTIVATE_CUSTOMER) as reader:
            reader.read(str(rows[0][0]), 10)

    await asyncio.to_thread(sensor_passes_it)
    assert await statuses(directory, connection, 7) == [None]


async def test_what_the_sensor_recorded_counts_without_a_message(
    database: Database, settings: Settings, directory: TenantDirectory, connection: AsyncConnection[Any]
) -> None:
    manager = TenantSchemaManager(database, settings)
    manager.activate([7], actor="test")
    manager.delete(7, actor="test")
    assert await statuses(directory, connection, 7) == ["deleted"]
    body = json.dumps({"eventId": "a", "customerId": 8, "occurredAt": AT}).encode()
    manager.register([decode_activation(body)])
    assert await statuses(directory, connection, 8) == ["activating"]
    # As the reconciler finds it: wanted, and not begun.
    with database.connect(Role.OWNER) as owner:
        owner.execute("DELETE FROM clientmgr.tenants WHERE customer_id = 8")
    assert await statuses(directory, connection, 8) == ["activating"]


async def test_an_old_message_that_nobody_read_does_not_outrank_what_was_recorded_since(
    database: Database,
    settings: Settings,
    directory: TenantDirectory,
    connection: AsyncConnection[Any],
    publish: Callable[..., Any],
) -> None:
    manager = TenantSchemaManager(database, settings)
    manager.activate([7], actor="test")
    manager.delete(7, actor="test")
    await publish(7)
    assert await statuses(directory, connection, 7) == ["deleted"]


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    directory: TenantDirectory, connection: AsyncConnection[Any], publish: Callable[..., Any], database: Database
) -> None:
    await publish(1, 2, 3)
    assert await statuses(directory, connection, 3) == ["activating"]
    with database.connect(Role.OWNER) as owner:
        owner.execute("DELETE FROM clientmgr.outbox_message_t")
        owner.execute("DELETE FROM clientmgr.log_counter WHERE topic = %s", (topics.ACTIVATE_CUSTOMER,))
    await publish(4)
    assert await statuses(directory, connection, 3, 4) == [None, "activating"]
