"""Sample messages are messages: the mapper takes them."""

import asyncio

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.sending import decode_message
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, DeviceMapperTopics
from clientmgr.local.load.sample_sending import send
from streaming.device_mapper.mapper import daemon
from tests.cli.calling import Cli
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.streaming.rig import Rig

pytestmark = [pytest.mark.anyio, ON_THE_LOG]

BATCH = DeviceMapperTopics("batch", "dg00")


async def test_samples_are_for_contacts_that_there_are_and_the_mapper_takes_them(rig: Rig) -> None:
    for contact in range(10, 20):
        add_device(rig, contact, f"c{contact}", os_version="17")
    await send(rig.database, rig.settings, CustomerId(7), BATCH, asyncio.Event(), recipients=3, total=5, every_s=0.0)
    sent = [decode_message(one.data)[1] for one in rig.topic(BATCH.input)]
    assert len(sent) == 5
    for message in sent:
        *known, nobody = [one.contact_id for one in message.recipients]
        assert (len(known), nobody) == (3, 1)
        assert set(known) <= set(range(10, 20))

    await rig.burst(daemon(BATCH), client_fetcher_fallback_enabled=False)
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


def test_the_command_sends_nothing_to_a_customer_without_contacts(rig: Rig) -> None:
    cli = Cli.on(rig.database, rig.settings.data_dir)
    cli.ok("device-mapper", "send-samples", "--customer", "7")
    assert rig.topic(BATCH.input) == []
    add_device(rig, 10, "c10")
    cli.ok("device-mapper", "send-samples", "--customer", "7")
    assert len(rig.topic(BATCH.input)) == 1
