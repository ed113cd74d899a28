"""Brokers for the tests. `broker` is every transport in turn: what is tested with it is the interface's promise."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from clientmgr.broker.interface import Broker
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.database import Database, Role
from clientmgr.settings import Settings

OpenBroker = Callable[[Database, Settings], AbstractAsyncContextManager[Broker]]

# A further transport is added here: its name, and what opens it. The conformance suite then runs on it as well.
TRANSPORTS: dict[str, OpenBroker] = {
    "postgres": PostgresBroker,
}


@pytest.fixture(params=list(TRANSPORTS))
async def broker(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    database: Database,
    settings_for: Callable[[Database], Settings],
) -> AsyncIterator[Broker]:
    async with TRANSPORTS[request.param](database, settings_for(database)) as opened:
        yield opened


@pytest.fixture
async def log_broker(
    anyio_backend: str, database: Database, settings_for: Callable[[Database], Settings]
) -> AsyncIterator[PostgresBroker]:
    """The PostgreSQL log, for what only it promises."""
    async with PostgresBroker(database, settings_for(database)) as opened:
        yield opened


@pytest.fixture
def query(database: Database) -> Callable[..., list[tuple[Any, ...]]]:
    """Run SQL as the owner and fetch what it gives."""

    def run(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return run
