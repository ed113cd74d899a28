"""Attempts at parts of a claim within one transaction, each behind a savepoint, and writing down what they leave.

Nothing is written down between two attempts: a failed one would take it back. So an attempt costs one round trip
besides its handler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.errors import ErrorKind, classify
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.claim import Claim, Record
from clientmgr.broker.postgres.consumption import Consumption
from clientmgr.broker.postgres.publish import append_each, in_lock_order
from clientmgr.broker.postgres.settlement import send_settlement
from clientmgr.broker.postgres.topic_administration import require_topics
from clientmgr.broker.settling import SAVEPOINTS_A_COMMIT, Handled, TransactionEndedError


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed. What the handler did in the database is undone."""

    error: Exception
    kind: ErrorKind

    @property
    def reason(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


class Attempts:
    """Those of one transaction. All that comes of them is in `parts`, in order; `record` writes it down."""

    def __init__(self, context: Consumption, connection: AsyncConnection[Any]) -> None:
        self._context = context
        self._connection = connection
        self._made = 0
        self.parts: list[Handled[Record]] = []

    @property
    def are_spent(self) -> bool:
        """Whether the transaction has all the savepoints that it may have."""
        return self._made >= SAVEPOINTS_A_COMMIT

    @property
    def any_made(self) -> bool:
        return self._made > 0

    async def attempt(self, part: Claim) -> Handled[Record] | Failure:
        """Handle a part of a claim."""
        connection = self._connection
        if not self._made:
            await connection.execute("SAVEPOINT attempt")
        self._made += 1
        try:
            handled = await self._context.handle(connection, part)
            if handled.publications:
                await require_topics(connection, list(handled.publications))
            # A deferred constraint would fail only at COMMIT, and would take the other groups with it.
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT attempt; SAVEPOINT attempt")
        except TransactionEndedError:
            raise
        except Exception as error:
            if connection.closed:
                raise
            await connection.execute("ROLLBACK TO SAVEPOINT attempt")
            return Failure(error, self._kind_of(error, part))
        return handled

    def _kind_of(self, error: Exception, part: Claim) -> ErrorKind:
        """Of several groups nobody knows yet which is to blame: it is told, and counted, when it fails alone."""
        several = len(part.transaction_groups()) > 1
        return classify(error) if several else self._context.judge(error, part)

    async def record(self, *, held: bool = False) -> None:
        """Write down what becomes of the messages, and publish what each part left, as a transaction of its own."""
        settlement = Handled.together(self.parts).settlement
        await send_settlement(self._connection, self._context.subscription, settlement, held=held)
        publications: dict[str, list[Sequence[Message]]] = {}
        for part in self.parts:
            for topic, messages in part.publications.items():
                publications.setdefault(topic, []).append(messages)
        for topic in in_lock_order(publications):
            await append_each(self._connection, topic, publications[topic], cut_off_ms=self._context.cut_off_ms)

    def count(self, started: float) -> None:
        """After the commit."""
        for part in self.parts:
            self._context.count(part, started)
