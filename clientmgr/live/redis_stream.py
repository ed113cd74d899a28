"""Who we are on the telemetry stream, and how we talk to the Redis that holds it."""

import asyncio
import contextlib
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
from clientmgr.contracts import daemons

DURABLE_GROUP = daemons.DURABLE_GROUP
ANSWER_WITHIN_S = 5.0
LONGEST_PAUSE_S = 5.0
SILENT_FOR_S = 30
"""A host that is gone without a word is given up after this time."""

RedisClient = redis.asyncio.Redis
Entry = tuple[bytes, dict[bytes, bytes]]
"""Id and fields; no fields: it was trimmed or deleted meanwhile."""
REDIS_ERRORS = (redis.RedisError, OSError)


def instance_id(settings: Settings) -> str:
    """INSTANCE_ID, or a name that nobody else has."""
    return settings.instance_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def open_redis(settings: Settings, *, blocking: bool = False) -> RedisClient:
    """A client whose errors are the caller's to handle: retries inside it would hide an outage from the loop around.

    One that reads for ever (`blocking`) has no timeout of its own: redis-py makes a task and two timers for it at each
    call, which costs more than the call. The kernel finds out about a server that is silently gone.
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
    """Probes for a connection that waits, and a limit for one whose request is not even acknowledged: there the kernel
    would go on for a quarter of an hour, and probe nothing meanwhile. As far as the system has them.
    """
    wanted = {
        "TCP_KEEPIDLE": SILENT_FOR_S // 2,
        "TCP_KEEPINTVL": SILENT_FOR_S // 6,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": SILENT_FOR_S * 1000,
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


async def ensure_group(client: RedisClient, stream: str, group: str, start: str) -> None:
    """Make the group, and the stream, if they are missing."""
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


def being_cancelled() -> bool:
    """Whether the running task was told to end. psycopg may answer a cancellation with an error of the query instead,
    and a loop that outlives errors would then never end.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> None:
    """Until `stop` is set, but no longer than `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
