"""The append-only audit log: who asked for what, of which customer, and what came of it.

Rows are chained per customer by an HMAC, so that `audit_verification` finds a changed, removed or inserted row even
when whoever did it owns the database. What only a copy kept elsewhere can show is the matter of `anchoring`. Contact
ids are kept only as keyed hashes.
"""

import functools
import hashlib
import hmac
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict
from psycopg import AsyncConnection, Connection

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.errors import ClientManagerError, InvalidInputError, SettingsError
from clientmgr.base.keyed_sha256 import KeyedSha256
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries

PLATFORM = 0
"""The chain of what concerns no single customer."""

Detail = str | int | bool | None

_QUERIES = named_queries("audit/queries/audit.sql")


class AuditNotWrittenError(ClientManagerError):
    """The database took rows of the audit log and did not keep them."""


# Structs, because contact deletion makes one of each for every contact: a dataclass takes several times as long.


class AuditEntry(Struct, frozen=True):
    """Something that was asked for or done."""

    customer_id: int
    actor: str
    action: str
    outcome: str
    contact_id: int | None = None
    rows_affected: int | None = None
    details: Mapping[str, Detail] = field(default_factory=dict)


class AuditRecord(Struct, frozen=True):
    """A row of the log."""

    customer_id: int
    seq: int
    recorded_at: datetime
    actor: str
    action: str
    contact_hash: str | None
    rows_affected: int | None
    outcome: str
    details: Mapping[str, Detail]
    key_id: str
    previous_hash: bytes
    hash: bytes


def chain_of(tenants: Collection[str]) -> int:
    """Where what was done with messages of these tenants is recorded: in the customer's chain if they are all one's."""
    distinct = set(tenants)
    if len(distinct) == 1:
        try:
            return parse_customer_id(distinct.pop())
        except InvalidInputError:
            # A message of no customer, or of one that does not exist: that may be why somebody deals with it.
            return PLATFORM
    return PLATFORM


# The chain's hashes are made of what this writes: it must never change.
_as_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


_quoted = functools.lru_cache(maxsize=1024)(encode_basestring_ascii)


def _chained_text(record: AuditRecord) -> str:
    """What `_as_json` makes of a list of these values, in a third of the time: thousands are made for a batch."""
    contact = "null" if record.contact_hash is None else encode_basestring_ascii(record.contact_hash)
    rows = "null" if record.rows_affected is None else record.rows_affected
    details = _as_json(dict(record.details)) if record.details else "{}"
    return (
        f"[{record.customer_id},{record.seq},{_quoted(_as_text(record.recorded_at))},{_quoted(record.actor)},"
        f"{_quoted(record.action)},{contact},{rows},{_quoted(record.outcome)},{details},{_quoted(record.key_id)},"
        f'"{record.previous_hash.hex()}"]'
    )


@functools.lru_cache(maxsize=16)  # those of a batch have one
def _as_text(recorded_at: datetime) -> str:
    return recorded_at.astimezone(UTC).isoformat(timespec="microseconds")


