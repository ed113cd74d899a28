"""A connection goes to the event loop only for what it must wait for, and all else is as psycopg's own."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role

pytestmark = pytest.mark.anyio
STATEMENTS = 50


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        yield connection


async def test_a_pipeline_does_not_go_to_the_loop_for_every_statement(
    connection: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    watched: list[int] = []
    add_writer = loop.add_writer

    def add_and_count(fd: int, *rest: Any) -> None:
        watched.append(fd)
        add_writer(fd, *rest)

    monkeypatch.setattr(loop, "add_writer", add_and_count)
    async with connection.pipeline():
        cursors = [await connection.execute("SELECT %s::int", [number]) for number in range(STATEMENTS)]
        assert [await cursor.fetchone() for cursor in cursors] == [(number,) for number in range(STATEMENTS)]
    assert len(watched) < STATEMENTS / 5


async def test_more_than_the_sockets_hold_goes_both_ways_in_a_pipeline(connection: AsyncConnection[Any]) -> None:
    text = "x" * 4_000_000
    async with connection.pipeline():
        cursors = [await connection.execute("SELECT %s::text", [text]) for _ in range(4)]
        for cursor in cursors:
            assert await cursor.fetchone() == (text,)


async def test_others_go_on_while_it_waits_and_it_is_of_use_after_it_was_cancelled(
    connection: AsyncConnection[Any],
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.execute("SELECT pg_sleep(60)")
    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_a_lost_connection_is_told(connection: AsyncConnection[Any], database: Database) -> None:
    with database.connect(Role.OWNER, autocommit=True) as owner:
        owner.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("SELECT 1")
    assert connection.closed
