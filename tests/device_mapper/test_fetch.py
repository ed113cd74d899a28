"""Where devices come from: every strategy on a real PostgreSQL and a DynamoDB server, well and unwell."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.settings import load_settings
from clientmgr.contracts import topics
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.devices.legacy.items import device_of, plain
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.sending.fetch import DeviceFetcher, Strategy, choose_strategy
from clientmgr.tenants.flippers import Flipper, Flippers
from streaming import contact_deletion, push_token_status, writer
from streaming.device_mapper.mapper import daemon
from streaming.runtime.daemon import consume_on
from tests.cli.calling import Cli
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.dynamodb import DynamoDb, Mood, MoodyDynamoDb
from tests.device_mapper.samples import APPLICATION, SUBSCRIPTION, message, recipient
from tests.devices.histories import HASHES
from tests.streaming.rig import NOW, Rig, event, until

pytestmark = pytest.mark.anyio

TX = DeviceMapperTopics("tx", "dg00")
IN_POSTGRES, IN_DYNAMODB, IN_BOTH, IN_NEITHER = 1, 2, 3, 4
FOUND: dict[Strategy, dict[int, str]] = {
    Strategy.POSTGRES: {IN_POSTGRES: "new-1", IN_BOTH: "new-3"},
    Strategy.POSTGRES_THEN_DYNAMODB: {IN_POSTGRES: "new-1", IN_DYNAMODB: "old-2", IN_BOTH: "new-3"},
    Strategy.DYNAMODB: {IN_DYNAMODB: "old-2", IN_BOTH: "old-3"},
}
USE_POSTGRES = Flipper.USE_POSTGRES_DEVICE_MAPPER
NO_FALLBACK = Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER


def expected(*, use_postgres: bool, no_fallback: bool, fallback_enabled: bool) -> Strategy:
    """The contracts' three sentences."""
    if not fallback_enabled:
        return Strategy.POSTGRES
    if not use_postgres:
        return Strategy.DYNAMODB
    return Strategy.POSTGRES if no_fallback else Strategy.POSTGRES_THEN_DYNAMODB


COMBINATIONS = [
    dict(zip(("use_postgres", "no_fallback", "fallback_enabled"), choice, strict=True))
    for choice in itertools.product([False, True], repeat=3)
]


@pytest.mark.parametrize("store", ["dynamodb", "none"])
@pytest.mark.parametrize("choice", COMBINATIONS, ids=str)
def test_flippers_and_settings_choose_the_strategy(choice: dict[str, bool], store: str) -> None:
    rows = [(USE_POSTGRES, 7, choice["use_postgres"]), (NO_FALLBACK, 7, choice["no_fallback"])]
    flippers = Flippers([*rows, (USE_POSTGRES, 8, not choice["use_postgres"])])
    settings = load_settings(legacy_store=store, client_fetcher_fallback_enabled=choice["fallback_enabled"])
    chosen = choose_strategy(flippers, CustomerId(7), settings)
    assert chosen is (Strategy.POSTGRES if store == "none" else expected(**choice))


def fill(rig: Rig, dynamodb: DynamoDb, customer: int = 7) -> None:
    for contact in (IN_POSTGRES, IN_BOTH):
        add_device(rig, contact, f"new-{contact}", customer=customer)
    for contact in (IN_DYNAMODB, IN_BOTH):
        dynamodb.put(customer, contact, APPLICATION, f"old-{contact}")
        dynamodb.put(customer, contact, "OTHER", f"elsewhere-{contact}")


def sending(message_id: str = "m-1", *contacts: int, **changes: Any) -> dict[str, Any]:
    recipients = [recipient(contact) for contact in contacts or (IN_POSTGRES, IN_DYNAMODB, IN_BOTH, IN_NEITHER)]
    return message(messageId=message_id, expiresAt=4_000_000_000_000, recipients=recipients, **changes)


def outcome(rig: Rig, message_id: str = "m-1") -> tuple[dict[int, str], set[int]]:
    """(client by contact, contacts that have no device)"""
    sent = [one.event for one in rig.topic(TX.outputs["apple"])]
    not_sent = [one.event for one in rig.topic(NOT_SENT)]
    return (
        {one["contactId"]: one["clientId"] for one in sent if one["messageId"] == message_id},
        {one["contactId"] for one in not_sent if one["messageId"] == message_id and one["reason"] == "NO_DEVICES"},
    )


