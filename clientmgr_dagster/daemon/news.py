"""What PostgreSQL said is new, and when: by it the daemon's threads decide whether to look.

Triggers notify (sql/base/0006_scheduler_news.sql, sql/dagster/queries/news.sql), and one connection listens. While it
is lost everything counts as new, so that Dagster looks as often as it would without us.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clientmgr.base.connection_rights import checked_async, role_taken_by
from clientmgr.base.database import NOTICE_SILENT_HOSTS
from clientmgr.base.notifications import listen

CHANNEL: Final = "scheduler_news"

RUNS: Final = "runs"
"""A run is new or has another status."""
BACKFILLS: Final = "backfills"
PARTITIONS: Final = "partitions"
AUTOMATION: Final = "automation"
"""A sensor or schedule was started or stopped. It concerns every one of them."""
REGISTRY: Final = "registry"
LEGACY_MIGRATIONS: Final = "legacy migrations"


class News:
    """When something of each kind was new for the last time. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}
        self._everything = clock()
        self.is_listening = False

    def heard(self, kind: str) -> None:
        self._last[kind] = self._clock()

    def listening(self) -> None:
        """From now on we are told. Nobody told us of what came before."""
        self._everything = self._clock()
        self.is_listening = True

    def lost(self) -> None:
        self.is_listening = False

    def last(self, kinds: Iterable[str]) -> float:
        """When one of these kinds was new for the last time."""
        if not self.is_listening:
            return self._clock()
        return max(self._everything, *(self._last.get(kind, 0.0) for kind in (AUTOMATION, *kinds)))

    def last_of_all(self) -> float:
        return self.last(list(self._last))


def follow(news: News, url: str) -> None:
    """Listen in a thread, which ends with the process."""
    threading.Thread(target=asyncio.run, args=(hear(news, url),), name="scheduler news", daemon=True).start()


async def hear(news: News, url: str) -> None:
    """Listen, as Dagster's login, until cancelled."""

    async def connect() -> AsyncConnection[Any]:
        conninfo = make_conninfo(url, **{**NOTICE_SILENT_HOSTS, "connect_timeout": 10, **conninfo_to_dict(url)})
        connection = await AsyncConnection.connect(conninfo, autocommit=True)
        await checked_async(connection, role_taken_by(url))
        return connection

    await listen(connect, CHANNEL, news.heard, listening=news.listening, lost=news.lost)
