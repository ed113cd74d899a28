"""SIGKILL in the middle of thousands of recipients: each has its outputs or one not-sent, never both, never neither.

By default some thousand recipients. `make kill-device-mapper` makes it 50,000 (DEVICE_MAPPER_KILL_RECIPIENTS).
"""

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts.topics import NOT_SENT, DeviceMapperTopics
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.device_mapper.samples import APPLICATION, message, recipient
from tests.gateway.process import GatewayProcess
from tests.streaming.crew import END_LEASES, UNREAD
from tests.streaming.processes import worker
from tests.streaming.rig import read_topic, until

pytestmark = pytest.mark.anyio

LARGE = os.environ.get("DEVICE_MAPPER_KILL_RECIPIENTS")
RECIPIENTS = {"postgres": int(LARGE or 6000), "pubsub": int(LARGE or 1500)}
A_MESSAGE = {"postgres": 100, "pubsub": 100 if LARGE else 25}
KILLS = {"postgres": 3, "pubsub": 1}
TENANTS = range(1, 6)
TOPICS = DeviceMapperTopics("batch", "dg00")
OUTPUTS = (TOPICS.outputs["apple"], TOPICS.outputs["fcm"])

# By contact id: every fourth has no device, the others one or two; one in five of these is turned off.
DEVICES = f"""
    INSERT INTO {{schema}}.devices (application_code, client_id, contact_id, platform, provider, push_enabled,
        push_token, push_token_kind, push_token_status, language)
    SELECT '{APPLICATION}', contact || '-' || device, contact, 'ios', CASE device WHEN 1 THEN 'apple' ELSE 'fcm' END,
        contact %% 5 <> 0, 't' || contact || device, CASE device WHEN 1 THEN 'apns' ELSE 'fcm_fid' END, 'valid', 'en'
    FROM generate_series(1, %s) AS contact, generate_series(1, contact %% 4) AS device WHERE device <= 2
"""


def expected_clients(contact: int) -> list[str]:
    return [] if contact % 5 == 0 else [f"{contact}-{device}" for device in range(1, min(contact % 4, 2) + 1)]


@pytest.fixture(params=["postgres", "pubsub"])
async def settings(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    database: Database,
    settings_for: Callable[[Database], Settings],
    tmp_path: Path,
) -> AsyncIterator[Settings]:
    small_batches = {"client_fetcher_fallback_enabled": False, "device_mapper_postgres_messages": 3}
    settings = settings_for(database).model_copy(update={"broker": request.param, **small_batches})
    if request.param == "postgres":
        yield settings
        return
    gateway = GatewayProcess(database, tmp_path / "gateway.log", poll_ms=100)
    gateway.start()
    yield settings.model_copy(update={"pubsub_emulator_host": gateway.address, "pubsub_ack_deadline_s": 10})
    gateway.stop()


async def publish(settings: Settings, database: Database) -> int:
    """Messages for all contacts of all tenants, in turn; returns how many contacts a tenant has."""
    contacts, a_message = RECIPIENTS[settings.broker] // len(TENANTS), A_MESSAGE[settings.broker]
    TenantSchemaManager(database, settings).activate(TENANTS, actor="test")
    with database.connect(Role.OWNER) as connection:
        for tenant in TENANTS:
            connection.execute(DEVICES.format(schema=f'"tenant_{tenant}"').encode(), (contacts,))
    async with open_broker(settings, database) as broker:
        await broker.ensure_topic(TOPICS.input)
        await broker.ensure_subscription(TOPICS.subscription, TOPICS.input)
        for start in range(1, contacts + 1, a_message):
            some = range(start, min(start + a_message, contacts + 1))
            for tenant in TENANTS:
                body = message(
                    messageId=f"{tenant}-{start}",
                    customerId=tenant,
                    expiresAt=4_000_000_000_000,
                    recipients=[recipient(contact) for contact in some],
                )
                await broker.publish(TOPICS.input, [Message(json.dumps(body).encode(), str(tenant))])
    return contacts


def unread(settings: Settings, database: Database) -> int:
    with database.connect(Role.OWNER, autocommit=True) as connection:
        ((count,),) = connection.execute(
            UNREAD[settings.broker].encode(), {"subscription": TOPICS.subscription}
        ).fetchall()
    return int(count)


async def test_killed_over_and_over_every_recipient_has_exactly_its_outputs_or_one_not_sent(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    contacts = await publish(settings, database)
    total = unread(settings, database)
    kills_at_work = 0
    for number in range(1, KILLS[settings.broker] + 1):
        mark = total - total * number // (KILLS[settings.broker] + 1)
        with worker(settings, tmp_path, "device-mapper", "--type", "batch") as killed:
            await until(lambda mark=mark: unread(settings, database) <= mark, killed.log, every_s=0.005)  # type: ignore[misc]
        kills_at_work += unread(settings, database) > 0
        if settings.broker == "pubsub" and not LARGE:  # a small run does not wait for that
            with database.connect(Role.OWNER) as connection:
                connection.execute(END_LEASES)
    with worker(settings, tmp_path, "device-mapper", "--type", "batch") as last:
        await until(lambda: unread(settings, database) == 0, "all is read", every_s=0.1)
        last.send(signal.SIGTERM)
        assert last.wait() == 0

    assert kills_at_work == KILLS[settings.broker]
    sent = Counter(key_of(one.event) for topic in OUTPUTS for one in read_topic(database, topic))
    not_sent = Counter((one.event["customerId"], one.event["contactId"]) for one in read_topic(database, NOT_SENT))
    wanted = {
        (tenant, contact, client)
        for tenant in TENANTS
        for contact in range(1, contacts + 1)
        for client in expected_clients(contact)
    }
    nobody = {
        (tenant, contact) for tenant in TENANTS for contact in range(1, contacts + 1) if not expected_clients(contact)
    }
    assert {key[:3] for key in sent} == wanted
    assert set(not_sent) == nobody
    # Never two ids for one device, however often it was mapped.
    assert len(sent) == len(wanted)
    if settings.broker == "postgres":
        assert set(sent.values()) == set(not_sent.values()) == {1}, "exactly once"


def key_of(event: dict[str, Any]) -> tuple[int, int, str, str]:
    return event["customerId"], event["contactId"], event["clientId"], event["outMessageId"]
