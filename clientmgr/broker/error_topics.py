"""The topics of messages that a daemon gave up on, and how many wait there. `operations/failures` deals with them.

The log is never changed. A mark says that somebody has dealt with a message, and who; retention removes both in time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row

from clientmgr.base.errors import PermanentError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.interface import FIRST_PUBLISHED_AT
from clientmgr.contracts import topics

QUERIES = named_queries("broker/queries/error_topics.sql")

ERROR_TOPICS: Final[Mapping[str, str]] = {
    topics.WRITER_ERRORS: topics.WRITER,
    topics.CONTACT_DELETION_ERRORS: topics.CONTACT_DELETION,
    topics.DEVICE_MAPPER_ERRORS: "",
}
"""Error topics, and where their messages came from. Empty: there are several, and somebody has to choose one."""

ERROR_ATTRIBUTES: Final = frozenset({"error", "errorClass", "retryCount", FIRST_PUBLISHED_AT})
"""What daemons added on the way. A replay removes it."""


class WrongTargetError(PermanentError):
    """The messages can't have come from the topic that they should go to."""


@dataclass(frozen=True, slots=True)
class ErrorTopicCount:
    """How many of an error topic's newest messages are open."""

    topic: str
    open: int
    last_day: int
    kept: int
    is_at_least: bool
    """There may be more: only the newest were counted."""


async def error_counts(connection: AsyncConnection[Any], *, look_at: int) -> list[ErrorTopicCount]:
    async with connection.cursor(row_factory=class_row(ErrorTopicCount)) as cursor:
        await cursor.execute(QUERIES["counts"], {"topics": list(ERROR_TOPICS), "look_at": look_at})
        return await cursor.fetchall()


async def forget_trimmed(connection: AsyncConnection[Any]) -> None:
    """Remove the marks of messages that retention has removed."""
    await connection.execute(QUERIES["forget_trimmed"])
