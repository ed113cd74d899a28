"""PostgreSQL hangs up while a batch is being mapped: the whole batch comes again, and each message is mapped once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from clientmgr.base.database import Role
from clientmgr.broker.interface import Batch, Outcome
from clientmgr.broker.postgres.topic_administration import ensure_topic
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from streaming.device_mapper.mapper import daemon
from streaming.runtime.daemon import Daemon, Services, Source
from tests.device_mapper.conftest import add_device
from tests.device_mapper.samples import message, recipient
from tests.streaming.rig import Rig, until

pytestmark = pytest.mark.anyio

TX = DeviceMapperTopics("tx", "dg00")
WAITING_FOR_THE_TABLE = """
    SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'tenant_8.devices'::regclass
"""


def watched(seen: list[int]) -> Daemon:
    """The mapper, and how many messages each batch had that it was given."""
    mapper = daemon(TX)

    def sources(services: Services) -> list[Source]:
        (source,) = mapper.sources(services)

        async def handler(batch: Batch) -> Sequence[Outcome] | None:
            seen.append(len(batch.messages))
            return await source.handler(batch)

        return [replace(source, handler=handler)]

    return replace(mapper, sources=sources)


async def test_a_batch_that_loses_its_connection_half_way_comes_again_and_is_mapped_once(rig: Rig) -> None:
    """Tenant 7 is mapped when it happens, tenant 8 is not: its table is locked, and the mapper waits for it."""
    rig.activate(8)
    for customer in (7, 8):
        add_device(rig, 42, f"of-{customer}", customer=customer)
    async with await rig.database.connect_async(Role.OWNER) as connection:
        # One partition, so that messages of two tenants are one batch.
        await ensure_topic(connection, TX.input, total_partitions=1)
    everybody = {"expiresAt": 4_000_000_000_000, "recipients": [recipient(42), recipient(43)]}
    messages = [message(messageId=f"m-{customer}", customerId=customer, **everybody) for customer in (7, 8)]
    await rig.publish(*messages, topic=TX.input)

    seen: list[int] = []
    settings = {"client_fetcher_fallback_enabled": False, "writer_lock_timeout_ms": 60_000}
    with rig.database.connect(Role.OWNER) as locking:
        locking.execute("LOCK TABLE tenant_8.devices IN ACCESS EXCLUSIVE MODE")
        mapping = asyncio.create_task(rig.burst(watched(seen), **settings))
        ((pid,),) = await until(lambda: rig.query(WAITING_FOR_THE_TABLE), "the mapper is half way")
        assert rig.query("SELECT pg_terminate_backend(%s, 10000)", pid) == [(True,)]
    await mapping

    assert seen == [2, 2]
    sent = sorted((one.event["messageId"], one.event["clientId"]) for one in rig.topic(TX.outputs["apple"]))
    not_sent = sorted((one.event["messageId"], one.event["contactId"]) for one in rig.topic(NOT_SENT))
    assert sent == [("m-7", "of-7"), ("m-8", "of-8")]
    assert not_sent == [("m-7", 43), ("m-8", 43)]
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], [])
