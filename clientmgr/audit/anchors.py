"""Anchors: what is copied to places that the database's owner does not own. Pure: no place and no database here.

An anchor says where every chain of the audit log ended at a moment, signed with the audit key. A log that continues its
last anchor has lost nothing that was written before it, whoever owns the database.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from clientmgr.audit.log import AuditLogger
from clientmgr.base.errors import ClientManagerError

FORMAT: Final = 1
HASH_DIGITS: Final = 32
"""Hex digits of a row's hash that an anchor keeps: 128 bits, half of it. With 10,000 chains it matters."""

_PURPOSE = "audit-anchor"


class AnchorForgedError(ClientManagerError):
    """What a place holds was not written by us: by nobody who has the key."""


@dataclass(frozen=True, slots=True)
class Head:
    """The row at which a chain ended."""

    seq: int
    hash: str
    """The first HASH_DIGITS of it."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where all chains ended, at a moment."""

    number: int
    """Counts the anchors of a place, from 1."""
    at: datetime
    heads: Mapping[int, Head]
    reason: str | None = None
    """Why it need not continue the anchor before it: what the operator said who accepted the log as it is."""


class _Signed(msgspec.Struct, frozen=True):
    """An anchor as places keep it: one line of JSON. Members are never renamed: old anchors must stay readable."""

    format: int
    number: int
    at: str
    key: str
    chains: int
    rows: int
    heads: dict[int, tuple[int, str]]
    reason: str | None = None
    signature: str = ""


# Members in the order above, heads as they come: what is decoded is encoded to the same bytes again.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Signed).decode


def signed(anchor: Anchor, logger: AuditLogger) -> bytes:
    """The anchor as one line of JSON, without its end."""
    unsigned = _Signed(
        format=FORMAT,
        number=anchor.number,
        at=anchor.at.astimezone(UTC).isoformat(timespec="microseconds"),
        key=logger.key_id,
        chains=len(anchor.heads),
        rows=sum(head.seq for head in anchor.heads.values()),
        heads={chain: (head.seq, head.hash) for chain, head in sorted(anchor.heads.items())},
        reason=anchor.reason,
    )
    return _encode(msgspec.structs.replace(unsigned, signature=logger.signature(_PURPOSE, _encode(unsigned))))


def opened(line: bytes, logger: AuditLogger) -> Anchor:
    """The anchor of a line, if somebody with our key wrote it."""
    try:
        kept = _decode(line)
        at = datetime.fromisoformat(kept.at)
    except (msgspec.DecodeError, ValueError) as error:
        raise AnchorForgedError(f"what is there is no anchor of ours ({error})") from error
    if kept.key != logger.key_id:
        raise AnchorForgedError(f"the last anchor is signed with another key ({kept.key}): it can't be checked")
    if logger.signature(_PURPOSE, _encode(msgspec.structs.replace(kept, signature=""))) != kept.signature:
        raise AnchorForgedError("the last anchor is not signed by us: somebody has written or changed it")
    heads = {chain: Head(seq, digits) for chain, (seq, digits) in kept.heads.items()}
    return Anchor(kept.number, at, heads, kept.reason)


def head_of(seq: int, row_hash: bytes) -> Head:
    return Head(seq, row_hash.hex()[:HASH_DIGITS])


def departures(
    anchored: Mapping[int, Head], ends: Mapping[int, int], at_anchored: Mapping[int, str]
) -> Iterator[tuple[int, int, str]]:
    """(chain, row, what is wrong) of each chain that does not continue its anchored end.

    `ends` is where chains end now; `at_anchored` the hash, as anchors keep it, of the row at the anchored number.
    """
    for chain, head in sorted(anchored.items()):
        end = ends.get(chain, 0)
        if end == 0:
            yield chain, 1, f"the whole chain is gone; it had {head.seq} rows when it was anchored"
        elif end < head.seq - 1:
            yield chain, end + 1, f"rows {end + 1} to {head.seq} are gone; they were there when the chain was anchored"
        elif chain not in at_anchored:
            yield chain, head.seq, "the row is gone; it was there when the chain was anchored"
        elif at_anchored[chain] != head.hash:
            yield chain, head.seq, "the row is not the one that was anchored: the chain was cut off and written anew"


def differs(last: Anchor | None, heads: Mapping[int, Head]) -> bool:
    """Whether there is something to anchor."""
    return last is None or dict(last.heads) != dict(heads)
