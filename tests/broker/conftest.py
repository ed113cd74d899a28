"""Brokers for the tests. `broker` is every transport in turn: what is tested with it is the interface's promise."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.server import Gateway
from clientmgr.broker.interface import Broker
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.pubsub.transport import PubSubBroker

OpenBroker = Callable[[Database, Settings], AbstractAsyncContextManager[Broker]]


@asynccontextmanager
async def pubsub_on_our_gateway(database: Database, settings: Settings) -> AsyncIterator[PubSubBroker]:
    """The Pub/Sub transport, with our own gateway in the place of Google."""
    async with Gateway(settings.model_copy(update={"pubsub_gateway_port": 0}), database) as gateway:
        settings = settings.model_copy(update={"pubsub_emulator_host": gateway.address})
        async with PubSubBroker(database, settings, burst_quiet_s=0.05) as broker:
            yield broker


# A further transport is added here: its name, and what opens it. The conformance suite then runs on it as well.
TRANSPORTS: dict[str, OpenBroker] = {
    "postgres": PostgresBroker,
    "pubsub": pubsub_on_our_gateway,
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