class AuditLogger:
    """Appends to the log. It holds the key and nothing else."""

    def __init__(self, key: bytes) -> None:
        if not key:
            raise SettingsError("AUDIT_HASH_KEY: expected a secret of some length, got nothing")
        self._hmac = KeyedSha256(key)
        self.key_id = hashlib.sha256(b"audit-key-id:" + key).hexdigest()[:12]

    @classmethod
    def from_settings(cls, settings: Settings) -> "AuditLogger":
        return cls(settings.audit_hash_key.get_secret_value().encode())

    def contact_hash(self, customer_id: int, contact_id: int) -> str:
        """What stands for a contact in the log: always the same for a contact, and of no use without the key."""
        return self._hmac(f"contact:{customer_id}:{contact_id}".encode()).hex()

    def append(self, connection: Connection[Any], entries: Sequence[AuditEntry]) -> None:
        """Append in the caller's transaction. The customers' chains stay locked until it ends."""
        locked = connection.execute(_QUERIES["lock_chains"], {"chains": _chains_in_lock_order(entries)})
        heads = {customer_id: (seq, last_hash) for customer_id, seq, last_hash in locked}
        _all_kept(connection.execute(_QUERIES["append"], self._columns(entries, heads)).rowcount, entries)

    async def append_async(self, connection: AsyncConnection[Any], entries: Sequence[AuditEntry]) -> None:
        """`append` for those who must not block."""
        locked = await connection.execute(_QUERIES["lock_chains"], {"chains": _chains_in_lock_order(entries)})
        heads = {customer_id: (seq, last_hash) async for customer_id, seq, last_hash in locked}
        appended = await connection.execute(_QUERIES["append"], self._columns(entries, heads))
        _all_kept(appended.rowcount, entries)

    def is_authentic(self, record: AuditRecord) -> bool:
        """Whether the row is as we wrote it. Only meaningful for rows written with our key."""
        return hmac.compare_digest(self._chain_hash(record), record.hash)

    def signature(self, purpose: str, data: bytes) -> str:
        """What proves that a holder of the key wrote `data`. Those of one purpose are of no use for another."""
        return hmac.digest(self._hmac(f"signature:{purpose}".encode()), data, "sha256").hex()

    def _columns(self, entries: Sequence[AuditEntry], heads: Mapping[int, tuple[int, bytes]]) -> dict[str, Any]:
        ends = dict(heads)
        records = []
        now = datetime.now(UTC)
        for entry in entries:
            seq, previous_hash = ends[entry.customer_id]
            record = AuditRecord(
                customer_id=entry.customer_id,
                seq=seq + 1,
                recorded_at=now,
                actor=entry.actor,
                action=entry.action,
                contact_hash=None
                if entry.contact_id is None
                else self.contact_hash(entry.customer_id, entry.contact_id),
                rows_affected=entry.rows_affected,
                outcome=entry.outcome,
                details=entry.details,
                key_id=self.key_id,
                previous_hash=bytes(previous_hash),
                hash=b"",
            )
            record_hash = self._chain_hash(record)
            records.append((record, record_hash))
            ends[entry.customer_id] = (record.seq, record_hash)
        return {
            "customer_id": bigint_array(record.customer_id for record, _ in records),
            "seq": bigint_array(record.seq for record, _ in records),
            "recorded_at": now,
            "actor": text_array(record.actor for record, _ in records),
            "action": text_array(record.action for record, _ in records),
            "contact_hash": text_array(record.contact_hash for record, _ in records),
            "rows_affected": bigint_array(record.rows_affected for record, _ in records),
            "outcome": text_array(record.outcome for record, _ in records),
            "details": text_array(_as_json(dict(record.details)) if record.details else "{}" for record, _ in records),
            "key_id": self.key_id,
            "previous_hash": bytea_array(record.previous_hash for record, _ in records),
            "hash": bytea_array(record_hash for _, record_hash in records),
        }

    def _chain_hash(self, record: AuditRecord) -> bytes:
        return self._hmac(_chained_text(record).encode())


def read_log(
    connection: Connection[Any],
    *,
    customer_id: int | None = None,
    action: str | None = None,
    limit: int | None = None,
    oldest_first: bool = False,
) -> Iterator[AuditRecord]:
    """Rows of the log, newest first unless asked otherwise, streamed."""
    query = _QUERIES["read_oldest_first" if oldest_first else "read_newest_first"]
    with connection.cursor(name="audit_log") as cursor:
        cursor.itersize = 5000
        cursor.execute(query, {"customer_id": customer_id, "action": action, "limit": limit})
        for row in cursor:
            yield AuditRecord(*row)


def read_chain(
    connection: Connection[Any], customer_id: int, *, limit: int, before_seq: int | None = None
) -> list[AuditRecord]:
    """Rows of one chain, the newest first, those before `before_seq` where it is given."""
    wanted = {"customer_id": customer_id, "limit": limit, "before_seq": before_seq}
    return [AuditRecord(*row) for row in connection.execute(_QUERIES["read_chain"], wanted)]


class AuditFilter(Struct, frozen=True):
    """Which rows are meant, across all chains. A field that is None selects all."""

    customer_id: int | None = None
    actor: str | None = None
    """A part of who did it."""
    action: str | None = None
    """How the action begins: `flipper` or `flipper.set`."""
    since: datetime | None = None
    until: datetime | None = None


AuditPlace = tuple[datetime, int, int]
"""A row's place among those of all chains: when, whose, which."""


def search_log(
    connection: Connection[Any], wanted: AuditFilter, *, limit: int, before: AuditPlace | None = None
) -> list[AuditRecord]:
    """The newest first, those before a place where it is given."""
    before_at, before_customer, before_seq = before or (None, None, None)
    place = {"before_at": before_at, "before_customer": before_customer, "before_seq": before_seq, "limit": limit}
    return [AuditRecord(*row) for row in connection.execute(_QUERIES["search"], {**asdict(wanted), **place})]


def chain_length(connection: Connection[Any], customer_id: int) -> int:
    """How many rows a chain has, by the record of its end."""
    row = connection.execute(_QUERIES["chain_length"], {"customer_id": customer_id}).fetchone()
    return 0 if row is None else int(row[0])


def _all_kept(kept: int, entries: Sequence[AuditEntry]) -> None:
    # A trigger or a rule that somebody put on the table can make an INSERT succeed and keep nothing.
    if kept != len(entries):
        raise AuditNotWrittenError(
            f"the database kept {max(kept, 0)} of {len(entries)} rows of the audit log; nothing was done. "
            "Somebody may have put a trigger or a rule on clientmgr.audit_log: see `clientmgr audit verify`"
        )


def _chains_in_lock_order(entries: Sequence[AuditEntry]) -> list[int]:
    # Always in the same order, or two transactions that write to the same two chains wait for each other for ever.
    return sorted({entry.customer_id for entry in entries})
