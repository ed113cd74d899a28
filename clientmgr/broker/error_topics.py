"""Messages that a daemon gave up on: shown with the reason, published again to where they came from, or set aside.

The log is never changed. A mark says that somebody has dealt with a message, and who; retention removes both in time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row, tuple_row

from clientmgr.audit.log import AuditEntry, AuditLogger, chain_of
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.erased import is_erased
from clientmgr.broker.interface import FIRST_PUBLISHED_AT, Message
from clientmgr.broker.postgres.publish import append
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
class ErrorMessage:
    """A message of an error topic, and what somebody has done about it."""

    c_offset: int
    tenant: str
    key: str
    data: bytes
    attributes: Mapping[str, str]
    published_at: datetime
    action: str | None
    handled_by: str | None
    handled_at: datetime | None


@dataclass(frozen=True, slots=True)
class ErrorTopicCount:
    """How many of an error topic's newest messages are open."""

    topic: str
    open: int
    last_day: int
    kept: int
    is_at_least: bool
    """There may be more: only the newest were counted."""


def require_error_topic(topic: str) -> str:
    if topic not in ERROR_TOPICS:
        raise InvalidInputError("topic", f"one of {', '.join(ERROR_TOPICS)}", topic)
    return topic


async def error_messages(
    connection: AsyncConnection[Any],
    topic: str,
    *,
    limit: int,
    before: int | None = None,
    is_open: bool | None = True,
    offsets: Sequence[int] | None = None,
) -> list[ErrorMessage]:
    """The newest first. `is_open`: those that nobody has dealt with; None: all."""
    wanted = {"topic": require_error_topic(topic), "before": before, "limit": limit, "open": is_open}
    async with connection.cursor(row_factory=class_row(ErrorMessage)) as cursor:
        await cursor.execute(QUERIES["page"], {**wanted, "offsets": None if offsets is None else list(offsets)})
        return await cursor.fetchall()


async def error_counts(connection: AsyncConnection[Any], *, look_at: int) -> list[ErrorTopicCount]:
    async with connection.cursor(row_factory=class_row(ErrorTopicCount)) as cursor:
        await cursor.execute(QUERIES["counts"], {"topics": list(ERROR_TOPICS), "look_at": look_at})
        return await cursor.fetchall()


async def replay_targets(connection: AsyncConnection[Any], topic: str) -> list[str]:
    """Where messages of the error topic may be published again."""
    if origin := ERROR_TOPICS[require_error_topic(topic)]:
        return [origin]
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["targets"])
        return [name for (name,) in await cursor.fetchall()]


async def replay_errors(
    connection: AsyncConnection[Any],
    topic: str,
    offsets: Sequence[int],
    target: str,
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
) -> int:
    """Publish messages again as they were before they failed. Marks, audit and messages are one transaction.

    Returns how many: what somebody has dealt with already is left alone.
    """
    if target not in await replay_targets(connection, topic):
        raise WrongTargetError(f"messages of {topic} did not come from {target!r}")
    async with connection.transaction():
        due = await _mark(connection, topic, offsets, "replayed", actor)
        if due:
            found = await error_messages(connection, topic, limit=len(due), is_open=None, offsets=due)
            await audit.append_async(
                connection, [_entry("error-messages.replay", topic, found, actor, {"target": target})]
            )
            again = [
                Message(
                    one.data,
                    one.tenant,
                    one.key,
                    {name: value for name, value in one.attributes.items() if name not in ERROR_ATTRIBUTES},
                )
                for one in reversed(found)
                if not is_erased(one.attributes, one.data)
            ]
            # Last: from here on everyone else who publishes to the topic waits for us.
            await append(connection, target, again, cut_off_ms=settings.broker_publish_timeout_ms or None)
    return len(due)


async def drop_errors(
    connection: AsyncConnection[Any], topic: str, offsets: Sequence[int], audit: AuditLogger, *, actor: str
) -> int:
    """Mark messages as settled without a replay. Returns how many were open."""
    require_error_topic(topic)
    async with connection.transaction():
        due = await _mark(connection, topic, offsets, "dropped", actor)
        if due:
            found = await error_messages(connection, topic, limit=len(due), is_open=None, offsets=due)
            await audit.append_async(connection, [_entry("error-messages.drop", topic, found, actor, {})])
    return len(due)


async def forget_trimmed(connection: AsyncConnection[Any]) -> None:
    """Remove the marks of messages that retention has removed."""
    await connection.execute(QUERIES["forget_trimmed"])


async def _mark(
    connection: AsyncConnection[Any], topic: str, offsets: Sequence[int], action: str, actor: str
) -> list[int]:
    wanted = {"topic": topic, "offsets": list(offsets), "action": action, "handled_by": actor}
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(QUERIES["mark"], wanted)
        return [offset for (offset,) in await cursor.fetchall()]


def _entry(
    action: str, topic: str, messages: Sequence[ErrorMessage], actor: str, details: Mapping[str, str]
) -> AuditEntry:
    offsets = [one.c_offset for one in messages]
    return AuditEntry(
        chain_of({one.tenant for one in messages}),
        actor,
        action,
        "done",
        rows_affected=len(messages),
        details={"topic": topic, "first_offset": min(offsets), "last_offset": max(offsets), **details},
    )
