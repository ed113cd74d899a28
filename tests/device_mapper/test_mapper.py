"""The daemon on both transports: what comes in goes out once, to the right topics, or is an error that says why."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.base.database import Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Message
from clientmgr.contracts.topics import ACTIVATE_CUSTOMER, DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from streaming.device_mapper.mapper import consumer_options, daemon
from streaming.runtime.daemon import Daemon
from tests.cli.calling import Cli
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.samples import APPLICATION, message, recipient
from tests.streaming.rig import Logged, Rig, until

pytestmark = pytest.mark.anyio

TX, BATCH = DeviceMapperTopics("tx", "dg00"), DeviceMapperTopics("batch", "dg07")
POSTGRES_ONLY = {"client_fetcher_fallback_enabled": False}
FAR = 4_000_000_000_000


def mapper(topics: DeviceMapperTopics = TX) -> Daemon:
    return daemon(topics)


async def run(
    rig: Rig, *messages: dict[str, Any] | bytes, topics: DeviceMapperTopics = TX, **settings: Any
) -> list[bytes]:
    """Publish and map; returns the bytes that were published."""
    bodies = await rig.publish(*messages, topic=topics.input)
    await rig.burst(mapper(topics), **{**POSTGRES_ONLY, **settings})
    return bodies


def sending(**changes: Any) -> dict[str, Any]:
    return message(**{"expiresAt": FAR, **changes})


def clients(logged: Iterable[Logged]) -> list[str]:
    return sorted(one.event["clientId"] for one in logged)


def reasons(rig: Rig) -> dict[int, str]:
    return {one.event["contactId"]: one.event["reason"] for one in rig.topic(NOT_SENT)}


async def test_a_message_becomes_one_for_each_device_on_the_topics_of_its_type_and_group(rig: Rig) -> None:
    add_device(rig, 42, "iphone")
    add_device(rig, 42, "pixel", platform="android", provider="fcm", push_token_kind="fcm_fid", language="fr_CA")
    add_device(rig, 42, "elsewhere", application_code="OTHER")
    add_device(rig, 43, "tablet", push_enabled=False)

    await run(rig, sending(recipients=[recipient(42), recipient(43), recipient(44)]), topics=BATCH)

    (iphone,) = rig.topic("sending-batch-push-apple-dg07")
    (pixel,) = rig.topic("sending-batch-push-fcm-dg07")
    assert (iphone.event["clientId"], iphone.event["language"], iphone.tenant) == ("iphone", "en", "7")
    assert pixel.event["request"]["message"]["fid"] == "token-of-pixel"
    assert pixel.event["language"] == "fr"
    assert reasons(rig) == {43: "PUSH_DISABLED", 44: "NO_DEVICES"}
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


@ON_THE_LOG
async def test_messages_read_together_each_know_what_their_filters_ask_for(rig: Rig) -> None:
    """Their contacts' devices come with one query, which asks for no more than they need."""
    add_device(rig, 42, "new", os_version="17.4", attributes={"tier": "gold"}, created_at="2026-01-01T00:00:00Z")
    add_device(rig, 42, "old", os_version="9.3", attributes={"tier": "silver"}, last_seen_at="2026-02-01T00:00:00Z")
    filters = {
        "by-os": {"field": "osVersion", "op": ">=", "value": "10"},
        "by-tier": {"not": {"all": [{"field": "attributes.tier", "op": "=", "value": "gold"}]}},
        "by-time": {"any": [{"field": "createdAt", "op": ">", "value": 1_760_000_000_000}]},
        "by-none": None,
    }
    await run(rig, *(sending(messageId=name, filter=node) for name, node in filters.items()))
    got = {
        name: clients(one for one in rig.topic(TX.outputs["apple"]) if one.event["messageId"] == name)
        for name in filters
    }
    assert got == {"by-os": ["new"], "by-tier": ["old"], "by-time": ["new"], "by-none": ["new", "old"]}


@ON_THE_LOG
async def test_an_inbox_message_has_the_language_of_the_device_seen_last(rig: Rig) -> None:
    add_device(rig, 42, "a", language="en", last_seen_at="2026-01-01T00:00:00Z")
    add_device(rig, 42, "b", language="fr", last_seen_at="2026-02-01T00:00:00Z")
    await run(rig, sending(channel="inbox"))
    assert [one.event["language"] for one in rig.topic(TX.outputs["inbox"])] == ["fr"]


