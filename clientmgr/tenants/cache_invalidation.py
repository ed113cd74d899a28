"""Tells those who cache the tenants' statuses (`directory`) of a change of the registry, which makes all of it void."""

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


class Announcer(Protocol):
    """Told of each change of the registry, once it is committed and before anything is built on it."""

    def announce_change(self) -> None: ...


class RedisAnnouncer:
    """Where no Redis is configured there is nobody to tell."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url

    def announce_change(self) -> None:
        """Replace the generation; where Redis does not answer, wait until nothing cached can be left."""
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
    """A name that was never used: a counter could come back to where it was after Redis lost it."""
    return uuid.uuid4().hex
