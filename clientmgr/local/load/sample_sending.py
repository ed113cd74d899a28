"""Publishes sample messages at a pace, as whoever sends campaigns would."""

import asyncio
import itertools
import random
import time
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.sending.samples import sample_message

log = get_logger(__name__)


async def send(
    database: Database,
    settings: Settings,
    customer_id: CustomerId,
    topics: DeviceMapperTopics,
    stop: asyncio.Event,
    *,
    recipients: int,
    total: int,
    every_s: float,
) -> None:
    """`total` messages, or, where that is 0, until `stop` is set. While there are no contacts it waits for some."""
    chance = random.Random()  # noqa: S311  # keeps no secret
    async with open_broker(settings, database) as broker:
        await broker.ensure_topic(topics.input)
        for number in itertools.count(1):
            async with await database.connect_async(Role.READER) as connection:
                found = await _some_contacts(connection, customer_id)
            if found is not None:
                body = sample_message(
                    customer_id,
                    *found,
                    now_ms=time.time_ns() // 1_000_000,
                    chance=chance,
                    recipients=recipients,
                )
                await broker.publish(topics.input, [Message(body, str(customer_id))])
                log.debug("sample message published", topic=topics.input, customer_id=customer_id)
            if number == total or await wait_for_stop(stop, every_s):
                return


async def _some_contacts(connection: AsyncConnection[Any], customer_id: CustomerId) -> tuple[str, list[int]] | None:
    query = in_schema(named_queries("tenant/queries/contact_devices.sql")["some_contacts"], customer_id)
    cursor = await connection.execute(query.encode())
    return await cursor.fetchone()