@ON_THE_LOG
async def test_tx_and_batch_do_not_read_each_others_topics(rig: Rig) -> None:
    add_device(rig, 42, "c1")
    await run(rig, sending(messageId="of-tx"), topics=DeviceMapperTopics("tx", "dg07"))
    await run(rig, sending(messageId="of-batch"), topics=BATCH)
    assert [one.event["messageId"] for one in rig.topic("sending-tx-push-apple-dg07")] == ["of-tx"]
    assert [one.event["messageId"] for one in rig.topic("sending-batch-push-apple-dg07")] == ["of-batch"]


@ON_THE_LOG
async def test_tx_does_not_wait_for_a_batch_that_is_still_being_written(rig: Rig) -> None:
    """Both have a contact that gets nothing, so that both write to the topic of not-sent events."""
    add_device(rig, 42, "c1")
    recipients = [recipient(42), recipient(43)]
    await rig.burst(mapper(BATCH), **POSTGRES_ONLY)  # makes the topics
    await rig.publish(sending(recipients=recipients), topic=BATCH.input)
    with rig.database.connect(Role.WRITER) as somebody:
        somebody.execute("SELECT clientmgr.reserve_offsets(%s, 1, gen_random_uuid(), NULL)", (BATCH.outputs["apple"],))
        batch = asyncio.create_task(rig.burst(mapper(BATCH), **POSTGRES_ONLY))
        await until(lambda: rig.query("SELECT FROM pg_locks WHERE NOT granted"), "the batch waits to be written")

        async with asyncio.timeout(30):
            await run(rig, sending(recipients=recipients))

        assert clients(rig.topic(TX.outputs["apple"])) == ["c1"]
        assert len(rig.topic(NOT_SENT)) == 1
    await batch
    assert len(rig.topic(NOT_SENT)) == 2


async def test_the_same_message_again_gives_the_same_ids(rig: Rig) -> None:
    add_device(rig, 42, "c1")
    await run(rig, sending())
    await run(rig, sending())
    first, second = rig.topic(TX.outputs["apple"])
    assert first.event["outMessageId"] == second.event["outMessageId"]


@ON_THE_LOG
async def test_a_message_with_more_recipients_than_a_query_takes_is_mapped_whole(rig: Rig) -> None:
    rig.query(
        f"""INSERT INTO tenant_7.devices
            (application_code, client_id, contact_id, provider, push_token, push_token_kind, push_token_status)
            SELECT '{APPLICATION}', 'c' || n, n, 'apple', 't' || n, 'apns', 'valid'
            FROM generate_series(1, 2300, 2) AS n"""
    )
    contacts = range(1, 2301)
    await run(
        rig,
        sending(messageId="small", recipients=[recipient(1)]),
        sending(messageId="large", recipients=[recipient(contact) for contact in contacts]),
        sending(messageId="small-too", recipients=[recipient(1), recipient(2)]),
    )
    sent = [(one.event["messageId"], one.event["contactId"]) for one in rig.topic(TX.outputs["apple"])]
    not_sent = [(one.event["messageId"], one.event["contactId"]) for one in rig.topic(NOT_SENT)]
    assert sorted(sent) == sorted(
        [("small", 1), ("small-too", 1), *(("large", contact) for contact in contacts if contact % 2)]
    )
    assert sorted(not_sent) == sorted(
        [("small-too", 2), *(("large", contact) for contact in contacts if not contact % 2)]
    )


@pytest.mark.parametrize(
    ("wrong", "error_class", "says"),
    [
        (b"not json", "InvalidMessageError", "not JSON"),
        (sending(recipients=5), "InvalidMessageError", "recipients:"),
        (sending(applicationCode="a\0b"), "InvalidMessageError", "applicationCode:"),
        (sending(filter={"field": "shoeSize", "op": "=", "value": 1}), "InvalidMessageError", "filter.field:"),
        (sending(filter={"field": "platform", "op": "~", "value": "x"}), "InvalidMessageError", "filter.op:"),
        (
            sending(recipients=[recipient(42, en={"title": "Hi", "data": {"from": "me"}})]),
            "InvalidMessageError",
            "recipients[0].contents[...].data:",
        ),
        (sending(customerId=4711), "UnknownTenantError", "never activated"),
    ],
)
async def test_what_can_never_be_mapped_is_an_error_as_it_came_and_costs_no_other(
    rig: Rig, wrong: dict[str, Any] | bytes, error_class: str, says: str
) -> None:
    add_device(rig, 42, "c1")
    body = wrong if isinstance(wrong, bytes) else json.dumps(wrong).encode()
    await rig.put_into_log(TX.input, Message(body, "7", attributes={"trace": "t-1"}))
    await run(rig, sending())

    (error,) = rig.topic(DEVICE_MAPPER_ERRORS)
    assert (error.data, error.attributes["trace"], error.attributes["errorClass"]) == (body, "t-1", error_class)
    assert says in error.attributes["error"]
    assert clients(rig.topic(TX.outputs["apple"])) == ["c1"]
    assert rig.dead_letters() == []


