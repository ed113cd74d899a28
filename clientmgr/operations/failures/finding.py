"""Finds failed messages by filters: in the dead letters, in the error topics, in the queues of what is tried again.

Nothing here changes one: `acting` and `editing` do.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from psycopg import Connection
from psycopg.rows import class_row, dict_row, tuple_row

from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.dead_letters import FailureFilter
from clientmgr.broker.error_topics import ERROR_TOPICS

QUERIES: Final = named_queries("operations/queries/failures.sql")
DEAD_LETTERS: Final = "dead letters"
LOOK_AT: Final = 100_000
"""Of each place, at most so many of the newest are looked at."""
REF_PATTERN: Final = r"^(?:[dh][0-9]{1,18}|e[0-9]{1,9}-[0-9]{1,18})$"
CURSOR_PATTERN: Final = r"^([0-9]{1,16})_([dhe][0-9-]{1,30})$"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REF: Final = re.compile(r"(?:([dh]?)([0-9]{1,18})|e([0-9]{1,9})-([0-9]{1,18}))", re.ASCII)


class NoSuchFailureError(PermanentError):
    """There is no such message, or no more."""


class State(enum.StrEnum):
    """What has become of a failed message."""

    OPEN = "open"
    """Nobody has dealt with it."""
    WAITING = "waiting"
    """It is tried again by itself."""
    REPLAYED = "replayed"
    DROPPED = "dropped"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Ref:
    """The short name of a failed message: `d17` a dead letter, `e5-123` of an error topic, `h9` held."""

    kind: str
    number: int
    topic_id: int = 0

    @classmethod
    def parse(cls, text: str) -> "Ref":
        """As people write it. A number alone is a dead letter's."""
        match = _REF.fullmatch(text.strip())
        if match is None:
            raise InvalidInputError("id", "one that a list shows, such as d17 or e5-123", text)
        return cls("e", int(match[4]), int(match[3])) if match[3] else cls(match[1] or "d", int(match[2]))

    def __str__(self) -> str:
        return f"e{self.topic_id}-{self.number}" if self.kind == "e" else f"{self.kind}{self.number}"


@dataclass(frozen=True, slots=True)
class Filter(FailureFilter):
    """Which failed messages are meant. `topic` is where one came from, or the error topic in which it lies; messages
    of error topics have no subscription.
    """

    refs: Sequence[Ref] | None = None
    state: State = State.OPEN

    @property
    def is_narrow(self) -> bool:
        """Whether anything at all is asked for, apart from the state."""
        return replace(self, state=State.OPEN, not_after=None) != Filter()

    def parameters(self) -> dict[str, Any]:
        states = [one.value for one in State if one is not State.ANY] if self.state is State.ANY else [self.state.value]
        return self.narrowing() | {
            "states": states,
            "letters": self._numbers("d"),
            "error_topic_ids": None if self.refs is None else [one.topic_id for one in self.refs if one.kind == "e"],
            "error_offsets": self._numbers("e"),
            "held": self._numbers("h"),
            "error_topics": list(ERROR_TOPICS),
            "origins": list(ERROR_TOPICS.values()),
            "look_at": LOOK_AT,
        }

    def _numbers(self, kind: str) -> list[int] | None:
        return None if self.refs is None else [one.number for one in self.refs if one.kind == kind]


