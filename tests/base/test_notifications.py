"""The one LISTEN loop: it hears what is notified, and listens again after its connection is lost."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.notifications import listen
from tests.broker.recording import until

pytestmark = pytest.mark.anyio

NAME = "listener"


async def test_what_is_notified_is_heard_also_after_a_lost_connection(database: Database) -> None:
    told: list[str] = []
    listener = Database(database.url, application_name=NAME)

    async def connect() -> AsyncConnection[Any]:
        return await listener.connect_async(Role.READER, autocommit=True)

    listening = asyncio.create_task(
        listen(
            connect,
            "some_channel",
            told.append,
            listening=lambda: told.append("(listening)"),
            lost=lambda: told.append("(lost)"),
        )
    )
    try:
        await until(_has(told, ["(listening)"]), "listening")
        _execute(database, "NOTIFY some_channel, 'one'")
        await until(_has(told, ["(listening)", "one"]), "the first notification")
        _execute(
            database,
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND application_name = '{NAME}'",
        )
        await until(_has(told, ["(listening)", "one", "(lost)", "(listening)"]), "listening again")
        _execute(database, "NOTIFY some_channel, 'two'")
        await until(_has(told, ["(listening)", "one", "(lost)", "(listening)", "two"]), "the second notification")
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def _has(told: list[str], expected: list[str]) -> Callable[[], bool]:
    return lambda: told == expected


def _execute(database: Database, sql: str) -> None:
    with database.connect(Role.OWNER, autocommit=True) as connection:
        connection.execute(sql.encode())
