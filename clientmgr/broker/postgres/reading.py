"""Reading the log by offset, without claiming anything and without async. `cursor_reader` is for Dagster's sensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row, tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.postgres.publish import UnknownTopicError

QUERIES = named_queries("broker/queries/read.sql")


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message and its offset: the cursor to go on from."""

    c_offset: int
    data: bytes
    tenant: str
    key: str
    attributes: Mapping[str, str]
    published_at: datetime
    transaction_id: UUID


def read_from(
    connection: Connection[Any], topic: str, after_offset: int, limit: int, *, group_id: str | None = None
) -> list[LoggedMessage]:
    """Up to `limit` messages after `after_offset` (0: from the oldest kept), in order; with `group_id` its retries too.

    Nothing is ever skipped: a message that becomes visible later has a higher offset. A topic that does not exist is
    an error, not an empty topic.
    """
    with connection.cursor(binary=True, row_factory=class_row(LoggedMessage)) as cursor:
        cursor.execute(
            QUERIES["read_from"],
            {"topic": topic, "after_offset": after_offset, "limit": limit, "group_id": group_id},
        )
        messages = cursor.fetchall()
    if not messages:
        last_offset(connection, topic)
    return messages


def last_offset(connection: Connection[Any], topic: str) -> int:
    """The newest offset of the topic, 0 when it never had a message: where "only what comes from now on" begins."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(QUERIES["last_offset"], {"topic": topic}).fetchone()
    if row is None:
        raise UnknownTopicError(topic)
    return int(row[0])