@ON_THE_LOG
async def test_every_combination_of_flippers_and_setting_reads_the_stores_that_it_says(
    rig: Rig, dynamodb: DynamoDb, tmp_path: Path
) -> None:
    fill(rig, dynamodb)
    cli = Cli.on(rig.database, tmp_path)
    for number, choice in enumerate(COMBINATIONS):
        cli.ok("flippers", "set", USE_POSTGRES, "on" if choice["use_postgres"] else "off", "--customer", "7")
        cli.ok("flippers", "set", NO_FALLBACK, "on" if choice["no_fallback"] else "off", "--yes")
        await rig.publish(sending(f"m-{number}"), topic=TX.input)
        settings = {
            "client_fetcher_fallback_enabled": choice["fallback_enabled"],
            "dynamodb_endpoint": dynamodb.url if choice["fallback_enabled"] else "http://127.0.0.1:1",
        }
        await rig.burst(daemon(TX), **settings)
        found = FOUND[expected(**choice)]
        assert outcome(rig, f"m-{number}") == (found, {1, 2, 3, 4} - set(found)), choice


@ON_THE_LOG
async def test_a_flipper_takes_effect_in_a_running_daemon(rig: Rig, dynamodb: DynamoDb, tmp_path: Path) -> None:
    fill(rig, dynamodb)
    settings = rig.settings.model_copy(update={"dynamodb_endpoint": dynamodb.url, "flipper_refresh_ms": 100})
    stop = asyncio.Event()
    running = asyncio.create_task(consume_on(rig.broker, daemon(TX), settings, stop))
    cli = Cli.on(rig.database, tmp_path)
    try:
        await rig.publish(sending("before"), topic=TX.input)
        await until(lambda: outcome(rig, "before")[0] == FOUND[Strategy.DYNAMODB], "DynamoDB is read")
        await asyncio.to_thread(cli.ok, "flippers", "set", USE_POSTGRES, "on", "--yes")
        for number in itertools.count():
            await rig.publish(sending(f"after-{number}"), topic=TX.input)
            await until(lambda n=number: outcome(rig, f"after-{n}")[0], "it is mapped")  # type: ignore[misc]
            if outcome(rig, f"after-{number}")[0] == FOUND[Strategy.POSTGRES_THEN_DYNAMODB]:
                break
            assert number < 100
    finally:
        stop.set()
        await running


@pytest.mark.parametrize("mood", ["throttling", "silent", "confused", "gone"])
@ON_THE_LOG
async def test_a_dynamodb_that_is_unwell_delays_a_message_and_loses_nothing(
    rig: Rig, dynamodb: DynamoDb, moody: tuple[MoodyDynamoDb, str], mood: Mood
) -> None:
    server, url = moody
    fill(rig, dynamodb)
    server.mood = mood
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, NULL, true, 'test')", USE_POSTGRES)
    await rig.publish(sending("delayed"), topic=TX.input)
    await rig.publish(sending("in-time", IN_POSTGRES), topic=TX.input)
    settings = {"dynamodb_endpoint": url, "dynamodb_timeout_ms": 100, "dynamodb_patience_ms": 100}
    await rig.burst(daemon(TX), **settings)
    assert outcome(rig, "delayed") == ({}, set())
    assert outcome(rig, "in-time") == ({IN_POSTGRES: "new-1"}, set())
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], [])

    server.mood = "well"
    rig.make_due()
    await rig.burst(daemon(TX), **{**settings, "dynamodb_timeout_ms": 5000})
    found = FOUND[Strategy.POSTGRES_THEN_DYNAMODB]
    assert outcome(rig, "delayed") == (found, {IN_NEITHER})


@ON_THE_LOG
async def test_what_postgres_has_is_good_while_dynamodb_is_unwell(
    rig: Rig, dynamodb: DynamoDb, moody: tuple[MoodyDynamoDb, str]
) -> None:
    """So that of the messages that are looked up together only those wait that need DynamoDB's answer."""
    server, url = moody
    server.mood = "confused"
    fill(rig, dynamodb)
    manager = DeviceManager(load_settings(dynamodb_endpoint=url))
    async with await rig.database.connect_async(Role.READER) as connection:
        contacts = [IN_POSTGRES, IN_DYNAMODB, IN_BOTH, IN_NEITHER]
        fetched = await DeviceFetcher(manager, HASHES).fetch(
            connection, CustomerId(7), APPLICATION, contacts, Strategy.POSTGRES_THEN_DYNAMODB
        )
    manager.close()
    assert set(fetched.devices) == {IN_POSTGRES, IN_BOTH}
    assert fetched.unanswered == {IN_DYNAMODB, IN_NEITHER}
    assert "502" in str(fetched.failure)


