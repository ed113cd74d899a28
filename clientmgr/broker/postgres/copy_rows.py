"""Rows of the log in COPY's binary format, built by hand: psycopg formats value by value and takes four times as long.

The format is PostgreSQL's own ("COPY", "Binary Format"): the number of columns, then each one's length and bytes. What
many rows have in common comes first in a row, so that it is written once.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from clientmgr.broker.interface import Message

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
TRAILER = struct.pack("!h", -1)
ROWS_A_WRITE = 200
_COLUMNS = 11
_NULL = struct.pack("!i", -1)
# The number of columns; then, with their lengths, topic_id, published_at, partition_id, tx_last_offset, transaction_id.
_START = struct.Struct("!h ii iq ii iq i16s")
# c_offset with its length, and the length of user_id.
_PLACE = struct.Struct("!iq i")
_LENGTH = struct.Struct("!i")
# A jsonb is a version byte and its text.
_JSONB_VERSION = b"\x01"
_NO_ATTRIBUTES = _LENGTH.pack(3) + _JSONB_VERSION + b"{}"


def copy_rows(
    messages: Sequence[Message],
    *,
    first_offset: int,
    topic_id: int,
    published_at_us: int,
    partition_of: Mapping[str, int],
    transaction_ids: Iterable[bytes],
    last_offsets: Iterable[int],
    group_id: str | None,
) -> Iterator[bytes]:
    """Pieces of the COPY's data, its header and trailer included. Columns are in the order of the query `copy_rows`.

    `published_at_us`: in microseconds of PostgreSQL's era. It is given, not left to the column's default: for a default
    that reads the clock, COPY inserts row by row instead of a page at a time.
    """
    group = _NULL if group_id is None else _field(group_id.encode())
    place, length = _PLACE.pack, _LENGTH.pack
    pieces = [HEADER]
    common, common_to = b"", ("", b"", 0)
    rows = zip(messages, transaction_ids, last_offsets, strict=True)
    for offset, (message, transaction_id, last_offset) in enumerate(rows, start=first_offset):
        belongs_to = (message.tenant, transaction_id, last_offset)
        if belongs_to != common_to:
            common_to = belongs_to
            partition_id, tenant = partition_of[message.tenant], _field(message.tenant.encode())
            ids = (4, topic_id, 8, published_at_us, 4, partition_id, 8, last_offset, 16, transaction_id)
            common = _START.pack(_COLUMNS, *ids) + tenant + group
        key, data = message.key.encode(), message.data
        pieces += (
            common,
            _attributes(message.attributes) if message.attributes else _NO_ATTRIBUTES,
            place(8, offset, len(key)),
            key,
            length(len(data)),
            data,
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
