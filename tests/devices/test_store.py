"""The tables keep what was decided: events and contact deletions in any order, on a real PostgreSQL, concurrently."""

import asyncio
import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.rows import dict_row

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.contracts import topics
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.store import DeviceStore
from tests.devices.histories import (
    APPLICATIONS,
    CLIENTS,
    CONTACTS,
    HASHES,
    LATEST,
    TOKENS,
    Device,
    Happening,
    Model,
    contact_deletion,
    contact_merge,
    token_of,
    without_late_links,
)

INFO = {"language": "language", "application_version": "applicationVersion", "push_enabled": "pushEnabled"}


STORE = DeviceStore(HASHES)
TABLES = (
    "devices",
    "device_tombstones",
    "push_token_claims",
    "push_token_verdicts",
    "contact_links",
    "contact_merges",
    "contact_tombstones",
)
"""All that a tenant has."""


async def arrive(database: Database, tenant: CustomerId, batch: list[Happening]) -> None:
    """One batch in one transaction, as workers would handle it."""
    async with await database.connect_async(Role.WRITER) as connection:
        if events := [happening.decoded() for happening in batch if happening.topic == topics.WRITER]:
            await STORE.apply_events(connection, {tenant: events})
        for happening in batch:
            if happening.kind == "contact.deleted":
                await STORE.delete_contacts(connection, {tenant: {happening.content["contactId"]: [happening.at]}})
            elif happening.kind == "token.verdict":
                await STORE.apply_verdicts(connection, {tenant: [happening.verdict()]})


def devices(database: Database, tenant: CustomerId) -> dict[tuple[str, str], Device]:
    """The rows as the model sees them."""
    return {
        (row["application_code"], row["client_id"]): Device(
            info={INFO.get(name, name): row[name] for name in (*INFO, "attributes") if name in row["info_versions"]},
            token=row["push_token_hash"].hex() if row["push_token_kind"] else None,
            token_status=row["push_token_status"],
            contact_id=row["contact_id"],
            last_seen=row["last_seen_version"],
        )
        for row in rows(database, tenant)
    }


def rows(database: Database, tenant: CustomerId) -> list[dict[str, Any]]:
    with database.connect(Role.READER) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"SELECT * FROM {quoted_schema(tenant)}.devices ORDER BY 1, 2").fetchall()


def row_versions(database: Database, tenant: CustomerId) -> list[tuple[Any, ...]]:
    """Where each row stands and which transaction wrote it: every write changes that, also one of the same values."""
    with database.connect(Role.READER) as connection:
        return connection.execute(f"SELECT ctid::text, xmin::text FROM {quoted_schema(tenant)}.devices").fetchall()


def random_history(seed: int, length: int) -> list[Happening]:
    choose = random.Random(seed)

    def event() -> Happening:
        kind, payload = choose.choice(
            [
                ("client.registered", '{"language": "en", "platform": "ios"}'),
                ("client.updated", f'{{"language": "{choose.choice(["en", "fr"])}"}}'),
                ("client.updated", f'{{"attributes": {{"n": {choose.randrange(3)}}}, "pushEnabled": true}}'),
                ("client.pushTokenSet", f'{{"kind": "fcm_token", "pushToken": "{choose.choice(TOKENS)}"}}'),
                ("client.pushTokenCleared", "{}"),
                ("client.contactLinked", f'{{"contactId": {choose.choice(CONTACTS)}}}'),
                ("client.contactUnlinked", "{}"),
                ("client.deleted", "{}"),
            ]
        )
        at = choose.randint(1, LATEST)
        match choose.randrange(10):
            case 0:
                return contact_deletion(at, choose.choice(CONTACTS))
            case 1:
                one, other = choose.sample(CONTACTS, 2)
                return contact_merge(at, (one, other))
            case 2:
                kind, status = "token.verdict", choose.choice(["valid", "invalid"])
                payload = f'{{"pushToken": "{choose.choice(TOKENS)}", "status": "{status}"}}'
        return Happening(kind, at, choose.choice(APPLICATIONS), choose.choice(CLIENTS), payload)

    return [event() for _ in range(length)]


def cut(arriving: list[Happening], choose: random.Random) -> list[list[Happening]]:
    batches, rest = [], list(arriving)
    while rest:
        size = choose.randint(1, 6)
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(12))
async def test_concurrent_writers_leave_what_the_rules_say_of_the_history(
    database: Database, tenant: CustomerId, seed: int
) -> None:
    choose = random.Random(seed)
    history = random_history(seed, 60)
    # With concurrent writers only the deletions at the end are certain to come after the links before them.
    arriving = without_late_links(choose.sample(history + history[:20], k=80))
    told = [one for one in arriving if one.kind != "contact.deleted"]
    batches = iter(cut(told, choose))

    async def writer() -> None:
        for batch in batches:
            await arrive(database, tenant, batch)

    await asyncio.gather(*(writer() for _ in range(4)))
    batches = iter(cut([one for one in arriving if one.kind == "contact.deleted"] + told[:20], choose))
    await asyncio.gather(*(writer() for _ in range(4)))

    model = Model(history).devices
    found = devices(database, tenant)
    for device in model.values():
        device.info = {name: value for name, value in device.info.items() if name != "platform"}
    assert found == model
    held = [(app, device.token) for (app, _), device in found.items() if device.token]
    assert len(held) == len(set(held))