@ON_THE_LOG
async def test_a_dynamodb_that_is_not_there_is_waited_for(rig: Rig, tmp_path: Path) -> None:
    server = DynamoDb(tmp_path / "late.log")
    await rig.publish(sending(), topic=TX.input)
    settings = {"dynamodb_endpoint": server.url, "dynamodb_timeout_ms": 2000}
    await rig.burst(daemon(TX), **settings)
    assert outcome(rig) == ({}, set())

    server.start()
    try:
        fill(rig, server)
        rig.make_due()
        await rig.burst(daemon(TX), **settings)
        assert outcome(rig) == (FOUND[Strategy.DYNAMODB], {IN_POSTGRES, IN_NEITHER})
        assert rig.topic(DEVICE_MAPPER_ERRORS) == []
    finally:
        server.kill()


async def test_no_more_queries_are_in_hand_than_the_setting_says(
    dynamodb: DynamoDb, moody: tuple[MoodyDynamoDb, str]
) -> None:
    server, url = moody
    manager = DeviceManager(load_settings(dynamodb_endpoint=url, dynamodb_concurrency=3))
    found = await manager.find_by_contact_keys(CustomerId(99), APPLICATION, range(1, 41))
    manager.close()
    assert (found, server.requests) == ({}, 40)
    assert 2 <= server.most_in_hand <= 3


async def test_after_the_first_failure_the_others_are_not_asked(moody: tuple[MoodyDynamoDb, str]) -> None:
    server, url = moody
    server.mood = "confused"
    manager = DeviceManager(load_settings(dynamodb_endpoint=url, dynamodb_concurrency=2))
    with pytest.raises(Exception, match="502"):
        await manager.find_by_contact_keys(CustomerId(99), APPLICATION, range(1, 1001))
    manager.close()
    assert server.requests < 20


async def test_a_contact_with_more_devices_than_a_page_has_them_all(dynamodb: DynamoDb) -> None:
    for number in range(5):
        dynamodb.put(98, 1, APPLICATION, f"c{number}", attributes={"long": "x" * 300_000})
    manager = DeviceManager(load_settings(dynamodb_endpoint=dynamodb.url))
    found = await manager.find_by_contact_keys(CustomerId(98), APPLICATION, [1])
    manager.close()
    assert [one.client_id for one in found[1]] == [f"c{number}" for number in range(5)]


@ON_THE_LOG
async def test_the_share_of_fallbacks_is_counted(rig: Rig, dynamodb: DynamoDb) -> None:
    def answered(by: str) -> float:
        labels = {"strategy": "postgres-then-dynamodb", "answered_by": by}
        return REGISTRY.get_sample_value("clientmgr_device_mapper_contacts_total", labels) or 0.0

    before = [answered(by) for by in ("postgres", "dynamodb", "none")]
    fill(rig, dynamodb)
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, 7, true, 'test')", USE_POSTGRES)
    await rig.publish(sending(), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    after = [answered(by) for by in ("postgres", "dynamodb", "none")]
    assert [now - was for now, was in zip(after, before, strict=True)] == [2, 1, 1]


@ON_THE_LOG
async def test_a_deleted_contact_is_not_looked_up_in_the_legacy_store(rig: Rig, dynamodb: DynamoDb) -> None:
    fill(rig, dynamodb)
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, 7, true, 'test')", USE_POSTGRES)
    deletion = {"eventId": "d-1", "customerId": 7, "contactId": IN_DYNAMODB, "deletedAt": 1_763_248_000_000}
    await rig.publish(deletion, topic=topics.CONTACT_DELETION)
    await rig.burst(contact_deletion.DAEMON)
    await rig.publish(sending(), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig) == ({IN_POSTGRES: f"new-{IN_POSTGRES}", IN_BOTH: f"new-{IN_BOTH}"}, {IN_DYNAMODB, IN_NEITHER})


