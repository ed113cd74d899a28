"""The directory of tenants: Redis makes it quick, and whatever becomes of Redis, it is never wrong."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.tenants import directory as directory_module
from clientmgr.tenants.cache_invalidation import ENTRY_LIFETIME_S, GENERATION_KEY, RedisCacheInvalidator
from clientmgr.tenants.directory import TenantDirectory
from clientmgr.tenants.schema_manager import TenantSchemaManager

pytestmark = pytest.mark.anyio
SEVEN = CustomerId(7)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that a test may crash, stop and empty."""
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_settings(server: EmbeddedRedis, database: Database, settings_for: Callable[[Database], Settings]) -> Settings:
    return settings_for(database).model_copy(update={"redis_url": server.url})


@pytest.fixture
def manager(database: Database, redis_settings: Settings) -> TenantSchemaManager:
    return TenantSchemaManager(database, redis_settings)


@pytest.fixture
async def directory(anyio_backend: str, redis_settings: Settings) -> AsyncIterator[TenantDirectory]:
    directory = TenantDirectory(redis_settings)
    yield directory
    await directory.close()


@pytest.fixture
async def connection(anyio_backend: str, database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        yield connection


async def status(directory: TenantDirectory, connection: AsyncConnection[Any], customer: int = 7) -> str | None:
    return (await directory.statuses(connection, [CustomerId(customer)]))[CustomerId(customer)]


def contents(server: EmbeddedRedis) -> "redis.Redis":
    return redis.Redis.from_url(server.url, decode_responses=True)


async def test_a_tenant_that_is_cached_costs_no_query(
    manager: TenantSchemaManager, directory: TenantDirectory, connection: AsyncConnection[Any]
) -> None:
    manager.activate([7], actor="test")
    assert await status(directory, connection) == "active"
    assert await status(directory, connection, 99) is None

    await connection.close()  # whoever asks the registry now fails
    found = await directory.statuses(connection, [SEVEN, CustomerId(99)])
    assert found == {7: "active", 99: None}
    with pytest.raises(psycopg.OperationalError):
        await status(directory, connection, 98)


async def test_a_tenant_in_the_making_is_asked_for_each_time(
    database: Database, directory: TenantDirectory, connection: AsyncConnection[Any]
) -> None:
    with database.connect(Role.OWNER, autocommit=True) as owner:
        owner.execute("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (7, 'activating')")
        assert await status(directory, connection) == "activating"
        owner.execute("UPDATE clientmgr.tenants SET status = 'active'")
        assert await status(directory, connection) == "active"


async def test_activation_and_deletion_are_known_at_once(
    manager: TenantSchemaManager, directory: TenantDirectory, connection: AsyncConnection[Any]
) -> None:
    assert await status(directory, connection) is None
    manager.activate([7], actor="test")
    assert await status(directory, connection) == "active"
    manager.delete(7, actor="test")
    assert await status(directory, connection) == "deleted"
    manager.activate([7], actor="test")
    assert await status(directory, connection) == "active"


async def test_caches_are_invalidated_a_change_is_committed_and_before_anything_is_built_on_it(
    database: Database, redis_settings: Settings
) -> None:
    seen: list[tuple[str, bool]] = []

    class Witness:
        def invalidate(self) -> None:
            with database.connect(Role.READER) as other:
                (found,) = other.execute(
                    "SELECT (SELECT status FROM clientmgr.tenants), to_regnamespace('tenant_7') IS NOT NULL"
                ).fetchall()
                seen.append(found)

    manager = TenantSchemaManager(database, redis_settings, cache_invalidator=Witness())
    manager.activate([7], actor="test")
    manager.delete(7, actor="test")

    assert seen == [("activating", False), ("deleting", True)]


class SlowReader(TenantDirectory):
    """Has its answer from the registry, and takes its time to write it down."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.has_asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def ask_registry(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        answer = await super().ask_registry(connection, customer_ids)
        self.has_asked.set()
        await self.may_go_on.wait()
        return answer


async def overtaken(
    settings: Settings, connection: AsyncConnection[Any], change: Callable[[], object], then: Callable[[], object]
) -> None:
    """A reader asks the registry, the registry changes, something happens to Redis, and the reader writes it down."""
    reader = SlowReader(settings)
    reading = asyncio.create_task(status(reader, connection))
    await reader.has_asked.wait()
    change()
    then()
    reader.may_go_on.set()
    assert await reading is None  # it was true when it was asked
    await reader.close()


async def test_what_a_slow_reader_writes_after_a_change_does_not_count(
    redis_settings: Settings, manager: TenantSchemaManager, database: Database, connection: AsyncConnection[Any]
) -> None:
    directory = TenantDirectory(redis_settings)
    await status(directory, connection, 99)  # it is connected, and keeps its connection
    await overtaken(redis_settings, connection, lambda: manager.activate([7], actor="test"), lambda: None)

    assert await status(directory, connection) == "active"
    await directory.close()


async def test_what_a_slow_reader_writes_after_a_change_and_a_flush_does_not_count(
    redis_settings: Settings, manager: TenantSchemaManager, server: EmbeddedRedis, connection: AsyncConnection[Any]
) -> None:
    directory = TenantDirectory(redis_settings)
    await status(directory, connection, 99)
    await overtaken(
        redis_settings,
        connection,
        lambda: manager.activate([7], actor="test"),
        lambda: contents(server).flushall(),
    )

    for _ in range(2):  # the first look finds no generation and begins one
        assert await status(directory, connection) == "active"
    await directory.close()


async def test_a_redis_that_comes_back_with_what_was_true_before_is_not_believed(
    manager: TenantSchemaManager,
    directory: TenantDirectory,
    server: EmbeddedRedis,
    connection: AsyncConnection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory_module, "REST_AFTER_FAILURE_S", 0.0)
    assert await status(directory, connection) is None
    before = {name: contents(server).get(name) for name in contents(server).scan_iter("clientmgr:*")}
    manager.activate([7], actor="test")
    server.crash()
    server.restart_on_same_port()
    # As if the crash had cost it all that it heard since then, the change of generation included.
    for name, value in before.items():
        contents(server).set(name, value or "")

    for _ in range(3):  # the first look finds its connection gone, the second connects anew
        assert await status(directory, connection) == "active"


async def test_entries_that_make_no_sense_are_not_believed(
    manager: TenantSchemaManager, directory: TenantDirectory, server: EmbeddedRedis, connection: AsyncConnection[Any]
) -> None:
    manager.activate([7], actor="test")
    await status(directory, connection)
    generation = str(contents(server).get(GENERATION_KEY))
    for nonsense in (f"{generation}:sleeping", f"{generation}:", "active", "", b"\xff\xfe", f"0:{generation}"):
        contents(server).set("clientmgr:tenant:7", nonsense)
        assert await status(directory, connection) == "active"
    contents(server).delete("clientmgr:tenant:7")
    contents(server).rpush("clientmgr:tenant:7", "a list")
    assert await status(directory, connection) == "active"


async def test_entries_expire_counted_from_before_the_registry_was_asked(
    redis_settings: Settings, server: EmbeddedRedis, connection: AsyncConnection[Any]
) -> None:
    reader = SlowReader(redis_settings)
    reading = asyncio.create_task(status(reader, connection))
    await reader.has_asked.wait()
    asked_at = time.time()
    while time.time() < asked_at + 0.1:  # noqa: ASYNC110  # what it writes now is older than it looks
        await asyncio.sleep(0.01)
    reader.may_go_on.set()
    await reading
    await reader.close()

    expires_at: float = contents(server).pexpiretime("clientmgr:tenant:7") / 1000
    assert time.time() < expires_at <= asked_at + ENTRY_LIFETIME_S


async def test_without_redis_the_registry_is_asked_and_once_redis_is_back_it_is_used_again(
    manager: TenantSchemaManager,
    directory: TenantDirectory,
    server: EmbeddedRedis,
    database: Database,
    connection: AsyncConnection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory_module, "REST_AFTER_FAILURE_S", 0.0)
    manager.activate([7], actor="test")
    assert await status(directory, connection) == "active"
    server.crash()
    with database.connect(Role.OWNER, autocommit=True) as owner:
        owner.execute("UPDATE clientmgr.tenants SET status = 'deleted'")
    assert await status(directory, connection) == "deleted"

    server.restart_on_same_port()
    while not contents(server).exists("clientmgr:tenant:7"):
        assert await status(directory, connection) == "deleted"


async def test_a_redis_that_does_not_answer_is_left_alone_for_a_while(
    manager: TenantSchemaManager, directory: TenantDirectory, server: EmbeddedRedis, connection: AsyncConnection[Any]
) -> None:
    manager.activate([7], actor="test")
    await status(directory, connection)
    pid = int((server.folder / "redis.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        for _ in range(20):
            assert await status(directory, connection) == "active"
        # One wait for an answer, not twenty.
        assert time.monotonic() - started < 20 * directory_module.ANSWER_WITHIN_S
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_change_that_redis_does_not_learn_of_waits_until_nothing_cached_is_left(
    redis_settings: Settings, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.crash()
    started = time.monotonic()
    monkeypatch.setattr("clientmgr.tenants.cache_invalidation.ENTRY_LIFETIME_S", 0.7)
    RedisCacheInvalidator(redis_settings).invalidate()
    assert time.monotonic() - started >= 0.7


async def test_no_redis_configured_is_fine(
    database: Database, settings_for: Callable[[Database], Settings], connection: AsyncConnection[Any]
) -> None:
    settings = settings_for(database)
    TenantSchemaManager(database, settings).activate([7], actor="test")
    directory = TenantDirectory(settings)
    assert await status(directory, connection) == "active"
    await directory.close()
