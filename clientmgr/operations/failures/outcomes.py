"""What became of failed messages that somebody replayed: done, under way, or died again and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.contracts import topics
from clientmgr.operations.failures.finding import QUERIES


class ReplayOutcome(Struct, frozen=True, rename="camel"):
    """A replay of a message, and how it ended."""

    ref: str
    replayed_by: str
    replayed_at: datetime
    changed: list[str]
    """The fields that were edited."""
    target: str
    subscription: str | None
    outcome: str
    """`done`, `under way`, `died again`, or `handed over` (to Google Pub/Sub, which does not tell)."""
    died_ref: str | None
    """The failed message that it became: the same dead letter, or another."""
    error_class: str
    error: str
    """Why it died again; of one that is under way, why it is held."""


def outcomes(connection: Connection[Any], refs: Sequence[str], *, last_only: bool = False) -> list[ReplayOutcome]:
    """The newest first."""
    wanted = {"refs": list(refs), "last_only": last_only, "writer": topics.WRITER, "retries": topics.REPUBLISHER}
    with connection.cursor(row_factory=class_row(ReplayOutcome)) as cursor:
        return cursor.execute(QUERIES["outcomes"], wanted).fetchall()
