"""Counts, for each customer, how often only the legacy store had a contact's devices: that tells when it may be left.

The counts of a process go to the table every half a minute, in the transaction of whatever batch is in hand then. Some
may be lost with a process. They are a share, no account.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries

QUERIES: Final = named_queries("legacy_migration/queries/migrations.sql")
EVERY_S: Final = 30.0


class FallbackAnswers:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = 0.0
        self._counts: dict[CustomerId, tuple[int, int]] = {}

    def note(self, customer_id: CustomerId, contacts: int, from_fallback: int) -> None:
        """Contacts that were looked up in PostgreSQL first, and for how many of them DynamoDB had the devices."""
        known, answered = self._counts.get(customer_id, (0, 0))
        self._counts[customer_id] = known + contacts, answered + from_fallback

    async def record(self, connection: AsyncConnection[Any]) -> None:
        """Add to the table, if it is time."""
        if not self._counts or self._clock() < self._next_at:
            return
        counts, self._counts = self._counts, {}
        customers = {"customers": list(counts)}
        columns = {
            "contacts": [contacts for contacts, _ in counts.values()],
            "from_fallback": [answered for _, answered in counts.values()],
        }
        await connection.execute(QUERIES["count_answers"], customers | columns)
        await connection.execute(QUERIES["forget_answers"], customers)
        self._next_at = self._clock() + EVERY_S
