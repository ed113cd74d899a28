"""Copies the ends of all chains to the places for anchors, and reads what they hold.

An anchor is written only where the log continues the last anchor of every place that answers: a manipulated log never
takes the place of a good anchor.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from clientmgr.audit.anchors import Anchor, AnchorForgedError, Head, departures, differs, head_of, opened, signed
from clientmgr.audit.guards import believe_only_the_catalogue
from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger, AuditRecord
from clientmgr.audit.places.interface import (
    AnchoredMeanwhileError,
    AnchorPlace,
    PlaceNotReadableError,
    PlaceUnavailableError,
)
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("audit/queries/audit.sql")

ACTION: Final = "audit.anchor"
"""The platform's chain says from when on a place has anchors. So a place that lost them is not taken for a new one."""


class PlaceState(enum.Enum):
    """What came of asking a place for its last anchor."""

    READ = "read"
    EMPTY = "empty"
    FORGED = "forged"
    UNAVAILABLE = "unavailable"
    WRITE_ONLY = "write only"


@dataclass(frozen=True, slots=True)
class LastAnchor:
    """What a place holds."""

    place: str
    state: PlaceState
    anchor: Anchor | None = None
    problem: str = ""

    @property
    def heads(self) -> Mapping[int, Head]:
        return {} if self.anchor is None else self.anchor.heads


