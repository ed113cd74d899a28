"""Every fetch strategy with a legacy store in every state: what the mapper refuses, answers, or keeps for later."""

from collections.abc import Iterator
from typing import Any

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.errors import SettingsError
from clientmgr.contracts.topics import DEVICE_MAPPER_ERRORS, NOT_SENT, DeviceMapperTopics
from clientmgr.tenants.flippers import Flipper, set_flipper
from streaming.device_mapper.mapper import daemon
from tests.device_mapper.conftest import ON_THE_LOG, add_device
from tests.device_mapper.dynamodb import DynamoDb, MoodyDynamoDb
from tests.device_mapper.samples import APPLICATION, message, recipient
from tests.streaming.rig import Rig

pytestmark = pytest.mark.anyio

TX = DeviceMapperTopics("tx", "dg00")
HERE, THERE = 910_001, 910_002  # nobody else's in the table that all share
"""Contacts: of the first both stores have a device, of the second the legacy store alone."""

USE, ALONE = Flipper.USE_POSTGRES_DEVICE_MAPPER, Flipper.CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER
STRATEGIES: dict[str, tuple[set[Flipper], dict[str, Any]]] = {
    "legacy store": (set(), {}),
    "postgres, then legacy store": ({USE}, {}),
    "postgres for this customer": ({USE, ALONE}, {}),
    "CLIENT_FETCHER_FALLBACK_ENABLED=false": (set(), {"client_fetcher_fallback_enabled": False}),
    "LEGACY_STORE=none": (set(), {"legacy_store": "none"}),
}

Says = tuple[int, bytes]
SET_UP_WRONGLY: dict[str, Says] = {
    "unknown credentials": (400, b'{"__type":"x#UnrecognizedClientException"}'),
    "no such table": (400, b'{"__type":"x#ResourceNotFoundException"}'),
    "another kind of server": (200, b"<html>Welcome</html>"),
}
AWAY = ("absent", "silent", "throttling")

REFUSED, WAITS = "is refused at the start", "waits"
Outcome = str | tuple[str, str]
"""What becomes of the messages to HERE and to THERE: the device that got it, why nobody did, or that it waits."""

FROM_POSTGRES = ("new", "NO_DEVICES")
WHAT_HAPPENS: dict[str, dict[str, Outcome]] = {
    "legacy store": {
        "well": ("old", "old"),
        **dict.fromkeys(AWAY, (WAITS, WAITS)),
        **dict.fromkeys(SET_UP_WRONGLY, REFUSED),
    },
    "postgres, then legacy store": {
        "well": ("new", "old"),
        **dict.fromkeys(AWAY, ("new", WAITS)),
        **dict.fromkeys(SET_UP_WRONGLY, REFUSED),
    },
    # Other customers of the process may need the store: it is looked at, and not asked for this one.
    "postgres for this customer": {
        **dict.fromkeys(["well", *AWAY], FROM_POSTGRES),
        **dict.fromkeys(SET_UP_WRONGLY, REFUSED),
    },
    **{
        alone: dict.fromkeys(["well", *AWAY, *SET_UP_WRONGLY], FROM_POSTGRES)
        for alone in ("CLIENT_FETCHER_FALLBACK_ENABLED=false", "LEGACY_STORE=none")
    },
}
LOOKED_AT = {"CLIENT_FETCHER_FALLBACK_ENABLED=false": 0, "LEGACY_STORE=none": 0, "postgres for this customer": 1}
"""Requests that the store gets in a run of a mapper that does not ask it for this customer."""


class Store(MoodyDynamoDb):
    """Of any mood, or set up so that it says one thing to everybody."""

    says: Says | None = None

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        return self.says or super().answer(body, headers)


@pytest.fixture
def store(dynamodb: DynamoDb) -> Iterator[tuple[Store, str]]:
    store = Store(dynamodb)
    dynamodb.put(7, HERE, APPLICATION, "old")
    dynamodb.put(7, THERE, APPLICATION, "old")
    with store.serving() as url:
        yield store, url


def outcome(rig: Rig, message_id: str) -> str:
    sent = [one.event["clientId"] for one in rig.topic(TX.outputs["apple"]) if one.event["messageId"] == message_id]
    not_sent = [one.event["reason"] for one in rig.topic(NOT_SENT) if one.event["messageId"] == message_id]
    (found,) = [*sent, *not_sent] or [WAITS]
    return str(found)


@ON_THE_LOG
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_strategy_does_what_it_says_with_a_store_in_each_state(
    rig: Rig, store: tuple[Store, str], strategy: str
) -> None:
    server, url = store
    flippers, settings = STRATEGIES[strategy]
    add_device(rig, HERE, "new")
    with rig.database.connect(Role.WRITER) as connection:
        for flipper in flippers:
            audit = AuditLogger.from_settings(rig.settings)
            set_flipper(connection, audit, flipper, CustomerId(7), enabled=True, actor="test")

    def outcomes(state: str) -> tuple[str, str]:
        return outcome(rig, f"{state}-{HERE}"), outcome(rig, f"{state}-{THERE}")

    async def run(state: str) -> str:
        server.mood = state if state in AWAY and state != "absent" else "well"  # type: ignore[assignment]
        server.says = SET_UP_WRONGLY.get(state)
        endpoint = "http://127.0.0.1:1" if state == "absent" else url
        waiting = {"dynamodb_timeout_ms": 100 if state == "silent" else 30_000, "dynamodb_patience_ms": 100}
        try:
            await rig.burst(
                daemon(TX), **{"legacy_store": "dynamodb", "dynamodb_endpoint": endpoint, **waiting, **settings}
            )
        except SettingsError as error:
            return REFUSED if "To mend it, " in str(error) else str(error)
        return "started"

    happened: dict[str, Outcome] = {}
    for state in WHAT_HAPPENS[strategy]:
        for contact in (HERE, THERE):
            body = message(messageId=f"{state}-{contact}", expiresAt=4_000_000_000_000, recipients=[recipient(contact)])
            await rig.publish(body, topic=TX.input)
        server.requests = 0
        is_refused = await run(state) == REFUSED
        happened[state] = REFUSED if is_refused else outcomes(state)
        if strategy in LOOKED_AT and state != "absent" and not is_refused:
            assert server.requests == LOOKED_AT[strategy]
        if happened[state] == REFUSED or WAITS in happened[state]:
            # As soon as the store is well again, what was kept has the outcome of a store that is well, once.
            rig.make_due()
            await run("well")
        assert outcomes(state) == WHAT_HAPPENS[strategy]["well"]

    assert happened == WHAT_HAPPENS[strategy]
    assert (rig.topic(DEVICE_MAPPER_ERRORS), rig.dead_letters()) == ([], [])