@ON_THE_LOG
async def test_a_message_for_a_deleted_tenant_is_an_error(rig: Rig) -> None:
    rig.activate(8)
    rig.delete(8)
    (body,) = await run(rig, sending(customerId=8))
    (error,) = rig.topic(DEVICE_MAPPER_ERRORS)
    assert (error.data, error.attributes["errorClass"]) == (body, "UnknownTenantError")


async def test_a_message_for_a_tenant_being_activated_waits_until_it_is(rig: Rig) -> None:
    rig.query("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (9, 'activating')")
    await run(rig, sending(customerId=9))
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.topic(NOT_SENT)) == ([], [])

    rig.activate(9)
    add_device(rig, 42, "c1", customer=9)
    rig.make_due()
    await rig.burst(mapper(), **POSTGRES_ONLY)
    assert clients(rig.topic(TX.outputs["apple"])) == ["c1"]


async def test_a_message_waits_for_a_customer_whose_activation_is_only_asked_for_or_may_still_come(rig: Rig) -> None:
    await rig.publish({"eventId": "a", "customerId": 9, "occurredAt": 1_763_248_000_123}, topic=ACTIVATE_CUSTOMER)
    await run(rig, sending(customerId=9))
    await run(rig, sending(customerId=10), unknown_tenant_grace_s=120.0)
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.topic(NOT_SENT)) == ([], [])

    rig.activate(9, 10)
    for customer in (9, 10):
        add_device(rig, 42, f"of-{customer}", customer=customer)
    await rig.burst(mapper(), **POSTGRES_ONLY)
    assert clients(rig.topic(TX.outputs["apple"])) == ["of-10", "of-9"]


@ON_THE_LOG
async def test_a_tenant_whose_table_is_locked_costs_only_itself(rig: Rig) -> None:
    rig.activate(8)
    for customer in (7, 8):
        add_device(rig, 42, f"of-{customer}", customer=customer)
    with rig.database.connect(Role.OWNER) as connection:
        connection.execute("LOCK TABLE tenant_7.devices IN ACCESS EXCLUSIVE MODE")
        await run(rig, sending(), sending(customerId=8))
        assert clients(rig.topic(TX.outputs["apple"])) == ["of-8"]
    rig.make_due()
    await rig.burst(mapper(), **POSTGRES_ONLY)
    assert clients(rig.topic(TX.outputs["apple"])) == ["of-7", "of-8"]
    assert rig.topic(DEVICE_MAPPER_ERRORS) == []


@ON_THE_LOG
async def test_a_message_without_recipients_is_done(rig: Rig) -> None:
    await run(rig, sending(recipients=[]))
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.topic(NOT_SENT), rig.dead_letters()) == ([], [], [])


@ON_THE_LOG
async def test_what_came_out_is_counted(rig: Rig) -> None:
    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"clientmgr_device_mapper_{name}_total", labels) or 0.0

    def all_counted() -> list[float]:
        return [
            counted("sent", type="tx", provider="apple"),
            counted("not_sent", type="tx", reason="NO_DEVICES"),
            counted("contacts", strategy="postgres", answered_by="postgres"),
            counted("contacts", strategy="postgres", answered_by="none"),
        ]

    before = all_counted()
    add_device(rig, 42, "c1")
    add_device(rig, 42, "c2")
    await run(rig, sending(recipients=[recipient(42), recipient(43), recipient(44)]))
    assert [after - was for after, was in zip(all_counted(), before, strict=True)] == [2, 2, 1, 2]


def test_reading_postgres_alone_takes_more_in_hand() -> None:
    both, alone = consumer_options(load_settings()), consumer_options(load_settings(**POSTGRES_ONLY))
    assert (alone.concurrency, alone.batch_size) == (3, 10)
    assert both.concurrency < alone.concurrency
    assert both.batch_size < alone.batch_size


@ON_THE_LOG
def test_a_delivery_group_that_is_none_is_refused(rig: Rig) -> None:
    result = Cli.on(rig.database, rig.settings.data_dir)("run", "device-mapper", "--type", "tx", "--dg", "DG 0")
    assert (result.code, "--dg" in result.err) == (2, True)
