"""The telemetry stream in Redis: connections to it, our name on it, and the shape of its entries."""

import os
import secrets
import socket
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings

ANSWER_WITHIN_S = 5.0
LONGEST_PAUSE_S = 5.0
SILENT_FOR_S = 30
"""A host that disappears silently is given up after this time."""

RedisClient = redis.asyncio.Redis
Entry = tuple[bytes, dict[bytes, bytes]]
"""Id and fields. No fields: the entry was trimmed or deleted in between."""
REDIS_ERRORS = (redis.RedisError, OSError)


def milliseconds_of(entry_id: bytes) -> int:
    """When the entry was added, by the clock of Redis."""
    return int(entry_id.partition(b"-")[0])


def instance_id(settings: Settings) -> str:
    """INSTANCE_ID, or a unique name."""
    return settings.instance_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def open_redis(settings: Settings, *, blocking: bool = False) -> RedisClient:
    """A client without retries: they would hide an outage from the caller, which has a loop of its own for that.

    A client for endless reads (`blocking`) has no timeout: redis-py would make a task and two timers for each call,
    which costs more than the call itself. TCP keep-alive finds a server that has disappeared silently.
    """
    if not settings.redis_url:
        raise SettingsError("REDIS_URL: not set, and no embedded stack is running; live positions come from Redis")
    only_tcp: dict[str, Any] = {"socket_keepalive_options": _kept_alive()}
    return redis.asyncio.Redis.from_url(
        settings.redis_url,
        socket_timeout=None if blocking else ANSWER_WITHIN_S,
        socket_connect_timeout=ANSWER_WITHIN_S,
        retry=Retry(NoBackoff(), 0),
        **({} if settings.redis_url.startswith("unix:") else only_tcp),
    )


def _kept_alive() -> dict[int, int]:
    """Socket options, as far as this system has them.

    Keep-alive probes watch over a connection that waits for an answer. The user timeout is for a request that is not
    even acknowledged: the kernel would repeat it for a quarter of an hour, without sending probes.
    """
    wanted = {
        "TCP_KEEPIDLE": SILENT_FOR_S // 2,
        "TCP_KEEPINTVL": SILENT_FOR_S // 6,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": SILENT_FOR_S * 1000,
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


async def ensure_group(client: RedisClient, stream: str, group: str, start: str) -> None:
    """Create the group, and the stream, if they are missing."""
    try:
        await client.xgroup_create(stream, group, id=start, mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def entries_of(answer: Any) -> list[Entry]:
    """The entries in an answer to XREADGROUP for one stream, in the shape of either protocol version."""
    if not answer:
        return []
    if isinstance(answer, dict):
        (batches,) = answer.values()
        return [entry for batch in batches for entry in batch]
    ((_, entries),) = answer
    return list(entries)
