"""Memory of one backend that works for many tenants: what its caches hold, and what a new connection gives back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from bench.scaling.measured import Backend
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.repository import DeviceRepository
from clientmgr.devices.store import DeviceStore

RECYCLED_AFTER = 500

Touch = Callable[[AsyncConnection[Any], CustomerId], Awaitable[object]]

_CONTEXTS = """
SELECT sum(total_bytes) FILTER (WHERE path && ARRAY (
        SELECT path[level] FROM pg_backend_memory_contexts WHERE name = 'CacheMemoryContext')
        AND name NOT IN ('CachedPlan', 'CachedPlanSource', 'CachedPlanQuery')),
    sum(total_bytes) FILTER (WHERE name IN ('CachedPlan', 'CachedPlanSource', 'CachedPlanQuery'))
FROM pg_backend_memory_contexts
"""


def measure_backends(
    url: str, settings: Settings, customers: Sequence[CustomerId], sizes: Sequence[int], nodes: Sequence[str] = ()
) -> Iterator[Backend]:
    """Each work on a connection of its own, for so many tenants, and once more with connections that are renewed.

    Of a cluster with these nodes' URLs: also what its connections to the nodes hold there.
    """
    for work, touch in works(settings).items():
        for schemas in sizes:
            yield asyncio.run(_worked((url, *nodes), work, touch, customers[:schemas], 0))
        if sizes[-1] > RECYCLED_AFTER:
            yield asyncio.run(_worked((url, *nodes), work, touch, customers[: sizes[-1]], RECYCLED_AFTER))


def works(settings: Settings) -> dict[str, Touch]:
    """What the mapper asks of a tenant, and what the writer does for an event."""
    repository, store = DeviceRepository(KeyedHashes.from_settings(settings)), DeviceStore.from_settings(settings)

    async def look_up(connection: AsyncConnection[Any], customer_id: CustomerId) -> None:
        await repository.find_by_contact_keys(connection, customer_id, "APP-1", [1, 2, 3])
        await connection.commit()

    async def write(connection: AsyncConnection[Any], customer_id: CustomerId) -> None:
        event = decode_event(
            b'{"eventId":"e","eventType":"client.contactLinked","customerId":%d,"applicationCode":"APP-1",'
            b'"clientId":"c","occurredAt":1763248000000,"payload":{"contactId":1}}' % customer_id
        )
        await store.apply_events(connection, {customer_id: [event]})
        await connection.commit()

    return {"mapper, a look-up": look_up, "writer, an event": write}


async def _worked(
    urls: Sequence[str], work: str, touch: Touch, customers: Sequence[CustomerId], recycled_after: int
) -> Backend:
    size = recycled_after or max(len(customers), 1)
    found = [
        await _on_one_connection(urls, touch, customers[start : start + size], again=not recycled_after)
        for start in range(0, len(customers), size)
    ]
    private, pss, caches, plans, first, again, on_nodes = zip(*found, strict=True)
    return Backend(
        work,
        len(customers),
        recycled_after,
        max(private),
        max(pss),
        max(caches),
        max(plans),
        sum(first),
        sum(again),
        max(max(pages, default=0) for pages in on_nodes),
        max(len(pages) for pages in on_nodes),
    )


async def _on_one_connection(
    urls: Sequence[str], touch: Touch, customers: Sequence[CustomerId], *, again: bool
) -> tuple[int, int, int, int, float, float, list[int]]:
    # As the superuser: only that one may read what a backend's memory is used for. What the work costs is the same.
    # Without waiting for the disk: it has no part in what a backend remembers.
    async with await AsyncConnection.connect(urls[0], options="-c synchronous_commit=off") as connection:
        first = await _time(connection, touch, customers)
        second = await _time(connection, touch, customers) if again else 0.0
        rows = await (await connection.execute(_CONTEXTS)).fetchall()
        caches, plans = (int(value or 0) for value in rows[0])
        memory = _memory(connection.info.backend_pid)
        behind = [pages for node in urls[1:] for pages in await _behind(connection, node)]
        return memory["Pss_Anon"], memory["Pss"], caches, plans, first, second, behind


async def _behind(connection: AsyncConnection[Any], node: str) -> list[int]:
    """Own pages of the backends that this session has on a node, which is on this machine."""
    (asking,) = (await (await connection.execute("SELECT citus_backend_gpid()")).fetchall())[0]
    async with await AsyncConnection.connect(node) as there:
        found = await there.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", (f"citus_internal gpid={asking}",)
        )
        return [_memory(pid)["Pss_Anon"] for (pid,) in await found.fetchall()]


async def _time(connection: AsyncConnection[Any], touch: Touch, customers: Sequence[CustomerId]) -> float:
    started = time.perf_counter()
    for customer_id in customers:
        await touch(connection, customer_id)
    return time.perf_counter() - started


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 for name, value in (line.split(":", 1) for line in lines)}
