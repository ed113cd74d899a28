"""Whether another instance runs under our name: then each of the two reads only part of the stream."""

import secrets

from clientmgr.live.redis_stream import RedisClient

SEEN_FOR_MS = 10_000
TIME_TO_LEAVE_MS = 5_000
"""Who stops while we start, or was killed just before, is no namesake."""

# By the clock of Redis, which all of them share.
_LOOK = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now, redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')}
"""


class Namesakes:
    """Of one instance. Every instance signs a list in Redis, and looks who else does."""

    def __init__(self, stream: str, instance: str, *, time_to_leave_ms: int = TIME_TO_LEAVE_MS) -> None:
        self._key = f"{stream}:instances:{instance}"
        self._me = secrets.token_hex(8).encode()
        self._time_to_leave_ms = time_to_leave_ms
        self._began_ms: int | None = None
        self.found = False

    async def look(self, client: RedisClient) -> None:
        """To be called every few seconds, or others take us for gone."""
        now, signed = await client.eval(_LOOK, 1, self._key, self._me, str(SEEN_FOR_MS))
        if self._began_ms is None:
            self._began_ms = now
        late = self._began_ms + self._time_to_leave_ms
        # Pairs of name and time; RESP3 nests them.
        pairs = signed if signed and isinstance(signed[0], list) else zip(signed[::2], signed[1::2], strict=True)
        self.found = any(name != self._me and float(at_ms) > late for name, at_ms in pairs)

    async def leave(self, client: RedisClient) -> None:
        await client.zrem(self._key, self._me)
