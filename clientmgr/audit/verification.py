"""Proves that the audit log is as it was written, or says which rows are not. Reads the log, never writes it.

Chains are checked row by row, then against the last anchors (`anchoring`), and what guards them in the database against
what we ship (`guards`).
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from psycopg import Connection
from psycopg.types.json import Jsonb

from clientmgr.audit.anchoring import LastAnchor, PlaceState, announced_places, lost_anchors, read_last_anchors, rows_at
from clientmgr.audit.anchors import departures
from clientmgr.audit.guards import believe_only_the_catalogue, broken_guards, missing_tables
from clientmgr.audit.log import PLATFORM, AuditLogger, AuditRecord, read_log
from clientmgr.audit.places.interface import AnchorPlace
from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("audit/queries/audit.sql")
_RECORDING = named_queries("operations/queries/audit_verifications.sql")
FINDINGS_KEPT: Final = 100

State = Literal["intact", "damaged", "not proven"]


class FindingKind(enum.StrEnum):
    """What a finding is about."""

    ROW = "row"
    """Rows or ends of chains."""
    GUARD = "guard"
    """What guards the log in the database."""
    ANCHOR = "anchor"
    """The log or a place's anchors are not as they were when they were anchored."""
    UNAVAILABLE = "unavailable"
    """A place does not answer: it proves nothing, for or against the log."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a customer's chain, and at which row. What concerns no row has the platform's, and row 0."""

    customer_id: int
    seq: int
    problem: str
    kind: FindingKind = FindingKind.ROW


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """Where a chain ends according to `audit_heads`."""

    seq: int
    hash: bytes


@dataclass(slots=True)
class Examined:
    """What a verification has looked at, so far."""

    rows: int = 0
    chains: int = 0
    anchors: int = 0
    anchored_at: datetime | None = None
    """When the newest of the anchors was written."""
    not_readable: list[str] = field(default_factory=list)
    """Places that take anchors and never give them back: written to, not compared with."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification came to."""

    findings: int
    first: Sequence[Finding]
    """The first of them: with the wrong key every row is one."""
    examined: Examined = field(default_factory=Examined)
    damages: int = 0
    """How many findings say more than that a place did not answer."""

    @classmethod
    def of(
        cls, findings: Iterable[Finding], examined: Examined | None = None, *, kept: int = FINDINGS_KEPT
    ) -> "Verdict":
        first: list[Finding] = []
        count = damages = 0
        for finding in findings:
            count += 1
            damages += finding.kind is not FindingKind.UNAVAILABLE
            if count <= kept:
                first.append(finding)
        return cls(count, first, examined or Examined(), damages)

    @property
    def state(self) -> State:
        if self.damages:
            return "damaged"
        return "not proven" if self.findings else "intact"


def verify_log(
    database: Database,
    logger: AuditLogger,
    places: Sequence[AnchorPlace],
    customer_id: int | None = None,
    *,
    kept: int = FINDINGS_KEPT,
) -> Verdict:
    """Verify the whole log, or one customer's chain, with all that we have: rows, guards and anchors."""
    # Before the snapshot: a later anchor could name rows that the snapshot does not have yet.
    last_anchors = read_last_anchors(places, logger)
    examined = Examined()
    with database.connect(Role.READER) as connection:
        findings = verify(connection, logger, customer_id, last_anchors=last_anchors, examined=examined)
        return Verdict.of(findings, examined, kept=kept)


def verify(
    connection: Connection[Any],
    logger: AuditLogger,
    customer_id: int | None = None,
    *,
    last_anchors: Sequence[LastAnchor] = (),
    examined: Examined | None = None,
) -> Iterator[Finding]:
    """Walk every chain, or one customer's, and report each row that is not as it was written.

    `last_anchors` were read before. What was looked at is added up in `examined`.
    """
    examined = examined or Examined()
    # All queries look at the same moment, or a row appended meanwhile would seem inserted.
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    believe_only_the_catalogue(connection)
    if gone := missing_tables(connection, there_were_some=any(last.anchor for last in last_anchors)):
        yield from (Finding(PLATFORM, 0, problem, FindingKind.GUARD) for problem in gone)
        return
    for problem in broken_guards(connection):
        yield Finding(PLATFORM, 0, problem, FindingKind.GUARD)
    yield from _places(connection, last_anchors, examined)

    parameters = {"customer_id": customer_id}
    ends = {row[0]: ChainEnd(row[1], bytes(row[2])) for row in connection.execute(_QUERIES["heads"], parameters)}
    seen: dict[int, int] = {}
    records = read_log(connection, customer_id=customer_id, oldest_first=True)
    yield from verify_chains(_noted(records, seen, examined), ends, logger)
    examined.chains = len(seen.keys() | ends.keys())
    for (unaudited,) in connection.execute(_QUERIES["tenants_without_chain"], parameters):
        yield Finding(unaudited, 1, "the whole chain is missing; a registered tenant always has one")
    for (unaudited,) in connection.execute(_QUERIES["schemas_without_chain"], parameters):
        yield Finding(unaudited, 1, "the whole chain is missing, and the registry's row; the tenant's schema is there")
    if customer_id in (None, PLATFORM) and PLATFORM not in seen and PLATFORM not in ends:
        yield Finding(PLATFORM, 1, "the platform's chain is missing; every migrated database has one")
    yield from _not_continued(connection, last_anchors, seen, customer_id)


