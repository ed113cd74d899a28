"""Who is an orphan: a device without a contact that fell silent, by its own clock. Events through the real tables."""

import itertools
import time
from typing import Any

import pytest

from clientmgr.base.database import Role
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from tests.devices.histories import Happening
from tests.devices.test_store import STORE
from tests.orphans.rig import ONE, Rig

MINUTE, DAY = 60_000, 86_400_000
NOW = time.time_ns() // 1_000_000
"""Epoch milliseconds, as in events."""

pytestmark = pytest.mark.anyio


def registered(at: int, payload: str = '{"platform": "ios"}') -> Happening:
    return Happening("client.registered", at, "A", "c1", payload)


def linked(at: int) -> Happening:
    return Happening("client.contactLinked", at, "A", "c1", '{"contactId": 42}')


def unlinked(at: int) -> Happening:
    return Happening("client.contactUnlinked", at, "A", "c1")


def token_set(at: int) -> Happening:
    return Happening("client.pushTokenSet", at, "A", "c1", '{"kind": "fcm_token", "pushToken": "t"}')


async def arrive(rig: Rig, *history: Happening) -> None:
    """Each in a batch of its own, in this order."""
    for happening in history:
        async with await rig.database.connect_async(Role.WRITER) as connection:
            await STORE.apply_events(connection, {ONE: [happening.decoded()]})


def deleted(rig: Rig) -> int:
    """How many go when everybody without a contact is looked at."""
    rig.find(ONE)
    return rig.run(ONE)[0].deleted


async def test_a_device_seen_a_minute_ago_stays_however_long_ago_it_was_unlinked(rig: Rig) -> None:
    await arrive(rig, registered(NOW - 60 * DAY), linked(NOW - 50 * DAY), unlinked(NOW - 40 * DAY))
    await arrive(rig, Happening("client.updated", NOW - MINUTE, "A", "c1", '{"language": "en"}'))

    assert deleted(rig) == 0


@pytest.mark.parametrize(
    "history",
    [
        [registered(NOW - 90 * DAY)],
        [registered(NOW - 90 * DAY), token_set(NOW - 80 * DAY)],
        [registered(NOW - 90 * DAY), linked(NOW - 80 * DAY), unlinked(NOW - 70 * DAY)],
        [unlinked(NOW - 70 * DAY)],
    ],
    ids=["registered", "with a token", "unlinked", "nothing but an unlink"],
)
async def test_a_device_silent_for_long_by_its_own_clock_goes_though_it_was_ingested_just_now(
    rig: Rig, history: list[Happening]
) -> None:
    await arrive(rig, *history)

    assert deleted(rig) == 1


async def test_a_device_silent_for_long_stays_with_its_contact(rig: Rig) -> None:
    await arrive(rig, registered(NOW - 90 * DAY), linked(NOW - 80 * DAY))

    assert deleted(rig) == 0


@pytest.mark.parametrize("kind", ["client.registered", "client.contactUnlinked", "client.pushTokenCleared"])
async def test_any_event_of_the_device_is_a_sign_of_life(rig: Rig, kind: str) -> None:
    await arrive(rig, registered(NOW - 90 * DAY), Happening(kind, NOW - 29 * DAY, "A", "c1"))

    assert deleted(rig) == 0


async def test_a_late_event_from_long_ago_does_not_make_a_device_younger(rig: Rig) -> None:
    await arrive(rig, registered(NOW - 40 * DAY))
    await arrive(rig, registered(NOW - 60 * DAY, '{"language": "en"}'), unlinked(NOW - 50 * DAY))

    assert deleted(rig) == 1


async def test_a_late_event_from_long_ago_does_not_make_a_device_older(rig: Rig) -> None:
    await arrive(rig, registered(NOW - MINUTE), unlinked(NOW - 50 * DAY))

    assert deleted(rig) == 0


async def test_a_providers_verdict_is_no_sign_of_life_of_the_device(rig: Rig) -> None:
    await arrive(rig, token_set(NOW - 40 * DAY))
    async with await rig.database.connect_async(Role.WRITER) as connection:
        verdict = Verdict("A", "c1", token_digest("t"), "invalid", NOW)
        assert await STORE.apply_verdicts(connection, {ONE: [verdict]}) == 1

    assert deleted(rig) == 1


async def test_a_sign_of_life_between_search_and_deletion_saves_the_device(rig: Rig) -> None:
    await arrive(rig, registered(NOW - 90 * DAY))
    rig.find(ONE)
    await arrive(rig, Happening("client.updated", NOW - MINUTE, "A", "c1", '{"language": "en"}'))

    (result,) = rig.run(ONE)

    assert (result.deleted, result.spared) == (0, 1)
    assert rig.clients(ONE) == {"c1"}


async def test_late_news_of_a_deleted_orphan_does_not_bring_it_back_and_a_new_life_does(rig: Rig) -> None:
    await arrive(rig, registered(NOW - 90 * DAY))
    assert deleted(rig) == 1

    await arrive(rig, registered(NOW - 91 * DAY))
    assert rig.clients(ONE) == set()
    await arrive(rig, registered(NOW))
    assert rig.clients(ONE) == {"c1"}


HISTORY = (
    registered(NOW - 90 * DAY, '{"platform": "ios", "language": "en"}'),
    token_set(NOW - 85 * DAY),
    Happening("client.updated", NOW - 80 * DAY, "A", "c1", '{"language": "fr"}'),
    Happening("client.updated", NOW - 70 * DAY, "A", "c1", '{"platform": "android"}'),
)


async def test_the_order_of_arrival_changes_nothing_about_a_device_that_never_had_a_contact(rig: Rig) -> None:
    outcomes: set[tuple[Any, ...]] = set()
    for arrival in itertools.permutations(HISTORY):
        rig.query('TRUNCATE "tenant_1".devices, "tenant_1".push_token_claims')
        await arrive(rig, *arrival)
        outcomes |= set(rig.query('SELECT orphaned_since, last_seen_at FROM "tenant_1".devices'))

    ((orphaned_since, last_seen_at),) = outcomes
    assert orphaned_since.timestamp() * 1000 == NOW - 85 * DAY, "the oldest that still is known of it"
    assert last_seen_at.timestamp() * 1000 == NOW - 70 * DAY


async def test_devices_that_an_earlier_release_wrote_follow_the_rule(rig: Rig) -> None:
    """It gave a device that never had a contact the moment of its ingestion."""
    await arrive(rig, registered(NOW - 90 * DAY))
    rig.query('UPDATE "tenant_1".devices SET orphaned_since = created_at')

    assert deleted(rig) == 1
