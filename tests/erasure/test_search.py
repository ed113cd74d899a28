"""The search that the promise is about: after a deletion and a sweep, nothing of it is found anywhere."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Dead, Message
from clientmgr.contracts import topics
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.local.embedded.postgres import binaries
from clientmgr.local.embedded.redis import EmbeddedRedis
from streaming import contact_deletion, push_token_status, writer
from streaming.device_mapper.mapper import daemon
from tests.broker.recording import Recorder, drain
from tests.device_mapper.samples import message as sending
from tests.device_mapper.samples import recipient
from tests.erasure.deleting import Erasing
from tests.gateway.conftest import PROJECT, Clients, clients_of  # noqa: F401  # a fixture
from tests.streaming.rig import NOW, event

pytestmark = pytest.mark.anyio

CONTACT, OTHER_CONTACT = 918_273_645_546, 5
EMAIL, HARDWARE, PHONE, BROWSER = "anna@example.com", "hw-8472-secret", "client-phone-1f3a", "client-browser-9b2c"
TOKEN, ENDPOINT = "t0k3n-of-annas-phone", "https://push.example.com/send/annas-browser"
PLANTED = (str(CONTACT), EMAIL, HARDWARE, PHONE, BROWSER, TOKEN, ENDPOINT)
OTHERS = ("client-of-bob", "token-of-bob")
MAPPER = DeviceMapperTopics("tx", "dg00")
APPLICATION = "EMS11-C3FD3"


def told(event_type: str, client: str, at: int, **payload: Any) -> dict[str, Any]:
    return event(event_type, client=client, at=NOW + at, application=APPLICATION, **payload)


async def live(erasing: Erasing) -> None:
    """Anna and Bob live: they register, get messages, verdicts and failures, all through the real daemons."""
    info = {"pushEnabled": True, "language": "en"}
    web_push = {"endpoint": ENDPOINT, "keys": {"p256dh": "p", "auth": "a"}}
    await erasing.publish(
        told("registered", PHONE, 1, platform="ios", hardwareId=HARDWARE, attributes={"email": EMAIL}, **info),
        told("pushTokenSet", PHONE, 2, pushToken=TOKEN, kind="apns"),
        told("contactLinked", PHONE, 3, contactId=CONTACT),
        told("registered", BROWSER, 1, platform="web", **info),
        told("pushTokenSet", BROWSER, 2, webPush=web_push, kind="webpush"),
        told("contactLinked", BROWSER, 3, contactId=CONTACT),
        told("registered", "client-of-bob", 1, platform="ios", **info),
        told("pushTokenSet", "client-of-bob", 2, pushToken="token-of-bob", kind="apns"),
        told("contactLinked", "client-of-bob", 3, contactId=OTHER_CONTACT),
        # What nobody can handle goes to the error topic, with a text that quotes it.
        told("updated", PHONE, 4, hardwareId=HARDWARE, timezone=[EMAIL]),
        told("pushTokenSet", PHONE, 5, pushToken=TOKEN, kind="no such kind"),
    )
    broken = f'{{"customerId":7,"applicationCode":"{APPLICATION}","clientId":"{PHONE}","attributes":{{"email":"{EMAIL}'
    await erasing.put_into_log(topics.WRITER, Message(broken.encode(), "7"))
    await erasing.burst(writer.DAEMON)
    recipients = [recipient(CONTACT), recipient(OTHER_CONTACT)]
    await erasing.publish(sending(expiresAt=4 * 10**12, recipients=recipients), topic=MAPPER.input)
    await erasing.publish(sending(messageId="late", expiresAt=1, recipients=[recipient(CONTACT)]), topic=MAPPER.input)
    await erasing.burst(daemon(MAPPER), client_fetcher_fallback_enabled=False)
    verdict = {
        "eventId": "v", "customerId": 7, "applicationCode": APPLICATION, "clientId": PHONE, "status": "invalid",
        "reason": "Unregistered", "occurredAt": NOW + 9,
    }  # fmt: skip
    await erasing.publish(verdict | {"pushToken": TOKEN}, topic=topics.PUSH_TOKEN_STATUS)
    await erasing.publish(verdict | {"clientId": BROWSER, "endpoint": ENDPOINT}, topic=topics.WEB_PUSH_TOKEN_STATUS)
    await erasing.burst(push_token_status.daemon(push_token_status.TokenType.BOTH))
    await _fail_elsewhere(erasing)


async def _fail_elsewhere(erasing: Erasing) -> None:
    """Somebody else's reader fails at messages that lie under another tenant's label."""
    topic = "elsewhere"
    for one in (told("registered", PHONE, 1, attributes={"email": EMAIL}), {"customerId": 7, "contactId": CONTACT}):
        await erasing.publish(one | {"customerId": 7}, topic=topic)
    erasing.query(
        "UPDATE clientmgr.outbox_message_t SET host_id = '8', user_id = %s WHERE topic_id ="
        " (SELECT id FROM clientmgr.log_counter WHERE topic = 'elsewhere')",
        PHONE,
    )
    await erasing.broker.ensure_subscription("elsewhere-reader", topic)
    await drain(erasing.broker, Recorder(lambda _: Dead(f"{EMAIL} failed")), subscription="elsewhere-reader")


def pg_dump(erasing: Erasing) -> str:
    """The whole database as text, messages included."""
    dumped = subprocess.run(
        [binaries() / "pg_dump", "--data-only", "--inserts", erasing.database.url],
        env={**os.environ, "PGOPTIONS": "-c bytea_output=escape"},
        capture_output=True,
        check=True,
    )
    return dumped.stdout.decode(errors="replace")


def redis_dump(url: str) -> str:
    client = redis.Redis.from_url(url)
    try:
        return "\n".join(f"{key!r} {client.dump(key)!r}" for key in client.scan_iter())
    finally:
        client.close()


def found(text: str, planted: tuple[str, ...] = PLANTED) -> list[str]:
    hexadecimal = text.lower()
    return [one for one in planted if one in text or one.encode().hex() in hexadecimal]


async def read_with_seek(erasing: Erasing, connect: Callable[[str], Clients]) -> str:
    """Every topic from its beginning, as a new subscriber at the gateway reads it."""
    names = [
        name
        for (name,) in erasing.query(
            "SELECT topic FROM clientmgr.log_counter WHERE id IN (SELECT topic_id FROM clientmgr.outbox_message_t)"
        )
    ]
    settings = erasing.settings.model_copy(update={"pubsub_gateway_port": 0})
    async with Gateway(settings, erasing.database) as gateway:
        clients = connect(gateway.address)

        def read() -> str:
            texts = []
            for name in names:
                subscription = clients.subscription(clients.publisher.topic_path(PROJECT, name))
                back = datetime.now(UTC) - timedelta(days=1)
                clients.subscriber.seek(request={"subscription": subscription, "time": back})
                texts += [str(one.message) for one in clients.pull(subscription)]
            return "\n".join(texts)

        return await asyncio.to_thread(read)


@pytest.fixture
def whole(erasing: Erasing, redis_server: EmbeddedRedis) -> Erasing:
    return replace(erasing, settings=erasing.settings.model_copy(update={"redis_url": redis_server.url}))


async def test_nothing_of_a_deleted_contact_is_found_anywhere(
    whole: Erasing,
    clients_of: Callable[[str], Clients],  # noqa: F811
) -> None:
    await live(whole)
    assert found(pg_dump(whole)) == list(PLANTED), "the search finds what is there"
    assert found(await read_with_seek(whole, clients_of)) == list(PLANTED)

    deletion = {"eventId": "d", "customerId": 7, "contactId": CONTACT, "deletedAt": NOW + 100}
    await whole.publish(deletion, topic=topics.CONTACT_DELETION)
    await whole.burst(contact_deletion.DAEMON)
    whole.sweep()

    assert found(pg_dump(whole)) == []
    assert found(await read_with_seek(whole, clients_of)) == []
    assert found(redis_dump(whole.settings.redis_url)) == []
    assert found(pg_dump(whole), OTHERS) == list(OTHERS), "and Bob is still here"
    assert sorted(whole.devices()) == ["client-of-bob"]


async def test_nothing_of_a_deleted_account_is_found_anywhere(
    whole: Erasing,
    clients_of: Callable[[str], Clients],  # noqa: F811
) -> None:
    await live(whole)

    whole.delete(7)
    whole.sweep()

    assert found(pg_dump(whole), PLANTED + OTHERS) == []
    assert found(await read_with_seek(whole, clients_of), PLANTED + OTHERS) == []
    assert found(redis_dump(whole.settings.redis_url), PLANTED + OTHERS) == []


def test_a_sweep_that_is_killed_is_finished_by_the_next(erasing: Erasing) -> None:
    """Counted: everything erased, nothing else touched, no message lost or doubled."""
    messages = 6000
    erasing.query("INSERT INTO clientmgr.log_counter (topic, next_offset) VALUES ('big', %s)", messages + 1)
    erasing.query(
        "INSERT INTO clientmgr.outbox_message_t (topic_id, partition_id, c_offset, tx_last_offset, transaction_id,"
        " host_id, user_id, payload) SELECT c.id, 0, n, n, gen_random_uuid(), '7', n::text,"
        " convert_to(format('{\"customerId\": 7, \"contactId\": %%s}', 1 + n %% 2), 'UTF8')"
        " FROM clientmgr.log_counter AS c, generate_series(1, %s) AS n WHERE c.topic = 'big'",
        messages,
    )
    others = (
        "SELECT c_offset, user_id, md5(payload), attributes FROM clientmgr.outbox_message_t WHERE c_offset %% 2 = 1"
    )
    before = erasing.query(f"{others} AND true = %s ORDER BY 1", True)
    erased = "SELECT count(*) FROM clientmgr.outbox_message_t WHERE attributes ? 'clientmgr-erased'"
    erasing.delete_contact(1)

    kills = 0
    for at_least in (1, messages // 6, messages // 3):
        process = subprocess.Popen(
            [sys.executable, "-c", "from clientmgr.cli import main; main()", "erasure", "sweep"],
            env={**os.environ, **erasing.settings.environment()},
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and erasing.query(erased)[0][0] < at_least:
            pass
        kills += process.poll() is None
        process.kill()
        process.wait(30)
    half_way = erasing.query(erased)[0][0]

    erasing.sweep()

    assert kills, "at least one was killed at work"
    assert half_way > 0
    assert erasing.query(erased) == [(messages // 2,)]
    assert erasing.query(f"{others} AND true = %s ORDER BY 1", True) == before
    assert erasing.query("SELECT count(*), min(c_offset), max(c_offset) FROM clientmgr.outbox_message_t") == [
        (messages, 1, messages)
    ]
    payloads = erasing.query("SELECT DISTINCT convert_from(payload, 'UTF8') FROM clientmgr.outbox_message_t ORDER BY 1")
    assert payloads == [('{"customerId": 7, "contactId": 2}',), ('{"erased":true,"customerId":7}',)]