@pytest.mark.anyio
@pytest.mark.parametrize("circle", [(42, 41), (42, 43, 41)], ids=["of two contacts", "of three"])
async def test_a_deletion_leaves_whom_merges_in_a_circle_lead_back_to(
    database: Database, tenant: CustomerId, circle: tuple[int, ...]
) -> None:
    link = Happening("client.contactLinked", 10, "A", "c1", '{"contactId": 42}')
    merges = [contact_merge(10, pair) for pair in zip(circle, (*circle[1:], circle[0]), strict=True)]
    deletion = contact_deletion(4, 41)
    for history in ([*merges, deletion, link], [deletion, *merges, link], [link, *merges, deletion]):
        for happening in history:
            await arrive(database, tenant, [happening])
        assert devices(database, tenant) == Model(history).devices
        assert devices(database, tenant)["A", "c1"].contact_id == 42
        tenant = await fresh(database, tenant)


@pytest.mark.anyio
async def test_every_arrival_of_a_takeover_gives_the_token_to_the_newest_claim(
    database: Database, tenant: CustomerId
) -> None:
    token = '{"kind": "fcm_token", "pushToken": "t1"}'
    history = [
        Happening("client.pushTokenSet", 1, "A", "c1", token),
        Happening("client.pushTokenSet", 3, "A", "c2", token),
        Happening("client.updated", 5, "A", "c1", '{"language": "en"}'),
    ]
    for order in itertools.permutations(history):
        for happening in order:
            await arrive(database, tenant, [happening])
        found = devices(database, tenant)
        assert (found["A", "c1"].token, found["A", "c1"].token_status) == (None, "superseded")
        assert found["A", "c2"].token == token_of(history[1]).hex()
        await arrive(database, tenant, [Happening("client.deleted", 9, "A", client) for client in ("c1", "c2")])
        tenant = await fresh(database, tenant)


async def fresh(database: Database, tenant: CustomerId) -> CustomerId:
    async with await database.connect_async(Role.OWNER) as connection:
        for table in TABLES:
            await connection.execute(f"TRUNCATE {quoted_schema(tenant)}.{table}")
    return tenant


@pytest.mark.anyio
async def test_every_column_of_the_contract_is_filled(database: Database, tenant: CustomerId) -> None:
    info = (
        '{"hardwareId": "h", "platform": "web", "applicationVersion": "4.1", "deviceModel": "m", "osVersion": "o",'
        ' "sdkVersion": "s", "language": "fr-CA", "timezone": "Europe/Paris", "pushEnabled": true,'
        ' "pushSettings": {"quiet": [1, 2]}, "attributes": {"x": null}}'
    )
    web = '{"kind": "webpush", "webPush": {"endpoint": "https://p/1", "keys": {"p256dh": "k", "auth": "a"}}}'
    await arrive(
        database,
        tenant,
        [
            Happening("client.registered", 1_700_000_000_000, "A", "c1", info),
            Happening("client.pushTokenSet", 1_700_000_000_001, "A", "c1", web),
            Happening("client.contactLinked", 1_700_000_000_002, "A", "c1", '{"contactId": 42}'),
        ],
    )

    (row,) = rows(database, tenant)
    assert (row["hardware_id"], row["platform"], row["provider"]) == ("h", "web", "vapid")
    assert (row["application_version"], row["device_model"], row["os_version"]) == ("4.1", "m", "o")
    assert (row["sdk_version"], row["language"], row["timezone"]) == ("s", "fr-CA", "Europe/Paris")
    assert (row["push_enabled"], row["push_settings"], row["attributes"]) == (True, {"quiet": [1, 2]}, {"x": None})
    assert (row["push_token"], row["push_token_kind"], row["push_token_status"]) == (None, "webpush", "valid")
    assert row["web_push"] == {"endpoint": "https://p/1", "keys": {"p256dh": "k", "auth": "a"}}
    assert (row["contact_id"], row["orphaned_since"]) == (42, None)
    assert row["last_seen_at"].timestamp() == pytest.approx(1_700_000_000.002)


@pytest.mark.anyio
async def test_a_device_is_an_orphan_since_it_was_unlinked(database: Database, tenant: CustomerId) -> None:
    link = Happening("client.contactLinked", 1_700_000_000_000, "A", "c1", '{"contactId": 42}')
    unlink = Happening("client.contactUnlinked", 1_700_000_005_000, "A", "c1")
    await arrive(database, tenant, [link])
    await arrive(database, tenant, [unlink])

    (row,) = rows(database, tenant)
    assert row["contact_id"] is None
    assert row["orphaned_since"].timestamp() == 1_700_000_005


