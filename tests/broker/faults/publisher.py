"""A publisher process: transactions of 1 to 300 messages of one tenant next to a business row, until SIGTERM.

Some are rolled back, some commit slowly, some are poison, some publish in several steps, some without a transaction of
their own. What it committed is what the database says: after a lost connection it simply goes on with the next.
"""

import asyncio
import random
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from tests.broker.faults.scenario import TOPIC, Chances, Scenario, Task

RECONNECT_PAUSE_S = 0.02

INSERT_BUSINESS_ROW = """
INSERT INTO faults.published (tx, tenant, publisher, number, size, poison, echoes, confirmed)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
CONFIRM = "UPDATE faults.published SET confirmed = true WHERE tx = ANY (%s)"


class Body(msgspec.Struct):
    """What a message carries. `poison`: its handler fails for ever. `echo`: its handler publishes something."""

    tx: uuid.UUID
    seq: int
    poison: bool = False
    echo: bool = False


@dataclass(frozen=True)
class Transaction:
    """What one database transaction is to publish."""

    tx: uuid.UUID
    tenant: str
    size: int
    poisoned: int | None
    """The one message that can't be handled, and that takes the whole transaction with it."""
    echoes: frozenset[int]

    def messages(self) -> list[Message]:
        return [
            Message(
                msgspec.json.encode(Body(self.tx, seq, seq == self.poisoned, seq in self.echoes)),
                tenant=self.tenant,
                key=f"{self.tx}:{seq}",
            )
            for seq in range(1, self.size + 1)
        ]


def choose_transaction(rng: random.Random, scenario: Scenario) -> Transaction:
    size = _choose_size(rng, scenario.chances)
    return Transaction(
        uuid.UUID(int=rng.getrandbits(128), version=4),
        str(rng.randrange(1, scenario.tenants + 1)),
        size,
        rng.randint(1, size) if rng.random() < scenario.chances.poison else None,
        frozenset({rng.randint(1, size)} if rng.random() < 0.2 else ()),
    )


def _choose_size(rng: random.Random, chances: Chances) -> int:
    if rng.random() < chances.large:
        return rng.randint(80, 300)
    return rng.randint(1, 4) if rng.random() < 0.6 else rng.randint(5, 40)


async def publish_until(stop: asyncio.Event, task: Task) -> None:
    publisher = Publisher(task)
    settings = load_settings(database_url=task.url, broker_publish_timeout_ms=task.scenario.cut_off_ms)
    database = Database(task.url, application_name=f"faults {task.name}")
    async with PostgresBroker(database, settings) as broker:
        while not stop.is_set():
            try:
                async with await database.connect_async(Role.WRITER) as connection:
                    while not stop.is_set():
                        await publisher.publish_one(broker, connection)
            except (psycopg.Error, OSError) as error:
                print("connection lost:", str(error).strip())
                await asyncio.sleep(RECONNECT_PAUSE_S)


class Publisher:
    """One life of a publisher. Its transactions are numbered: they must be handled in that order."""

    def __init__(self, task: Task) -> None:
        self._scenario = task.scenario
        self._rng = random.Random(task.seed)
        self._life = task.seed
        self._number = 0

    async def publish_one(self, broker: PostgresBroker, connection: AsyncConnection[Any]) -> None:
        if self._rng.random() < self._scenario.chances.own_commit:
            await self._publish_by_themselves(broker, connection)
        else:
            await self._publish_with_business_row(broker, connection)
        if self._scenario.publisher_pause_s:
            await asyncio.sleep(self._rng.uniform(0.0, self._scenario.publisher_pause_s))

    async def _publish_with_business_row(self, broker: PostgresBroker, connection: AsyncConnection[Any]) -> None:
        rng, chances = self._rng, self._scenario.chances
        transaction = choose_transaction(rng, self._scenario)
        await self._insert_business_row(connection, transaction, confirmed=True)
        await self._append(broker, connection, transaction.messages())
        if rng.random() < chances.slow_commit:
            await connection.execute("SELECT nextval('faults.slow_commits')")
            await asyncio.sleep(rng.uniform(0.2, 1.0) * self._scenario.slow_commit_s)
        if rng.random() < chances.rolled_back:
            await connection.execute("SELECT nextval('faults.rolled_back')")
            await connection.rollback()
        else:
            await connection.commit()

    async def _publish_by_themselves(self, broker: PostgresBroker, connection: AsyncConnection[Any]) -> None:
        """A few at once, sharing a commit. Each is announced before, and confirmed when the broker says it is there."""
        transactions = [choose_transaction(self._rng, self._scenario) for _ in range(self._rng.randint(1, 4))]
        for transaction in transactions:
            await self._insert_business_row(connection, transaction, confirmed=False)
        await connection.commit()
        results = await asyncio.gather(
            *(broker.publish(TOPIC, transaction.messages()) for transaction in transactions), return_exceptions=True
        )
        durable = [t.tx for t, result in zip(transactions, results, strict=True) if result is None]
        await connection.execute(CONFIRM, (durable,))
        await connection.commit()
        for error in filter(None, results):
            raise error

    async def _insert_business_row(
        self, connection: AsyncConnection[Any], transaction: Transaction, *, confirmed: bool
    ) -> None:
        self._number += 1
        await connection.execute(
            INSERT_BUSINESS_ROW,
            (
                transaction.tx,
                transaction.tenant,
                self._life,
                self._number,
                transaction.size,
                transaction.poisoned is not None,
                sorted(transaction.echoes),
                confirmed,
            ),
        )

    async def _append(self, broker: PostgresBroker, connection: AsyncConnection[Any], messages: list[Message]) -> None:
        """In one step, in two, or with a step that is taken back: one transaction all the same."""
        way = self._rng.random()
        if way < 0.1:
            await connection.execute("SAVEPOINT taken_back")
            await broker.publish(TOPIC, messages[:3], connection=connection)
            await connection.execute("ROLLBACK TO SAVEPOINT taken_back")
        half = len(messages) // 2 if way > 0.8 else 0
        for part in (messages[:half], messages[half:]):
            await broker.publish(TOPIC, part, connection=connection)
