"""Which tenants exist and in which status, for daemons that ask thousands of times a second. Cached in Redis.

Without Redis the answers are slower, never wrong. Every entry carries the registry's generation, a random name that
each activation and deletion replaces. An entry of another generation does not count, even if a slow reader writes it
after the change. A server that restarts, or that takes over, may hold an older generation: so each new connection
replaces the generation too. Where Redis does not answer while the registry changes, the change waits until all cached
entries have expired (`cache_invalidation`).
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import redis
import redis.asyncio
from psycopg import AsyncConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.tenants.cache_invalidation import ENTRY_KEY, ENTRY_LIFETIME_S, GENERATION_KEY, new_generation
from clientmgr.tenants.registry import TenantStatus
from clientmgr.tenants.requests_in_log import RequestsInLog

log = get_logger(__name__)

ANSWER_WITHIN_S = 0.25
REST_AFTER_FAILURE_S = 5.0
"""How long a Redis that did not answer is not asked: waiting for it at every batch would slow everything down."""

# Statuses that last. A tenant that is being activated or deleted is looked up each time.
_CACHEABLE: dict[str, str | None] = {
    TenantStatus.ACTIVE: TenantStatus.ACTIVE,
    TenantStatus.DELETED: TenantStatus.DELETED,
    "unknown": None,
}
_AS_CACHED = {status: text for text, status in _CACHEABLE.items()}
_QUERIES = named_queries("tenants/queries/tenants.sql")


class TenantDirectory:
    """Looks statuses up. One per daemon."""

    def __init__(self, settings: Settings) -> None:
        self._redis = (
            redis.asyncio.Redis.from_url(
                settings.redis_url,
                decode_responses=True,
                socket_timeout=ANSWER_WITHIN_S,
                socket_connect_timeout=ANSWER_WITHIN_S,
                # Redis is here to save time: asking the registry is quicker than asking Redis again.
                retry=Retry(NoBackoff(), 0),
                encoding_errors="replace",
                redis_connect_func=_begin_anew,
            )
            if settings.redis_url
            else None
        )
        self._resting_until = 0.0
        self._requests = RequestsInLog()

    async def statuses(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The status of each customer; None: never activated. What is not cached is read from the registry."""
        wanted = sorted(set(customer_ids))
        # Counted from before the registry is asked, and not from when Redis reads what we write.
        expires_at_ms = time.time_ns() // 1_000_000 + ENTRY_LIFETIME_S * 1000
        generation, known = await self._cached(wanted)
        missing = [customer_id for customer_id in wanted if customer_id not in known]
        if missing:
            fresh = await self.ask_registry(connection, missing)
            known |= fresh
            if generation is not None:
                await self._remember(generation, fresh, expires_at_ms)
        return known

    async def ask_registry(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The truth, past every cache."""
        wanted = list(customer_ids)
        cursor = await connection.execute(_QUERIES["statuses"], {"customer_ids": wanted})
        found = dict(await cursor.fetchall())
        return {customer_id: found.get(customer_id) for customer_id in wanted}

    async def statuses_with_requests(
        self, connection: AsyncConnection[Any], customer_ids: Iterable[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The truth, past every cache, for customers that seem unknown or deleted.

        One whose activation is requested counts as `activating`, also where only a message in the log says so.
        """
        return await self._requests.statuses(connection, list(customer_ids))

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    async def _cached(self, customer_ids: list[CustomerId]) -> tuple[str | None, dict[CustomerId, str | None]]:
        """The generation (None: there is none to write in) and what is cached of it."""
        if self._redis is None or time.monotonic() < self._resting_until:
            return None, {}
        try:
            answers: list[Any] = await self._redis.mget([GENERATION_KEY, *map(_key, customer_ids)])
        except (redis.RedisError, OSError) as error:
            self._rest(error)
            return None, {}
        generation: str | None = answers[0]
        if generation is None:
            await self._start_generation()
            return None, {}
        known: dict[CustomerId, str | None] = {}
        for customer_id, entry in zip(customer_ids, answers[1:], strict=True):
            written_in, _, status = (entry or "").partition(":")
            if written_in == generation and status in _CACHEABLE:
                known[customer_id] = _CACHEABLE[status]
        return generation, known

    async def _remember(self, generation: str, statuses: Mapping[CustomerId, str | None], expires_at_ms: int) -> None:
        if self._redis is None:
            return
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for customer_id, status in statuses.items():
                    if status in _AS_CACHED:
                        pipeline.set(_key(customer_id), f"{generation}:{_AS_CACHED[status]}", pxat=expires_at_ms)
                await pipeline.execute()
        except (redis.RedisError, OSError) as error:
            self._rest(error)

    async def _start_generation(self) -> None:
        """Somebody emptied Redis. From the next lookup on there is a generation to write in."""
        if self._redis is None:
            return
        try:
            await self._redis.set(GENERATION_KEY, new_generation(), nx=True)
        except (redis.RedisError, OSError) as error:
            self._rest(error)

    def _rest(self, error: Exception) -> None:
        self._resting_until = time.monotonic() + REST_AFTER_FAILURE_S
        log.warning("no answer from Redis, asking the registry instead", error=str(error))


def _key(customer_id: CustomerId) -> str:
    return ENTRY_KEY.format(customer_id=customer_id)


async def _begin_anew(connection: AbstractConnection) -> None:
    """Start a new generation. Each new connection does this before it is used."""
    await connection.on_connect()
    await connection.send_command("SET", GENERATION_KEY, new_generation())
    await connection.read_response()
