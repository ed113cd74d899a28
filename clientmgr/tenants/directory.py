"""Which tenants exist and in which status, for daemons that ask thousands of times a second. Cached in Redis.

Redis away means slower, never wrong. Every entry carries the registry's generation, which each activation and deletion
raises: an entry of another generation does not count, also one that a slow reader writes after the fact. Should the
generation not be raisable because Redis is away for whoever changes the registry, that change waits until what is
cached has expired (`announce_change`).
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import redis
import redis.asyncio
from psycopg import AsyncConnection

from clientmgr.logs import get_logger
from clientmgr.settings import Settings
from clientmgr.sqlfiles import named_queries
from clientmgr.tenants.names import CustomerId
from clientmgr.tenants.registry import TenantStatus

log = get_logger(__name__)

ENTRY_LIFETIME_S = 5
GENERATION_KEY = "clientmgr:tenants:generation"
ANSWER_WITHIN_S = 0.25
REST_AFTER_FAILURE_S = 5.0
"""A Redis that did not answer is left alone for this long: waiting for it at every batch would slow all down."""

# What stays as it is for a while. A tenant in the making is asked for anew each time.
_CACHEABLE = {TenantStatus.ACTIVE, TenantStatus.DELETED, None}
_UNKNOWN = "unknown"
_QUERIES = named_queries("control/queries/tenants.sql")


class Announcer(Protocol):
    """Told after each change of the registry, before it takes effect for those who read the cache."""

    def announce_change(self) -> None: ...


class TenantDirectory:
    """The reading side: one per daemon."""

    def __init__(self, settings: Settings) -> None:
        self._redis = (
            redis.asyncio.Redis.from_url(
                settings.redis_url,
                decode_responses=True,
                socket_timeout=ANSWER_WITHIN_S,
                socket_connect_timeout=ANSWER_WITHIN_S,
            )
            if settings.redis_url
            else None
        )
        self._resting_until = 0.0

    async def statuses(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The status of each customer; None: never activated. What Redis does not know, the registry is asked for."""
        wanted = sorted(set(customer_ids))
        generation, known = await self._cached(wanted)
        missing = [customer_id for customer_id in wanted if customer_id not in known]
        if missing:
            fresh = await self.ask_registry(connection, missing)
            known |= fresh
            if generation is not None:
                await self._remember(generation, fresh)
        return known

    async def ask_registry(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The truth, past every cache."""
        wanted = list(customer_ids)
        cursor = await connection.execute(_QUERIES["statuses"], {"customer_ids": wanted})
        found = dict(await cursor.fetchall())
        return {customer_id: found.get(customer_id) for customer_id in wanted}

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    async def _cached(self, customer_ids: list[CustomerId]) -> tuple[str | None, dict[CustomerId, str | None]]:
        """The generation (None: Redis does not answer) and what is cached of it."""
        if self._redis is None or time.monotonic() < self._resting_until:
            return None, {}
        try:
            answers: list[Any] = await self._redis.mget([GENERATION_KEY, *map(_key, customer_ids)])
        except (redis.RedisError, OSError) as error:
            self._rest(error)
            return None, {}
        generation: str = answers[0] or "0"
        known: dict[CustomerId, str | None] = {}
        for customer_id, entry in zip(customer_ids, answers[1:], strict=True):
            written_in, _, status = (entry or "").partition(":")
            if entry and written_in == generation:
                known[customer_id] = None if status == _UNKNOWN else status
        return generation, known

    async def _remember(self, generation: str, statuses: Mapping[CustomerId, str | None]) -> None:
        if self._redis is None:
            return
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for customer_id, status in statuses.items():
                    if status in _CACHEABLE:
                        pipeline.set(_key(customer_id), f"{generation}:{status or _UNKNOWN}", ex=ENTRY_LIFETIME_S)
                await pipeline.execute()
        except (redis.RedisError, OSError) as error:
            self._rest(error)

    def _rest(self, error: Exception) -> None:
        self._resting_until = time.monotonic() + REST_AFTER_FAILURE_S
        log.warning("no answer from Redis, asking the registry instead", error=str(error))


class RedisAnnouncer:
    """The writing side: makes every cached status void."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url

    def announce_change(self) -> None:
        """Raise the generation; where Redis does not answer, wait until nothing cached can be left."""
        if not self._url:
            return
        client = redis.Redis.from_url(self._url, socket_timeout=2.0, socket_connect_timeout=2.0)
        try:
            client.incr(GENERATION_KEY)
        except (redis.RedisError, OSError) as error:
            log.warning("no answer from Redis, waiting until what it holds has expired", error=str(error))
            time.sleep(ENTRY_LIFETIME_S)
        finally:
            client.close()


def _key(customer_id: CustomerId) -> str:
    return f"clientmgr:tenant:{customer_id}"
