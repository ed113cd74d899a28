"""The push-token status updater: verdicts on tokens that a device still holds count, all others change nothing."""

import asyncio
import time
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.broker.interface import Batch
from clientmgr.contracts import topics
from clientmgr.tenants.directory import TenantDirectory
from streaming import push_token_status, writer
from streaming.push_token_status import PushTokenStatusUpdater, TokenType
from streaming.runtime.daemon import Services, consume_on
from tests.streaming.rig import NOW, Rig, event, until

pytestmark = pytest.mark.anyio

WEB = {"endpoint": "https://push.example/1", "keys": {"p256dh": "p", "auth": "a"}}


def verdict(status: str = "invalid", *, at: int = NOW + 5, client: str = "c1", **token: Any) -> dict[str, Any]:
    return {
        "eventId": "v",
        "customerId": 7,
        "applicationCode": "A",
        "clientId": client,
        "status": status,
        "reason": "Unregistered",
        "occurredAt": at,
        **(token or {"pushToken": "t1"}),
    }


async def with_a_token_each(rig: Rig) -> None:
    """c1 holds t1 since NOW, w1 a web push subscription."""
    await rig.publish(
        event("pushTokenSet", kind="fcm_token", pushToken="t1"),
        event("pushTokenSet", client="w1", kind="webpush", webPush=WEB),
    )
    await rig.burst(writer.DAEMON)


def statuses(rig: Rig) -> dict[str, str]:
    return {client: device["push_token_status"] for client, device in rig.devices().items()}


async def test_verdicts_of_both_senders_are_applied_in_one_process(rig: Rig) -> None:
    await with_a_token_each(rig)
    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    await rig.publish(verdict(client="w1", endpoint=WEB["endpoint"]), topic=topics.WEB_PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.BOTH))

    assert statuses(rig) == {"c1": "invalid", "w1": "invalid"}


@pytest.mark.parametrize(
    ("token_type", "found"),
    [(TokenType.PUSH, {"c1": "invalid", "w1": "valid"}), (TokenType.WEB, {"c1": "valid", "w1": "invalid"})],
)
async def test_one_kind_alone_leaves_the_other_in_its_topic(
    rig: Rig, token_type: TokenType, found: dict[str, str]
) -> None:
    await with_a_token_each(rig)
    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    await rig.publish(verdict(client="w1", endpoint=WEB["endpoint"]), topic=topics.WEB_PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(token_type))
    assert statuses(rig) == found

    await rig.burst(push_token_status.daemon(TokenType.BOTH))
    assert statuses(rig) == {"c1": "invalid", "w1": "invalid"}


async def test_a_verdict_on_a_token_that_was_replaced_or_set_again_since_changes_nothing(rig: Rig) -> None:
    await with_a_token_each(rig)
    await rig.publish(event("pushTokenSet", at=NOW + 9, kind="fcm_token", pushToken="t2"))
    await rig.burst(writer.DAEMON)
    await rig.publish(verdict(at=NOW + 20), verdict(pushToken="t2", at=NOW + 8), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert statuses(rig)["c1"] == "valid"

    await rig.publish(verdict(pushToken="t2", at=NOW + 9), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert statuses(rig)["c1"] == "invalid"


async def test_of_several_verdicts_the_latest_stands_whatever_their_order(rig: Rig) -> None:
    await with_a_token_each(rig)
    await rig.publish(verdict("invalid", at=NOW + 9), verdict("valid", at=NOW + 5), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    await rig.publish(verdict("valid", at=NOW + 7), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert statuses(rig)["c1"] == "invalid"

    await rig.publish(verdict("valid", at=NOW + 10), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert statuses(rig)["c1"] == "valid"


async def test_a_verdict_that_makes_no_sense_is_a_dead_letter_and_the_others_count(rig: Rig) -> None:
    await with_a_token_each(rig)
    no_token = verdict() | {"pushToken": None}
    unknown = verdict() | {"customerId": 99}
    bodies = await rig.publish(
        no_token, verdict(), unknown, verdict("maybe"), verdict(client="a\0"), topic=topics.PUSH_TOKEN_STATUS
    )
    await rig.burst(push_token_status.daemon(TokenType.PUSH))

    assert statuses(rig)["c1"] == "invalid"
    dead = {data: (error_class, error) for data, error_class, error in rig.dead_letters()}
    assert dead.keys() == {bodies[0], bodies[2], bodies[3], bodies[4]}
    assert dead[bodies[0]][1].startswith("pushToken")
    assert dead[bodies[2]][0] == "UnknownTenantError"
    assert dead[bodies[3]][1].startswith("status")


async def test_verdicts_of_a_locked_tenant_come_again(rig: Rig) -> None:
    await with_a_token_each(rig)
    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    rig.query("ALTER TABLE tenant_7.devices RENAME TO lost")
    stats = await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert stats.retried >= 1

    rig.query("ALTER TABLE tenant_7.lost RENAME TO devices")
    rig.make_due()
    await rig.burst(push_token_status.daemon(TokenType.PUSH))
    assert statuses(rig)["c1"] == "invalid"


async def test_a_batch_is_handled_when_it_is_full_and_not_before_unless_time_is_up(rig: Rig) -> None:
    sizes: list[int] = []

    class Watched(PushTokenStatusUpdater):
        async def __call__(self, batch: Batch) -> Any:
            sizes.append(len(batch.messages))
            return await super().__call__(batch)

    database = Database.from_settings(rig.settings)
    tenants = TenantDirectory(rig.settings)

    def patient(services: Services) -> Any:
        (source,) = push_token_status.daemon(TokenType.PUSH).sources(services)
        return [type(source)(source.topic, Watched(Services(rig.settings, database, tenants)), source.options)]

    daemon = type(writer.DAEMON)("push-token-status", patient)
    settings = rig.settings.model_copy(update={"push_token_status_batch_size": 10, "push_token_status_wait_ms": 60_000})
    stop = asyncio.Event()
    await rig.publish(*(verdict(client=f"c{n}") for n in range(6)), topic=topics.PUSH_TOKEN_STATUS)
    running = asyncio.create_task(consume_on(rig.broker, daemon, settings, stop))
    await rig.publish(*(verdict(client=f"d{n}") for n in range(4)), topic=topics.PUSH_TOKEN_STATUS)
    await until(lambda: sizes == [10], "a full batch, long before its time is up")
    stop.set()
    await running

    await rig.publish(verdict(), topic=topics.PUSH_TOKEN_STATUS)
    await rig.burst(daemon, push_token_status_batch_size=10, push_token_status_wait_ms=100)
    assert sizes == [10, 1]


async def test_verdicts_of_many_tenants_wait_for_their_batches_together(rig: Rig) -> None:
    wait_s = 1.0
    tenants = range(100, 140)  # over all partitions of the log
    await rig.publish(*(verdict() | {"customerId": tenant} for tenant in tenants), topic=topics.PUSH_TOKEN_STATUS)
    started = time.monotonic()
    await rig.burst(push_token_status.daemon(TokenType.PUSH), push_token_status_wait_ms=1000 * wait_s)

    assert len(rig.dead_letters()) == len(tenants)  # no such tenants: each was looked at
    assert time.monotonic() - started < 6 * wait_s
