"""Reads a topic for somebody who keeps the cursor elsewhere and stores it only after the work: a Dagster sensor.

It is still a group: `clientmgr topics` shows how far it has come, retention waits for it, and its dead letters can be
replayed. A cursor that it is given has been stored, so all messages up to it count as read.
"""

import asyncio
from types import TracebackType
from typing import Any, Self

from psycopg import Connection

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.postgres.claim import QUERIES as CONSUMING_QUERIES
from clientmgr.broker.postgres.reading import QUERIES, LoggedMessage, read_from
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.broker.settling import as_text, passes_erased

PAUSES = named_queries("broker/queries/pauses.sql")


class CursorReader:
    """One reading of one topic, as the group that carries its name. Use it as `with`."""

    def __init__(self, database: Database, settings: Settings, topic: str) -> None:
        self._database = database
        self._settings = settings
        self._topic = topic
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> Self:
        self._connection = self._database.connect(Role.WRITER, autocommit=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def read(self, cursor: str | None, limit: int) -> list[LoggedMessage]:
        """Up to `limit` messages after `cursor`, an offset; None: from the oldest that is kept. None while paused."""
        after = _offset(cursor)
        topic_id = self._topic_id()
        while True:
            self._open.execute(QUERIES["pass_cursor"], {"group_id": self._topic, "topic_id": topic_id, "cursor": after})
            if self._open.execute(PAUSES["is_paused"], {"group_id": self._topic}).fetchone() is not None:
                return []
            found = read_from(self._open, self._topic, after, limit, group_id=self._topic)
            messages = [one for one in found if not passes_erased(one.attributes, one.data)]
            if messages or not found:
                return messages
            after = found[-1].c_offset  # all of them erased: nobody needs to store a cursor behind them

    def bury(self, message: LoggedMessage, error: Exception) -> None:
        """Set a message aside where `clientmgr failures` shows it. Doing so twice changes only the time."""
        self._open.execute(
            CONSUMING_QUERIES["bury"],
            {
                "group_id": self._topic,
                "topic_id": self._topic_id(),
                "offsets": [message.c_offset],
                "attempts": [1],
                "error_classes": [type(error).__name__],
                "exceptions": [as_text(str(error))],
            },
        )

    @property
    def _open(self) -> Connection[Any]:
        if self._connection is None:
            raise RuntimeError("a CursorReader is used as `with`")
        return self._connection

    def _topic_id(self) -> int:
        """The topic's id. Creates topic and group where they are missing."""
        wanted = {"group_id": self._topic, "topic": self._topic}
        row = self._open.execute(QUERIES["group_topic_id"], wanted).fetchone()
        if row is None:
            asyncio.run(self._make())
            row = self._open.execute(QUERIES["group_topic_id"], wanted).fetchone()
        assert row is not None  # noqa: S101  # just made
        return int(row[0])

    async def _make(self) -> None:
        async with PostgresBroker(self._database, self._settings) as broker:
            await broker.ensure_topic(self._topic)
            await broker.ensure_subscription(self._topic, self._topic)


def _offset(cursor: str | None) -> int:
    try:
        return int(cursor or 0)
    except ValueError:
        raise InvalidInputError("cursor", "an offset of the topic, or nothing to begin anew", cursor) from None