class Failure(Struct, frozen=True, rename="camel"):
    """A failed message without its contents."""

    ref: str
    place: str
    """`dead letters`, `held`, or the error topic in which it lies."""
    topic: str
    """Where it came from; of an error topic that several topics share, that one's name."""
    subscription: str
    tenant: str
    key: str
    error_class: str
    error: str
    attempts: int
    failed_at: datetime
    bytes: int
    state: str
    """`open`, `waiting` (it is tried again by itself), `replayed` or `dropped`."""
    handled_at: datetime | None
    next_try_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A failed message with its contents."""

    failure: Failure
    data: bytes
    attributes: Mapping[str, str]
    partition: int
    offset: int
    published_at: datetime
    transaction_id: str
    handled_by: str | None


class FailureGroup(Struct, frozen=True, rename="camel"):
    """Messages of one tenant and topic that failed with the same kind of error."""

    place: str
    topic: str
    tenant: str
    error_class: str
    messages: int
    first_failed_at: datetime
    last_failed_at: datetime
    example: str
    """The newest error."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many a filter selects."""

    messages: int
    newest_at: datetime | None
    tenants: int

    @property
    def is_at_least(self) -> bool:
        """There are so many that not all were looked at."""
        return self.messages >= LOOK_AT


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a list goes on: behind this one."""

    failed_at: datetime
    ref: str

    def __str__(self) -> str:
        return f"{(self.failed_at - _EPOCH) // timedelta(microseconds=1)}_{self.ref}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        match = re.fullmatch(CURSOR_PATTERN, text.strip())
        if match is None:
            raise InvalidInputError("before", "the `next` of an answer", text)
        return cls(_EPOCH + timedelta(microseconds=int(match[1])), match[2])


def find(connection: Connection[Any], wanted: Filter, *, limit: int, before: Cursor | None = None) -> list[Failure]:
    """The newest first."""
    place = {"before_at": before and before.failed_at, "before_ref": before.ref if before else None}
    with connection.cursor(row_factory=class_row(Failure)) as cursor:
        cursor.execute(over_matching("newest"), {**wanted.parameters(), **place, "limit": limit})
        return cursor.fetchall()


def groups(connection: Connection[Any], wanted: Filter, *, limit: int) -> list[FailureGroup]:
    """By error, tenant and topic; the largest first."""
    with connection.cursor(row_factory=class_row(FailureGroup)) as cursor:
        cursor.execute(over_matching("groups"), {**wanted.parameters(), "limit": limit})
        return cursor.fetchall()


def count(connection: Connection[Any], wanted: Filter) -> Count:
    with connection.cursor(row_factory=class_row(Count)) as cursor:
        found = cursor.execute(over_matching("count"), wanted.parameters()).fetchone()
    assert found is not None  # noqa: S101  # an aggregate without groups has one row
    return found


def show(connection: Connection[Any], ref: Ref) -> FailedMessage:
    """The message with its contents, or `NoSuchFailureError`."""
    found = find(connection, Filter(refs=[ref], state=State.ANY), limit=1)
    query = {"d": "letter", "e": "error_message", "h": "held_message"}[ref.kind]
    with connection.cursor(row_factory=dict_row) as cursor:
        stored = cursor.execute(QUERIES[query], {"number": ref.number, "topic_id": ref.topic_id}).fetchone()
    if not found or stored is None:
        raise NoSuchFailureError(f"there is no failed message {ref}: it was dropped or settled, or is no longer kept")
    return FailedMessage(found[0], **stored)


def as_seen(wanted: Filter, counted: Count) -> Filter:
    """The filter without what failed after it was counted, so that an action touches only what somebody confirmed.

    It also lets a replay end whose messages die again while it runs.
    """
    return replace(wanted, not_after=counted.newest_at or datetime.min.replace(tzinfo=UTC))


def targets(connection: Connection[Any], failure: Failure) -> list[str]:
    """Where a message of an error topic may go again. A dead letter goes to its own subscription, and nowhere else."""
    if failure.place not in ERROR_TOPICS:
        return [failure.topic]
    return targets_of(connection, failure.place)


def targets_of(connection: Connection[Any], error_topic: str) -> list[str]:
    if origin := ERROR_TOPICS[error_topic]:
        return [origin]
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT topic FROM clientmgr.log_counter WHERE topic ~ '^sending-(batch|tx)-devicemapper-' ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall()]


def over_matching(name: str) -> str:
    """The query of that name, reading from what the filter selects."""
    return f"WITH matching AS NOT MATERIALIZED ({QUERIES['matching']})\n{QUERIES[name]}"
