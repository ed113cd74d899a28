"""Rows of the log in COPY's binary format, made by hand: psycopg's formatter, value by value, takes four times as long.

The format is PostgreSQL's own ("COPY", "Binary Format"): the number of columns, then each one's length and bytes.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from clientmgr.broker.interface import Message

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
TRAILER = struct.pack("!h", -1)
ROWS_A_WRITE = 200
_COLUMNS = 10
_NULL = struct.pack("!i", -1)
# The number of columns, then topic_id, partition_id, c_offset, tx_last_offset and transaction_id with their lengths.
_START = struct.Struct("!h ii ii iq iq i16s")
_LENGTH = struct.Struct("!i")
# A jsonb is a version byte and its text.
_JSONB_VERSION = b"\x01"
_NO_ATTRIBUTES = _LENGTH.pack(3) + _JSONB_VERSION + b"{}"


def copy_rows(
    messages: Sequence[Message],
    *,
    first_offset: int,
    topic_id: int,
    partition_of: Mapping[str, int],
    transaction_ids: Iterable[bytes],
    last_offsets: Iterable[int],
    group_id: str | None,
) -> Iterator[bytes]:
    """Pieces of the COPY's data, its header and trailer included. Columns are in the order of the query `copy_rows`."""
    tenants = {tenant: (partition, _field(tenant.encode())) for tenant, partition in partition_of.items()}
    group = _NULL if group_id is None else _field(group_id.encode())
    start, length = _START.pack, _LENGTH.pack
    pieces = [HEADER]
    rows = zip(messages, transaction_ids, last_offsets, strict=True)
    for offset, (message, transaction_id, last_offset) in enumerate(rows, start=first_offset):
        partition_id, tenant = tenants[message.tenant]
        key, data = message.key.encode(), message.data
        pieces += (
            start(_COLUMNS, 4, topic_id, 4, partition_id, 8, offset, 8, last_offset, 16, transaction_id),
            tenant,
            length(len(key)),
            key,
            length(len(data)),
            data,
            _attributes(message.attributes) if message.attributes else _NO_ATTRIBUTES,
            group,
        )
        if (offset - first_offset) % ROWS_A_WRITE == ROWS_A_WRITE - 1:
            yield b"".join(pieces)
            pieces.clear()
    pieces.append(TRAILER)
    yield b"".join(pieces)


def _attributes(attributes: Mapping[str, str]) -> bytes:
    return _field(_JSONB_VERSION + msgspec.json.encode(attributes))


def _field(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value