@ON_THE_LOG
async def test_a_deleted_contact_is_not_reached_where_the_legacy_store_alone_is_read(
    rig: Rig, dynamodb: DynamoDb
) -> None:
    fill(rig, dynamodb)
    contact = HASHES.contact(7, IN_BOTH)
    rig.query("INSERT INTO tenant_7.contact_tombstones (contact_hash, deleted_version) VALUES (%s, 1)", contact)
    await rig.publish(sending(), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig) == ({IN_DYNAMODB: "old-2"}, {IN_POSTGRES, IN_BOTH, IN_NEITHER})


@ON_THE_LOG
async def test_a_device_that_postgres_knows_better_is_not_taken_from_the_legacy_store(
    rig: Rig, dynamodb: DynamoDb
) -> None:
    """Another contact's by now, nobody's, deleted: what the legacy store says of it is history."""
    for contact, client in enumerate(["moved", "unlinked", "deleted", "only-there"], start=11):
        dynamodb.put(7, contact, APPLICATION, client)
    add_device(rig, 99, "moved")
    add_device(rig, 98, "unlinked")
    rig.query("UPDATE tenant_7.devices SET contact_id = NULL, contact_version = 1 WHERE client_id = 'unlinked'")
    deleted = HASHES.device(7, APPLICATION, "deleted")
    rig.query("INSERT INTO tenant_7.device_tombstones (device_hash, deleted_version) VALUES (%s, 1)", deleted)
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, 7, true, 'test')", USE_POSTGRES)
    await rig.publish(sending("m-1", 11, 12, 13, 14), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig) == ({14: "only-there"}, {11, 12, 13})


@ON_THE_LOG
@pytest.mark.parametrize("use_postgres", [True, False], ids=["asked second", "asked alone"])
async def test_a_verdict_on_a_token_that_only_the_legacy_store_knows_keeps_messages_from_it(
    rig: Rig, dynamodb: DynamoDb, use_postgres: bool
) -> None:
    """Until the same token is set anew."""
    dynamodb.put(7, 951, APPLICATION, "judged", pushToken="bad-token", kind="apns", platform="ios")
    dynamodb.put(7, 952, APPLICATION, "other", pushToken="good-token", kind="apns", platform="ios")
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, 7, %s, 'test')", USE_POSTGRES, use_postgres)
    device = {"customerId": 7, "applicationCode": APPLICATION, "clientId": "judged"}
    verdict = {"eventId": "v", **device, "pushToken": "bad-token", "status": "invalid", "occurredAt": NOW}
    await rig.publish(verdict, topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(push_token_status.TokenType.PUSH))
    await rig.publish(sending("m-1", 951, 952), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig, "m-1") == ({952: "other"}, set())
    assert [one.event["reason"] for one in rig.topic(NOT_SENT)] == ["INVALID_PUSH_TOKEN"]

    await write(
        rig, event("pushTokenSet", client="x", at=NOW + 1, application=APPLICATION, kind="apns", pushToken="bad-token")
    )
    await rig.publish(sending("m-2", 951, 952), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig, "m-2") == ({951: "judged", 952: "other"}, set())


async def write(rig: Rig, *events: dict[str, Any]) -> None:
    await rig.publish(*events)
    await rig.burst(writer.DAEMON)
    assert (rig.errors, rig.retries) == ([], [])


@ON_THE_LOG
async def test_whose_a_device_is_comes_from_the_legacy_store_until_an_event_tells_it(
    rig: Rig, dynamodb: DynamoDb
) -> None:
    """Linked before the migration; since then only its application's version was told us."""
    dynamodb.put(7, 31, APPLICATION, "c1")
    rig.query("INSERT INTO clientmgr.flippers VALUES (%s, 7, true, 'test')", USE_POSTGRES)
    await write(rig, event("updated", client="c1", application=APPLICATION, applicationVersion="4.10"))
    await rig.publish(sending("before", 31), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig, "before") == ({31: "c1"}, set())

    await write(rig, event("contactUnlinked", client="c1", application=APPLICATION))
    await rig.publish(sending("after", 31), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig, "after") == ({}, {31})


