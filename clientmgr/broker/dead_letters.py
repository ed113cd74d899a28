"""Counts dead letters by filters, for `dead_letter_actions`, which replays and drops them.

People find them together with other failed messages: `clientmgr.operations.failures`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.sqlfiles import named_queries

QUERIES = named_queries("broker/queries/dead_letters.sql")


class State(enum.StrEnum):
    """Whether somebody has dealt with a letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """What any list of failed messages can be narrowed by. A field that is None selects all."""

    topic: str | None = None
    subscription: str | None = None
    tenant: str | None = None
    error_class: str | None = None
    since: datetime | None = None
    """Failed at this moment or later."""
    until: datetime | None = None
    contains: str | None = None
    """Text in the message or in the error."""
    not_after: datetime | None = None
    """Leaves out what failed later: what somebody has not seen."""

    def narrowing(self) -> dict[str, Any]:
        """These fields alone, by name."""
        return {each.name: getattr(self, each.name) for each in fields(FailureFilter)}


@dataclass(frozen=True, slots=True)
class Selection(FailureFilter):
    """Which letters are meant."""

    ids: Sequence[int] | None = None
    state: State = State.OPEN
    newest_id: int | None = None
    """Leaves out what failed after this letter."""

    def parameters(self) -> dict[str, Any]:
        return self.narrowing() | {
            "ids": None if self.ids is None else list(self.ids),
            "replayed": None if self.state is State.ANY else self.state is State.REPLAYED,
            "newest_id": self.newest_id,
        }


@dataclass(frozen=True, slots=True)
class LetterCount:
    """How many letters of one topic, subscription and kind of error are selected."""

    topic: str
    topic_id: int
    subscription: str
    error_class: str
    letters: int
    replayed: int
    first_failed_at: datetime
    last_failed_at: datetime
    newest_id: int


def counts(connection: Connection[Any], selection: Selection) -> list[LetterCount]:
    """How many letters there are, by topic, subscription and kind of error."""
    with connection.cursor(row_factory=class_row(LetterCount)) as cursor:
        cursor.execute(over_matching("counts"), selection.parameters())
        return cursor.fetchall()


def as_counted(selection: Selection, counted: Sequence[LetterCount]) -> Selection:
    """The selection without what failed after it was counted, so that an action touches only what somebody confirmed.

    It also lets a replay end whose letters die again while it runs.
    """
    return replace(selection, newest_id=max((count.newest_id for count in counted), default=0))


def over_matching(name: str) -> str:
    """The query of that name, reading from what the filter selects."""
    return f"WITH matching AS NOT MATERIALIZED ({QUERIES['matching']})\n{QUERIES[name]}"
