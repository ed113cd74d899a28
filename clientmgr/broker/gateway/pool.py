"""The gateway's connections. Most of its calls are a single statement, so they commit by themselves."""

import functools
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from clientmgr.base.database import Database, Role
from clientmgr.broker.postgres.lease import set_for_the_log

POOL_SIZE = 10
# For acknowledgements and longer deadlines alone: with leases that run out, nothing may stand in their way.
SETTLING_POOL_SIZE = 3
WAIT_S = 10.0

Pool: TypeAlias = AsyncConnectionPool[AsyncConnection[Any]]


def gateway_pool(database: Database, size: int = POOL_SIZE) -> Pool:
    """Not yet open. Connections are not probed before use: a call that meets a dead one is retried by its client."""
    return database.pool_async(
        Role.WRITER,
        size=size,
        min_size=2,
        timeout_s=WAIT_S,
        autocommit=True,
        probed=False,
        configure=functools.partial(set_for_the_log, settings={}),
    )