@ON_THE_LOG
async def test_what_events_told_of_a_device_counts_though_the_legacy_store_says_whose_it_is(
    rig: Rig, dynamodb: DynamoDb
) -> None:
    for contact, client in enumerate(["turned-off", "new-token", "gone-token"], start=941):
        dynamodb.put(7, contact, APPLICATION, client, language="fr", lastSeenAt=5)
    of: dict[str, Any] = {"application": APPLICATION}
    await write(
        rig,
        event("updated", client="turned-off", pushEnabled=False, language=None, attributes={"tier": "gold"}, **of),
        event("pushTokenSet", client="new-token", pushToken="fid-1", kind="fcm_fid", **of),
        event("pushTokenCleared", client="gone-token", **of),
    )
    manager = DeviceManager(load_settings(dynamodb_endpoint=dynamodb.url))
    async with await rig.database.connect_async(Role.READER) as connection:
        fetched = await DeviceFetcher(manager, HASHES).fetch(
            connection, CustomerId(7), APPLICATION, [941, 942, 943], Strategy.POSTGRES_THEN_DYNAMODB
        )
    manager.close()

    found = {contact: device for contact, (device,) in fetched.devices.items()}
    off, new, gone = found[941], found[942], found[943]
    assert (off.push_enabled, off.language, off.attributes) == (False, None, '{"tier": "gold"}')
    assert (off.push_token, off.provider, off.platform) == ("token-of-turned-off", "apple", "ios")
    assert (new.push_token, new.push_token_kind, new.provider) == ("fid-1", "fcm_fid", "fcm")
    assert (new.push_enabled, new.language) == (True, "fr")
    assert (gone.push_token, gone.push_token_status, gone.provider) == (None, "none", "none")
    assert {device.last_seen_at for device in found.values()} == {NOW}


@ON_THE_LOG
async def test_a_device_whose_id_nobody_could_have_registered_is_none(rig: Rig, dynamodb: DynamoDb) -> None:
    for client in ("a\0b", "x" * 600, "good"):
        dynamodb.put(7, 21, APPLICATION, client)
    await rig.publish(sending("m-1", 21), topic=TX.input)
    await rig.burst(daemon(TX), dynamodb_endpoint=dynamodb.url)
    assert outcome(rig) == ({21: "good"}, set())
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], [])


# What an item of DynamoDB says


def item(**attributes: Any) -> ContactDevice:
    return device_of(42, "A#", {"contactKey": {"S": "7#42"}, "deviceKey": {"S": "A#c1"}, **attributes})


def test_an_item_is_read_field_by_field() -> None:
    web_push = {"M": {"endpoint": {"S": SUBSCRIPTION["endpoint"]}, "keys": {"M": {"auth": {"S": "x"}}}}}
    found = item(
        platform={"S": "web"}, kind={"S": "webpush"}, webPush=web_push, pushEnabled={"BOOL": False},
        lastSeenAt={"N": "1763248000123"}, attributes={"M": {"n": {"N": "1.5"}, "l": {"L": [{"NULL": True}]}}},
    )  # fmt: skip
    assert (found.client_id, found.provider, found.push_enabled) == ("c1", "vapid", False)
    assert (found.push_token_kind, found.push_token_status, found.last_seen_at) == ("webpush", "valid", 1763248000123)
    assert msgspec.json.decode(found.attributes or "") == {"n": 1.5, "l": [None]}


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"kind": {"S": "apns"}},
        {"pushToken": {"S": "t"}},
        {"kind": {"S": "pigeon"}, "pushToken": {"S": "t"}},
        {"kind": {"N": "5"}, "pushToken": {"NULL": True}, "language": {"L": []}, "pushEnabled": {"S": "yes"}},
    ],
)
def test_an_item_that_is_not_as_it_should_be_is_a_device_without_a_token(attributes: dict[str, Any]) -> None:
    found = item(**attributes)
    assert (found.provider, found.push_token_status, found.push_enabled) == ("none", "none", None)


def test_a_token_that_the_legacy_store_calls_invalid_is_so() -> None:
    found = item(kind={"S": "hms"}, pushToken={"S": "t"}, pushTokenStatus={"S": "invalid"})
    assert (found.provider, found.push_token_status) == ("huawei", "invalid")


@pytest.mark.parametrize(("value", "meant"), [({"N": "-7"}, -7), ({"N": "1e3"}, 1000.0), ({"SS": ["a"]}, None)])
def test_values_of_dynamodb(value: dict[str, Any], meant: Any) -> None:
    assert plain(value) == meant