@pytest.mark.anyio
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "the deletion late"])
async def test_a_device_that_was_deleted_and_came_back_has_clocks_of_its_own(
    database: Database, tenant: CustomerId, together: bool
) -> None:
    await arrive(database, tenant, [Happening("client.registered", 1, "A", "c1", '{"language": "en"}')])
    with database.connect(Role.OWNER) as connection:
        connection.execute(f"UPDATE {quoted_schema(tenant)}.devices SET created_at = now() - interval '40 days'")
    gone = Happening("client.deleted", 10, "A", "c1", "{}")
    back = Happening("client.registered", 11, "A", "c1", '{"platform": "ios"}')
    for batch in [[gone, back]] if together else [[back], [gone]]:
        await arrive(database, tenant, batch)

    (row,) = rows(database, tenant)
    assert (row["language"], row["platform"]) == (None, "ios")
    assert row["orphaned_since"] == row["last_seen_at"] == datetime.fromtimestamp(0.011, UTC)
    assert row["created_at"] > datetime.now(UTC) - timedelta(days=1)


@pytest.mark.anyio
async def test_a_batch_that_changes_nothing_writes_nothing(database: Database, tenant: CustomerId) -> None:
    event = Happening("client.updated", 5, "A", "c1", '{"language": "en", "attributes": {"n": 1.0}}')
    await arrive(database, tenant, [event])
    before = row_versions(database, tenant)

    async with await database.connect_async(Role.WRITER) as connection:
        await STORE.apply_events(connection, {tenant: [event.decoded()]})

    assert len(before) == 1
    assert row_versions(database, tenant) == before


@pytest.mark.anyio
async def test_a_late_event_does_not_bring_back_a_deleted_contacts_device(
    database: Database, tenant: CustomerId
) -> None:
    link = Happening("client.contactLinked", 2, "A", "c1", '{"contactId": 42}')
    await arrive(database, tenant, [link])
    async with await database.connect_async(Role.WRITER) as connection:
        assert await STORE.delete_contacts(connection, {tenant: {42: [5], 43: [5]}}) == {tenant: {42: 1}}
        assert await STORE.delete_contacts(connection, {tenant: {42: [5]}}) == {tenant: {}}

    await arrive(database, tenant, [Happening("client.registered", 4, "A", "c1", '{"language": "en"}')])
    await arrive(database, tenant, [link, Happening("client.contactLinked", 6, "A", "c2", '{"contactId": 42}')])

    # A newer link to the deleted contact counts as an unlink.
    assert devices(database, tenant) == {("A", "c2"): Device(last_seen=6)}


TOKEN = Happening("client.pushTokenSet", 10, "A", "c1", '{"kind": "fcm_token", "pushToken": "t1"}')
DIGEST = token_digest("t1")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict("A", "c1", DIGEST, "invalid", 10), "invalid"),
        (Verdict("A", "c1", DIGEST, "invalid", 15), "invalid"),
        (Verdict("A", "c1", DIGEST, "invalid", 9), "valid"),
        (Verdict("A", "c1", b"another token", "invalid", 15), "valid"),
        (Verdict("A", "c2", DIGEST, "invalid", 15), "invalid"),
        (Verdict("B", "c1", DIGEST, "invalid", 15), "valid"),
    ],
)
async def test_a_verdict_counts_only_for_the_token_that_the_device_holds_and_set_no_later(
    database: Database, tenant: CustomerId, verdict: Verdict, status: str
) -> None:
    await arrive(database, tenant, [TOKEN])
    async with await database.connect_async(Role.WRITER) as connection:
        assert await STORE.apply_verdicts(connection, {tenant: [verdict]}) == int(status == "invalid")

    assert rows(database, tenant)[0]["push_token_status"] == status


@pytest.mark.anyio
async def test_a_verdict_survives_the_same_token_event_but_not_a_newer_one(
    database: Database, tenant: CustomerId
) -> None:
    await arrive(database, tenant, [TOKEN])
    async with await database.connect_async(Role.WRITER) as connection:
        await STORE.apply_verdicts(connection, {tenant: [Verdict("A", "c1", DIGEST, "invalid", 15)]})

    await arrive(database, tenant, [TOKEN])
    assert rows(database, tenant)[0]["push_token_status"] == "invalid"
    await arrive(database, tenant, [Happening("client.pushTokenSet", 20, "A", "c1", TOKEN.payload)])
    assert rows(database, tenant)[0]["push_token_status"] == "valid"


@pytest.mark.anyio
async def test_an_older_verdict_does_not_undo_a_newer_one(database: Database, tenant: CustomerId) -> None:
    await arrive(database, tenant, [TOKEN])
    async with await database.connect_async(Role.WRITER) as connection:
        await STORE.apply_verdicts(connection, {tenant: [Verdict("A", "c1", DIGEST, "invalid", 15)]})
        await STORE.apply_verdicts(connection, {tenant: [Verdict("A", "c1", DIGEST, "valid", 12)]})

    assert rows(database, tenant)[0]["push_token_status"] == "invalid"
