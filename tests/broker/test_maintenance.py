"""What the gateway's process does for the log now and then."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from clientmgr.audit.anchoring import read_last_anchors
from clientmgr.audit.log import AuditLogger
from clientmgr.audit.places.configured import anchor_places
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Dead
from clientmgr.broker.postgres.lag import LagExport
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from clientmgr.operations.maintenance import run_maintenance
from clientmgr.operations.samples import take_sample
from tests.broker.recording import SUBSCRIPTION, TOPIC, Recorder, drain, messages, ready, until

pytestmark = pytest.mark.anyio


async def test_old_messages_go_and_the_lag_is_told(
    log_broker: PostgresBroker,
    database: Database,
    settings_for: Callable[[Database], Settings],
    query: Callable[..., list[tuple[Any, ...]]],
) -> None:
    await ready(log_broker)
    await log_broker.publish(TOPIC, messages(range(3)))
    await drain(log_broker)
    await log_broker.publish(TOPIC, messages(range(2)))
    settings = settings_for(database).model_copy(update={"broker_retention_hours": 0.0, "metrics_port": 1})
    maintenance = asyncio.create_task(run_maintenance(settings, database, trim_every_s=0.1, lag_every_s=0.1))
    await until(lambda: query("SELECT count(*) FROM clientmgr.outbox_message_t") == [(2,)], "the old ones go")
    labels = {"topic": TOPIC, "subscription": SUBSCRIPTION}
    await until(lambda: REGISTRY.get_sample_value("clientmgr_subscription_lag_messages", labels) == 2, "the lag")
    maintenance.cancel()
    with pytest.raises(asyncio.CancelledError):
        await maintenance


async def test_dead_letters_and_pauses_are_told_until_their_subscription_is_gone(
    log_broker: PostgresBroker, database: Database, query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    await ready(log_broker, "told-topic", "told-reader")
    await log_broker.publish("told-topic", messages(range(2)))
    await drain(log_broker, Recorder(lambda _: Dead("end")), subscription="told-reader")
    export = LagExport()
    labels = {"topic": "told-topic", "subscription": "told-reader"}
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        await export(connection)
        assert REGISTRY.get_sample_value("clientmgr_dead_letters", labels) == 2
        assert REGISTRY.get_sample_value("clientmgr_subscription_paused", labels) == 0
        query(f"INSERT INTO clientmgr.paused_subscriptions VALUES ('{labels['subscription']}', 'why', 'somebody')")
        await export(connection)
        assert REGISTRY.get_sample_value("clientmgr_subscription_paused", labels) == 1
        query("DELETE FROM clientmgr.dead_letter_queue")
        query("DELETE FROM clientmgr.consumer_offsets WHERE group_id = 'told-reader'")
        await export(connection)
    assert REGISTRY.get_sample_value("clientmgr_dead_letters", labels) is None
    assert REGISTRY.get_sample_value("clientmgr_subscription_paused", labels) is None
    assert REGISTRY.get_sample_value("clientmgr_subscription_lag_seconds", labels) is None


async def test_the_audit_log_is_anchored_and_one_that_does_not_continue_is_a_finding(
    database: Database,
    settings_for: Callable[[Database], Settings],
    query: Callable[..., list[tuple[Any, ...]]],
) -> None:
    settings = settings_for(database).model_copy(update={"audit_anchor_minutes": 0.002})
    audit, places = AuditLogger.from_settings(settings), anchor_places(settings)
    maintenance = asyncio.create_task(run_maintenance(settings, database))
    await until(lambda: query("SELECT seq FROM clientmgr.audit_heads") == [(2,)], "the place is made known")
    await until(lambda: read_last_anchors(places, audit)[0].heads[0].seq == 2, "its last row is anchored")
    assert query("SELECT count(*) FROM clientmgr.audit_verifications") == [(0,)]
    with database.connect(Role.OWNER) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM clientmgr.audit_log WHERE seq = 2")
        connection.execute(
            "UPDATE clientmgr.audit_heads AS h SET seq = 1, hash = a.hash FROM clientmgr.audit_log AS a WHERE a.seq = 1"
        )
    found = "SELECT DISTINCT first_findings -> 0 ->> 'problem' FROM clientmgr.audit_verifications"
    problem = "the row is gone; it was there when the chain was anchored"
    await until(lambda: query(found) == [(problem,)], "the finding")
    maintenance.cancel()
    with pytest.raises(asyncio.CancelledError):
        await maintenance


async def test_a_server_that_is_away_is_tried_again(
    database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none")
    maintenance = asyncio.create_task(run_maintenance(settings_for(database), nowhere, trim_every_s=0.01))
    done, _ = await asyncio.wait([maintenance], timeout=0.3)
    assert not done
    maintenance.cancel()
    with pytest.raises(asyncio.CancelledError):
        await maintenance


async def test_samples_are_taken_of_what_grows_once_a_minute_and_kept_for_a_day(
    log_broker: PostgresBroker, database: Database, query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    def samples() -> list[tuple[Any, ...]]:
        return query("SELECT events, sends, errors, dead_letters, unread FROM clientmgr.samples ORDER BY at")

    async def sample() -> None:
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            await take_sample(connection)

    for topic in (topics.WRITER, topics.WRITER_ERRORS, topics.DeviceMapperTopics("tx", "dg7").outputs["apple"]):
        await ready(log_broker, topic, topic)
        await log_broker.publish(topic, messages(range(2)))
    await sample()
    assert samples() == [(2, 2, 2, 0, 6)]
    await log_broker.publish(topics.WRITER, messages(range(3)))
    await drain(log_broker, Recorder(lambda _: Dead("end")), subscription=topics.WRITER)
    await sample()
    assert samples() == [(2, 2, 2, 0, 6)], "this minute has one"
    query("UPDATE clientmgr.samples SET at = at - interval '1 minute'")
    await sample()
    assert samples()[-1] == (5, 2, 2, 5, 4)
    query("UPDATE clientmgr.samples SET at = at - interval '26 hours'")
    await sample()
    assert len(samples()) == 1
