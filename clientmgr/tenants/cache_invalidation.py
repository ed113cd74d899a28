"""Invalidates the cached statuses of tenants (`directory`) after each change of the registry."""

import time
import uuid
from typing import Protocol

from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings

log = get_logger(__name__)

GENERATION_KEY = "clientmgr:tenants:generation"
ENTRY_KEY = "clientmgr:tenant:{customer_id}"
ENTRY_LIFETIME_S = 5
ANSWER_WITHIN_S = 2.0


class CacheInvalidator(Protocol):
    """Called after each change of the registry: once it is committed, and before anything relies on it."""

    def invalidate(self) -> None: ...


class RedisCacheInvalidator:
    """Without a Redis in the settings nothing is cached, and there is nothing to do."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url

    def invalidate(self) -> None:
        """Replace the generation. Where Redis does not answer, wait until whatever it holds has expired."""
        if not self._url:
            return
        # It takes half a second to import, and most commands change no tenant.
        import redis

        client = redis.Redis.from_url(self._url, socket_timeout=ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S)
        try:
            client.set(GENERATION_KEY, new_generation())
        except (redis.RedisError, OSError) as error:
            log.warning("no answer from Redis, waiting until what it holds has expired", error=str(error))
            time.sleep(ENTRY_LIFETIME_S)
        finally:
            client.close()


def new_generation() -> str:
    """A name that was never used. A counter would start again when Redis has lost it."""
    return uuid.uuid4().hex
