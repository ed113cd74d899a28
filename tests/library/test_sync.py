"""The plain broker: the same promises as the asynchronous one, in other people's threads."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from clientmgr.base.database import Database
from clientmgr.broker import (
    Batch,
    ConsumerOptions,
    Message,
    PermanentError,
    SyncBatch,
    SyncBroker,
    open_broker,
    open_broker_sync,
)
from clientmgr.broker.interface import Outcome
from clientmgr.broker.library.sync_broker import _in_threads
from clientmgr.broker.postgres import lease
from clientmgr.broker.settling import TransactionEndedError

ORDER = Message(b'{"order": 7}', tenant="42")


@pytest.fixture
def rows(empty_database: Database, sync_broker: SyncBroker) -> Callable[[], list[int]]:
    """What handlers have written into the table `kept`."""
    with psycopg.connect(empty_database.url) as connection:
        connection.execute("CREATE TABLE kept (value int)")

    def read() -> list[int]:
        with psycopg.connect(empty_database.url) as connection:
            return [value for (value,) in connection.execute("SELECT value FROM kept ORDER BY value").fetchall()]

    return read


def test_a_handler_uses_psycopg_as_it_is(sync_broker: SyncBroker, rows: Callable[[], list[int]]) -> None:
    def handle(batch: SyncBatch) -> None:
        connection = batch.connection
        for value in range(8):  # more often than it takes to become a prepared statement, on either side
            connection.execute("INSERT INTO kept VALUES (%s)", (value,))
        connection.execute("SELECT 1 WHERE %s", (True,), prepare=True)
        with connection.cursor().copy("COPY kept FROM STDIN") as copy:
            copy.write_row((100,))
        with contextlib.suppress(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("INSERT INTO kept VALUES (1000)")
            connection.execute("SELECT 1 / 0")
        connection.execute("DO $$ BEGIN RAISE NOTICE 'heard'; END $$")

    for _ in range(8):
        sync_broker.publish("orders", [ORDER])
        assert sync_broker.consume("billing", handle, burst=True).done == 1
    assert rows() == sorted([*range(8), 100] * 8)


def test_what_a_failed_handler_wrote_is_undone(sync_broker: SyncBroker, rows: Callable[[], list[int]]) -> None:
    def handle(batch: SyncBatch) -> None:
        batch.connection.execute("INSERT INTO kept VALUES (1)")
        raise PermanentError("no")

    sync_broker.publish("orders", [ORDER])
    assert sync_broker.consume("billing", handle, burst=True).dead == 1
    assert rows() == []


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_handler_can_not_end_the_batchs_transaction(sync_broker: SyncBroker, end: str) -> None:
    refusals: list[str] = []

    def handle(batch: SyncBatch) -> None:
        with pytest.raises(PermanentError, match="the transaction is the batch's") as refused:
            getattr(batch.connection, end)()
        refusals.append(str(refused.value))

    sync_broker.publish("orders", [ORDER])
    assert sync_broker.consume("billing", handle, burst=True).done == 1
    assert len(refusals) == 1


def test_a_commit_in_sql_ends_consuming(sync_broker: SyncBroker) -> None:
    def handle(batch: SyncBatch) -> None:
        batch.connection.execute("COMMIT")

    sync_broker.publish("orders", [ORDER])
    with pytest.raises(TransactionEndedError):
        sync_broker.consume("billing", handle, burst=True)


def test_a_connection_that_was_kept_is_of_no_use_later(sync_broker: SyncBroker) -> None:
    kept: list[psycopg.Connection[Any]] = []
    refusals: list[str] = []

    def keep(batch: SyncBatch) -> None:
        for connection in kept:
            with pytest.raises(psycopg.OperationalError) as refused:
                connection.execute("SELECT 1")
            refusals.append(str(refused.value))
        kept.append(batch.connection)

    for _ in range(2):
        sync_broker.publish("orders", [ORDER])
    sync_broker.consume("billing", keep, options=ConsumerOptions(batch_size=1), burst=True)
    assert refusals == ["the batch is no longer this handler's: it has returned, or its time was over"]


@pytest.mark.parametrize("count", [3, 700])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_messages_share_the_fate_of_the_callers_transaction(
    sync_broker: SyncBroker, empty_database: Database, rows: Callable[[], list[int]], count: int, ending: str
) -> None:
    with psycopg.connect(empty_database.url) as connection:
        connection.execute("INSERT INTO kept VALUES (7)")
        sync_broker.publish("orders", [ORDER] * count, connection=connection)
        getattr(connection, ending)()
    expected = count if ending == "commit" else 0
    assert sync_broker.consume("billing", lambda batch: None, burst=True).done == expected
    assert rows() == [7] * (expected > 0)


def test_a_handler_publishes_with_its_batch(sync_broker: SyncBroker) -> None:
    sync_broker.ensure_topic("invoices")
    sync_broker.ensure_subscription("printing", "invoices")
    seen: list[tuple[str, str]] = []

    def bill(batch: SyncBatch) -> None:
        batch.publish("invoices", [Message(b"1", tenant="42")])
        batch.forward("invoices", batch.messages[0], {"from": batch.subscription})

    sync_broker.publish("orders", [ORDER])
    sync_broker.consume("billing", bill, burst=True)
    sync_broker.consume(
        "printing",
        lambda batch: seen.extend(
            (message.data.decode(), message.attributes.get("from", "")) for message in batch.messages
        ),
        burst=True,
    )
    assert seen == [("1", ""), ('{"order": 7}', "billing")]


def test_stop_ends_consuming(sync_broker: SyncBroker) -> None:
    stop = threading.Event()
    sync_broker.publish("orders", [ORDER])
    assert sync_broker.consume("billing", lambda batch: stop.set(), stop=stop).done == 1


def test_an_interrupt_finishes_the_batch_in_hand(sync_broker: SyncBroker, rows: Callable[[], list[int]]) -> None:
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: _note_and_raise(interrupted))

    def handle(batch: SyncBatch) -> None:
        signal.raise_signal(signal.SIGINT)  # in the main thread
        interrupted.wait(60)
        batch.connection.execute("INSERT INTO kept VALUES (1)")

    sync_broker.publish("orders", [ORDER])
    try:
        with pytest.raises(KeyboardInterrupt):
            sync_broker.consume("billing", handle)
    finally:
        signal.signal(signal.SIGINT, before)
    assert rows() == [1]
    assert sync_broker.consume("billing", lambda batch: None, burst=True).done == 0


def _note_and_raise(interrupted: threading.Event) -> None:
    interrupted.set()
    raise KeyboardInterrupt


def test_a_handler_that_is_cancelled_leaves_the_session_alone(
    empty_database: Database, sync_broker: SyncBroker
) -> None:
    errors: list[BaseException] = []
    left = threading.Event()

    def handle(batch: SyncBatch) -> list[Outcome] | None:
        if not errors:
            try:
                batch.connection.execute("SELECT pg_sleep(600)")
            except psycopg.Error as error:
                errors.append(error)
            try:
                batch.connection.execute("SELECT 1")
            except psycopg.Error as error:
                errors.append(error)
            left.set()
        return None

    async def limited(batch: Batch) -> Any:
        async with asyncio.timeout(0.5):
            return await _in_threads(handle)(batch)

    async def main() -> int:
        async with open_broker(empty_database.url) as broker:
            await broker.publish("orders", [ORDER])
            return (await broker.consume("billing", limited, burst=True)).done

    assert asyncio.run(main()) == 1
    assert left.wait(60)
    assert [type(error) for error in errors] == [psycopg.errors.QueryCanceled, psycopg.OperationalError]


def test_signs_of_life_and_the_handlers_statements_take_turns(
    sync_broker: SyncBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEATS_A_LEASE", 30_000)  # one a millisecond
    errors: list[Exception] = []
    beats: list[None] = []
    beat = lease._give_sign_of_life

    async def counted(connection: AsyncConnection[Any]) -> None:
        beats.append(None)
        await beat(connection)

    monkeypatch.setattr(lease, "_give_sign_of_life", counted)

    def handle(batch: SyncBatch) -> None:
        try:
            while len(beats) < 300:
                batch.connection.execute("SELECT 1")
        except psycopg.Error as error:
            errors.append(error)

    sync_broker.publish("orders", [ORDER])
    stats = sync_broker.consume("billing", handle, options=ConsumerOptions(handler_timeout_s=60), burst=True)
    assert (stats.done, errors) == (1, [])


def test_a_broker_that_is_not_open_says_so(empty_database: Database) -> None:
    with pytest.raises(RuntimeError, match="open_broker_sync"):
        open_broker_sync(empty_database.url).ensure_topic("orders")