class NotAnchoredError(ClientManagerError):
    """The log does not continue what was anchored. Nothing was written anywhere."""

    def __init__(self, obstacles: Sequence[tuple[int, int, str]]) -> None:
        self.obstacles = obstacles
        chain, seq, problem = obstacles[0]
        more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
        super().__init__(
            f"the audit log is not anchored: customer {chain}, row {seq}: {problem}{more}; see `clientmgr audit verify`"
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a place's anchor."""

    place: str
    outcome: str
    number: int | None
    is_kept: bool
    """Whether the place now holds where the chains end."""


def read_last_anchors(places: Sequence[AnchorPlace], logger: AuditLogger) -> list[LastAnchor]:
    """Ask every place. To be called before the log is looked at: then the log can only be newer than the anchors."""
    return [_read(place, logger) for place in places]


def anchor_log(
    database: Database,
    logger: AuditLogger,
    places: Sequence[AnchorPlace],
    *,
    actor: str,
    accept: str | None = None,
) -> list[Written]:
    """Write where all chains end to every place where that is news.

    With `accept`, the reason, the log is taken as it is, whatever was anchored: after a restored backup, for example.
    """
    if accept is not None:
        _append(database, logger, [AuditEntry(PLATFORM, actor, ACTION, "accepted", details={"reason": accept})])
    written, new_places = _anchor(database, logger, places, accept)
    if new_places:
        # After its first anchor and not before: a kill in between must not leave a place that seems to have lost them.
        details = [{"place": name} for name in new_places]
        _append(database, logger, [AuditEntry(PLATFORM, actor, ACTION, "started", details=place) for place in details])
        written, _ = _anchor(database, logger, places, accept)
    return written


def _anchor(
    database: Database, logger: AuditLogger, places: Sequence[AnchorPlace], accept: str | None
) -> tuple[list[Written], list[str]]:
    """What became of each place, and which of them the log does not know yet."""
    lasts = read_last_anchors(places, logger)
    with database.connect(Role.WRITER) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        believe_only_the_catalogue(connection)
        rows = connection.execute(_QUERIES["heads"], {"customer_id": None}).fetchall()
        heads = {chain: head_of(seq, bytes(row_hash)) for chain, seq, row_hash in rows}
        announced = announced_places(connection)
        obstacles = list(_obstacles(connection, logger, lasts, heads, announced, accepted=accept is not None))
    if obstacles:
        raise NotAnchoredError(obstacles)
    written = [_write(place, last, heads, logger, accept) for place, last in zip(places, lasts, strict=True)]
    new_places = [
        result.place
        for last, result in zip(lasts, written, strict=True)
        if last.state is not PlaceState.WRITE_ONLY and result.is_kept and result.place not in announced
    ]
    return written, new_places


def announced_places(connection: Connection[Any]) -> set[str]:
    """Places that had an anchor at some time, by the platform's chain."""
    return {row[0] for row in connection.execute(_QUERIES["announced_places"], {"action": ACTION}) if row[0]}


def rows_at(connection: Connection[Any], heads: Mapping[int, Head]) -> dict[int, str]:
    """The hashes, as anchors keep them, that the rows with the anchored numbers have now."""
    wanted = {"chains": list(heads), "seqs": [head.seq for head in heads.values()]}
    return {
        chain: head_of(0, bytes(row_hash)).hash for chain, row_hash in connection.execute(_QUERIES["rows_at"], wanted)
    }


def lost_anchors(lasts: Sequence[LastAnchor], announced: set[str]) -> Iterator[str]:
    """Places that had anchors and have none."""
    for last in lasts:
        if last.state is PlaceState.EMPTY and last.place in announced:
            yield f"the anchors in {last.place} are gone; the log says that there were some"


def _read(place: AnchorPlace, logger: AuditLogger) -> LastAnchor:
    try:
        line = place.read_last()
        if line is None:
            return LastAnchor(place.name, PlaceState.EMPTY)
        return LastAnchor(place.name, PlaceState.READ, opened(line, logger))
    except PlaceNotReadableError as error:
        return LastAnchor(place.name, PlaceState.WRITE_ONLY, problem=str(error))
    except PlaceUnavailableError as error:
        return LastAnchor(place.name, PlaceState.UNAVAILABLE, problem=str(error))
    except AnchorForgedError as error:
        return LastAnchor(place.name, PlaceState.FORGED, problem=f"{place.name}: {error}")


def _obstacles(
    connection: Connection[Any],
    logger: AuditLogger,
    lasts: Sequence[LastAnchor],
    heads: Mapping[int, Head],
    announced: set[str],
    *,
    accepted: bool,
) -> Iterator[tuple[int, int, str]]:
    for last in lasts:
        if last.state is PlaceState.FORGED:
            # Not even an accepted log is written over it: it is evidence. Whoever has looked at it moves it away.
            yield PLATFORM, 0, last.problem
    if not accepted:
        for lost in lost_anchors(lasts, announced):
            yield PLATFORM, 0, lost
        ends = {chain: head.seq for chain, head in heads.items()}
        for last in lasts:
            yield from departures(last.heads, ends, rows_at(connection, last.heads))
    if heads.get(PLATFORM, Head(0, "")).seq == 0:
        yield PLATFORM, 1, "the platform's chain is missing"
    yield from _unwritten_ends(connection, logger, lasts, heads)


def _unwritten_ends(
    connection: Connection[Any], logger: AuditLogger, lasts: Sequence[LastAnchor], heads: Mapping[int, Head]
) -> Iterator[tuple[int, int, str]]:
    """Ends that are news, and that we did not write: they would make the anchor a witness of somebody else's row."""
    known = {(chain, head) for last in lasts for chain, head in last.heads.items()}
    news = {chain: head for chain, head in heads.items() if (chain, head) not in known}
    records = (AuditRecord(*row) for row in connection.execute(_QUERIES["last_rows"], {"chains": list(news)}))
    ours = {
        record.customer_id
        for record in records
        if news[record.customer_id] == head_of(record.seq, bytes(record.hash))
        and record.key_id == logger.key_id
        and logger.is_authentic(record)
    }
    for chain in sorted(news.keys() - ours):
        yield chain, news[chain].seq, "the chain's end is no row that was written with our key"


def _write(
    place: AnchorPlace, last: LastAnchor, heads: Mapping[int, Head], logger: AuditLogger, reason: str | None
) -> Written:
    if last.state is PlaceState.UNAVAILABLE:
        return Written(place.name, last.problem, None, is_kept=False)
    if last.state is not PlaceState.WRITE_ONLY and not differs(last.anchor, heads):
        return Written(place.name, "unchanged", last.anchor.number if last.anchor else None, is_kept=True)
    now = datetime.now(UTC)
    # A place that can't be read has no numbers to count on; the time orders its anchors as well.
    number = int(now.timestamp()) if last.state is PlaceState.WRITE_ONLY else 1
    if last.anchor is not None:
        number = last.anchor.number + 1
    try:
        place.write(number, signed(Anchor(number, now, heads, reason), logger))
    except AnchoredMeanwhileError:
        return Written(place.name, "anchored by another process", None, is_kept=True)
    except PlaceUnavailableError as error:
        return Written(place.name, str(error), None, is_kept=False)
    return Written(place.name, "anchored", number, is_kept=True)


def _append(database: Database, logger: AuditLogger, entries: Sequence[AuditEntry]) -> None:
    with database.connect(Role.WRITER) as connection:
        logger.append(connection, entries)
