"""Tenants whose node of a Citus cluster is gone: what is for them waits until it is back, and holds up nobody else."""

import time
from collections.abc import Iterable
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import TenantUnavailableError, is_behind_the_database
from clientmgr.base.logs import get_logger
from clientmgr.base.sqlfiles import named_queries

log = get_logger(__name__)

REST_S: Final = 10.0
"""How long nobody asks a node that is gone. One that is silent costs each asking its connection timeout."""


class LostNodes:
    """What one process has found out. A tenant that was moved to another node meanwhile waits for the rest's end."""

    def __init__(self) -> None:
        self._resting: dict[CustomerId, tuple[float, str]] = {}

    def resting(self, customers: Iterable[CustomerId]) -> dict[CustomerId, TenantUnavailableError]:
        """Those of these customers whose node need not be asked now, each with what is to be said of it."""
        if not self._resting:
            return {}
        now = time.monotonic()
        self._resting = {customer: rest for customer, rest in self._resting.items() if rest[0] > now}
        return {customer: _waits(self._resting[customer][1]) for customer in customers if customer in self._resting}

    async def judge(
        self, connection: AsyncConnection[Any], customer_id: CustomerId, error: Exception
    ) -> TenantUnavailableError | None:
        """What a failure of this tenant comes to, if its node is gone. Its neighbours there rest from now on."""
        if not is_behind_the_database(error):
            return None
        reason = str(error).strip().partition("\n")[0]
        neighbours = {customer_id}
        query = named_queries("tenants/queries/spread.sql")["on_the_same_node"]
        try:
            # Behind a savepoint: if it is not Citus that speaks, there is no such catalogue.
            async with connection.transaction():
                cursor = await connection.execute(query, {"customer_id": customer_id})
                neighbours |= {CustomerId(row[0]) for row in await cursor.fetchall()}
        except psycopg.errors.UndefinedTable:
            return None
        until = time.monotonic() + REST_S
        self._resting |= dict.fromkeys(neighbours, (until, reason))
        log.warning("node lost", customer_id=customer_id, tenants=len(neighbours), rest_s=REST_S, error=reason)
        return _waits(reason)


def _waits(reason: str) -> TenantUnavailableError:
    return TenantUnavailableError(f"its node of the cluster does not answer: {reason}")
