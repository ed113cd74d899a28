"""Proves that the audit log is as it was written, or says which rows are not. Reads the log, never writes it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from clientmgr.audit.log import AuditLogger, AuditRecord, read_log
from clientmgr.base.sqlfiles import named_queries

_QUERIES = named_queries("audit/queries/audit.sql")
_RECORDING = named_queries("operations/queries/audit_verifications.sql")
FINDINGS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a customer's chain, and at which row."""

    customer_id: int
    seq: int
    problem: str


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """Where a chain ends according to `audit_heads`."""

    seq: int
    hash: bytes


def verify(connection: Connection[Any], logger: AuditLogger, customer_id: int | None = None) -> Iterator[Finding]:
    """Walk every chain, or one customer's, and report each row that is not as it was written."""
    # All queries look at the same moment, or a row appended meanwhile would seem inserted.
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    parameters = {"customer_id": customer_id}
    ends = {row[0]: ChainEnd(row[1], bytes(row[2])) for row in connection.execute(_QUERIES["heads"], parameters)}
    yield from verify_chains(read_log(connection, customer_id=customer_id, oldest_first=True), ends, logger)
    for (unaudited,) in connection.execute(_QUERIES["tenants_without_chain"], parameters):
        yield Finding(unaudited, 1, "the whole chain is missing; a registered tenant always has one")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification of the whole log came to."""

    findings: int
    first: Sequence[Finding]
    """The first of them: with the wrong key every row is one."""

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "Verdict":
        remaining = iter(findings)
        first = list(itertools.islice(remaining, FINDINGS_KEPT))
        return cls(len(first) + sum(1 for _ in remaining), first)


def record(connection: Connection[Any], verdict: Verdict) -> None:
    """Note it for the metrics."""
    first = Jsonb([asdict(finding) for finding in verdict.first])
    connection.execute(_RECORDING["record"], {"findings": verdict.findings, "first_findings": first})


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
        if end.seq > 0:
            yield Finding(customer_id, 1, _removed(1, end.seq))


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
