"""The lock that makes whoever writes a tenant's devices its only writer until the transaction ends.

On a Citus cluster it is taken on the tenant's node too. A crash between the two phases of a commit ends the lock on the
coordinator and leaves the node with the older state. There the transaction that waits to be resolved keeps its lock.
"""

from collections.abc import Collection
from typing import Any

from psycopg import AsyncConnection

from clientmgr.base.arrays import bigint_array
from clientmgr.base.citus import IS_INSTALLED
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.devices.queries import device_queries


class WriteLock:
    """Knows, once it was taken, whether its database has Citus: plain PostgreSQL is asked that once and no more."""

    def __init__(self) -> None:
        self._has_citus: bool | None = None

    async def take(self, connection: AsyncConnection[Any], customer_ids: Collection[CustomerId]) -> None:
        """In the connection's transaction. In a pipeline, whose answers nobody has to wait for."""
        if self._has_citus is None:
            cursor = await connection.execute(IS_INSTALLED)
            self._has_citus = await cursor.fetchone() == (True,)
        for query, parameters in locking(customer_ids, has_citus=self._has_citus):
            await connection.execute(query.encode(), parameters)


def locking(customer_ids: Collection[CustomerId], *, has_citus: bool) -> list[tuple[str, dict[str, Any]]]:
    """The statements that take the lock, with their parameters."""
    queries = device_queries("devices")
    in_order = sorted(customer_ids)
    statements: list[tuple[str, dict[str, Any]]] = [
        (queries["lock_writes"], {"customer_ids": bigint_array(in_order)}),
    ]
    if has_citus:
        on_nodes = queries["lock_writes_on_node"]
        statements += [(in_schema(on_nodes, one), {"customer_id": one}) for one in in_order]
    return statements
