"""A paused subscription: nobody claims anything of it, nothing of it is lost, and no attempt is spent meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import TransientError
from clientmgr.base.settings import Settings
from clientmgr.broker import pauses
from clientmgr.broker.interface import Batch, Message
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.broker.postgres.lag import subscription_lag
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError, drop_group
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.recording import until

SettingsFor = Callable[[Database], Settings]


class Switch:
    """Pauses and resumes `billing`, which reads `orders`."""

    def __init__(self, database: Database, settings: Settings, name: str = "billing") -> None:
        self._database, self._audit, self._name = database, AuditLogger.from_settings(settings), name

    def pause(self) -> bool:
        with self._database.connect(Role.WRITER, autocommit=True) as connection:
            return pauses.pause(connection, self._name, self._audit, reason="mending", actor="cli:test")

    def resume(self) -> bool:
        with self._database.connect(Role.WRITER, autocommit=True) as connection:
            return pauses.resume(connection, self._name, self._audit, actor="cli:test")


async def furnished(broker: PostgresBroker) -> None:
    await broker.ensure_topic("orders")
    await broker.ensure_subscription("billing", "orders")
    await broker.ensure_subscription("shipping", "orders")


def test_running_consumers_stop_claiming_at_once_and_go_on_at_once(
    database: Database, settings_for: SettingsFor
) -> None:
    # A poll would come far too late: it is the notification that wakes them.
    settings = settings_for(database).model_copy(update={"broker_wait_period_ms": 600_000})
    switch, stop = Switch(database, settings), asyncio.Event()
    seen: list[bytes] = []
    others: list[bytes] = []

    async def handle(batch: Batch) -> None:
        seen.extend(message.data for message in batch.messages)

    async def other(batch: Batch) -> None:
        others.extend(message.data for message in batch.messages)

    async def run() -> None:
        # Two processes, as far as the log can tell.
        async with PostgresBroker(database, settings) as broker, PostgresBroker(database, settings) as second:
            await furnished(broker)
            running = [
                asyncio.create_task(broker.consume("billing", handle, stop=stop)),
                asyncio.create_task(second.consume("shipping", other, stop=stop)),
            ]
            await broker.publish("orders", [Message(b"1", tenant="42")])
            await until(lambda: len(seen) == len(others) == 1, "the first is read by both")
            assert await asyncio.to_thread(switch.pause)
            assert not await asyncio.to_thread(switch.pause), "it is paused already"
            for number in (b"2", b"3"):
                await broker.publish("orders", [Message(number, tenant="42")])
            await until(lambda: len(others) == 3, "the other subscription reads on")
            assert seen == [b"1"]
            assert await asyncio.to_thread(switch.resume)
            await until(lambda: seen == [b"1", b"2", b"3"], "it goes on where it was")
            stop.set()
            await asyncio.gather(*running)

    asyncio.run(run())


def test_what_is_retried_waits_too_and_loses_no_attempt(database: Database, settings_for: SettingsFor) -> None:
    settings = settings_for(database)
    switch = Switch(database, settings)
    attempts: list[int] = []

    async def handle(batch: Batch) -> None:
        attempts.append(batch.messages[0].attempt)
        if len(attempts) == 1:
            await asyncio.to_thread(switch.pause)
            raise TransientError("the other side is away")

    async def run() -> None:
        async with PostgresBroker(database, settings) as broker:
            await furnished(broker)
            await broker.publish("orders", [Message(b"1", tenant="42")])
            await broker.consume("billing", handle, burst=True)
            assert attempts == [1]
            async with await database.connect_async(Role.READER, autocommit=True) as connection:
                [lag] = await subscription_lag(connection, subscription="billing")
            assert (lag.messages, lag.dead) == (1, 0)
            assert lag.pause is not None
            assert (lag.pause.paused_by, lag.pause.reason) == ("cli:test", "mending")
            await broker.consume("billing", handle, burst=True)
            assert attempts == [1], "paused: nobody tries"
            await asyncio.to_thread(switch.resume)
            await broker.consume("billing", handle, burst=True)
            assert attempts == [1, 2]

    asyncio.run(run())


def test_a_reader_with_a_cursor_of_its_own_honours_it(database: Database, settings_for: SettingsFor) -> None:
    settings = settings_for(database)
    with CursorReader(database, settings, "orders") as reader:
        assert reader.read(None, 10) == []

        async def publish() -> None:
            async with PostgresBroker(database, settings) as broker:
                await broker.publish("orders", [Message(b"1", tenant="42")])

        asyncio.run(publish())
        switch = Switch(database, settings, "orders")
        switch.pause()
        assert reader.read(None, 10) == []
        switch.resume()
        assert [message.data for message in reader.read(None, 10)] == [b"1"]


def test_a_subscription_that_is_dropped_and_made_again_is_not_paused(
    database: Database, settings_for: SettingsFor
) -> None:
    settings = settings_for(database)
    switch = Switch(database, settings)

    async def run() -> None:
        async with PostgresBroker(database, settings) as broker:
            await furnished(broker)
            await asyncio.to_thread(switch.pause)
            async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
                await drop_group(connection, "billing")
            with pytest.raises(UnknownSubscriptionError):
                await asyncio.to_thread(switch.pause)
            await furnished(broker)
        assert not await asyncio.to_thread(switch.resume)

    asyncio.run(run())


def test_a_paused_claim_does_not_even_look(database: Database, settings_for: SettingsFor) -> None:
    """The rows that a claim locks would stay locked until its transaction ends."""
    settings = settings_for(database)

    async def run() -> None:
        async with PostgresBroker(database, settings) as broker:
            await furnished(broker)

    asyncio.run(run())
    Switch(database, settings).pause()
    with database.connect(Role.WRITER) as connection:
        plan = connection.execute(
            "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF)"
            " SELECT * FROM clientmgr.claim_batch('billing', 1, NULL, -1, 10, '{}', false)"
            " WHERE NOT EXISTS (SELECT FROM clientmgr.paused_subscriptions WHERE group_id = 'billing')"
        ).fetchall()
    assert any("never executed" in line for (line,) in plan), plan