def record(connection: Connection[Any], verdict: Verdict) -> None:
    """Note it for the metrics."""
    examined = verdict.examined
    connection.execute(
        _RECORDING["record"],
        {
            "findings": verdict.findings,
            "first_findings": Jsonb([asdict(finding) for finding in verdict.first]),
            "rows": examined.rows,
            "chains": examined.chains,
            "anchors": examined.anchors,
        },
    )


def _places(connection: Connection[Any], last_anchors: Sequence[LastAnchor], examined: Examined) -> Iterator[Finding]:
    for last in last_anchors:
        match last.state:
            case PlaceState.READ if last.anchor is not None:
                examined.anchors += 1
                examined.anchored_at = max(filter(None, (examined.anchored_at, last.anchor.at)))
            case PlaceState.FORGED:
                yield Finding(PLATFORM, 0, last.problem, FindingKind.ANCHOR)
            case PlaceState.UNAVAILABLE:
                problem = f"the anchors can't be read, so the log can't be compared with them: {last.problem}"
                yield Finding(PLATFORM, 0, problem, FindingKind.UNAVAILABLE)
            case PlaceState.WRITE_ONLY:
                examined.not_readable.append(last.place)
    if any(last.state is PlaceState.EMPTY for last in last_anchors):
        for problem in lost_anchors(last_anchors, announced_places(connection)):
            yield Finding(PLATFORM, 0, problem, FindingKind.ANCHOR)


def _noted(records: Iterable[AuditRecord], seen: dict[int, int], examined: Examined) -> Iterator[AuditRecord]:
    for record in records:
        seen[record.customer_id] = record.seq
        examined.rows += 1
        yield record


def _not_continued(
    connection: Connection[Any], last_anchors: Sequence[LastAnchor], seen: dict[int, int], customer_id: int | None
) -> Iterator[Finding]:
    reported = set()
    for last in last_anchors:
        heads = {chain: head for chain, head in last.heads.items() if customer_id in (None, chain)}
        for chain, seq, problem in departures(heads, seen, rows_at(connection, heads)):
            if chain not in reported:  # several places say the same
                reported.add(chain)
                yield Finding(chain, seq, problem, FindingKind.ANCHOR)


def verify_chains(records: Iterable[AuditRecord], ends: dict[int, ChainEnd], logger: AuditLogger) -> Iterator[Finding]:
    """Check rows, sorted by customer and seq, against each other, the key and the recorded ends."""
    unseen = dict(ends)
    chain: _Chain | None = None
    for record in records:
        if chain is None or chain.customer_id != record.customer_id:
            if chain is not None:
                yield from chain.close()
            chain = _Chain(record.customer_id, unseen.pop(record.customer_id, None), logger)
        yield from chain.check(record)
    if chain is not None:
        yield from chain.close()
    for customer_id, end in sorted(unseen.items()):
        # An end is recorded together with its row: one without any was set back.
        problem = _removed(1, end.seq) if end.seq > 0 else "the chain has no rows: its end was set back to 0"
        yield Finding(customer_id, 1, problem)


class _Chain:
    """One customer's chain while it is walked: where we are, and what must come next."""

    def __init__(self, customer_id: int, end: ChainEnd | None, logger: AuditLogger) -> None:
        self.customer_id = customer_id
        self._end = end
        self._logger = logger
        self._expected_seq = 1
        self._previous_hash = b""

    def check(self, record: AuditRecord) -> Iterator[Finding]:
        if record.seq < self._expected_seq or (self._end is not None and record.seq > self._end.seq):
            yield Finding(self.customer_id, record.seq, "row inserted")
            return
        if record.seq > self._expected_seq:
            yield Finding(self.customer_id, self._expected_seq, _removed(self._expected_seq, record.seq - 1))
        elif record.previous_hash != self._previous_hash:
            yield Finding(self.customer_id, record.seq, "row does not continue the one before it")
        if record.key_id != self._logger.key_id:
            yield Finding(self.customer_id, record.seq, f"written with another key ({record.key_id}): can't be checked")
        elif not self._logger.is_authentic(record):
            yield Finding(self.customer_id, record.seq, "row changed")
        self._expected_seq, self._previous_hash = record.seq + 1, record.hash

    def close(self) -> Iterator[Finding]:
        last = self._expected_seq - 1
        if self._end is None:
            yield Finding(self.customer_id, last, "the record of the chain's end is missing")
        elif self._end.seq > last:
            yield Finding(self.customer_id, last + 1, _removed(last + 1, self._end.seq))
        elif self._end.hash != self._previous_hash:
            yield Finding(self.customer_id, last, "the chain's end is not the one recorded")


def _removed(first: int, last: int) -> str:
    return "row removed" if first == last else f"rows {first} to {last} removed"
