"""The look into PostgreSQL: every table of the catalogue, whatever it is called and whoever added it.

A table is looked at by what its columns are. Messages are recognised, rows of the customer are read as JSON and
recognised in the same way, and all other tables are searched as text by the server.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection, sql

from clientmgr.base.customer_ids import in_schema, schema_name
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.stored_rows import Table, Tick, literals, messages_about, rows_about, streamed
from clientmgr.erasure.subject import Subject

_QUERIES = named_queries("erasure/queries/places.sql")
_SUBJECT = named_queries("tenant/queries/subject.sql")

EXAMPLES: Final = 5

_CONTACT_COLUMN: Final = re.compile(r"(^|_)contact_id$")
_HASHES: Final = {
    "contact_hash": "contact",
    "from_contact_hash": "contact",
    "into_contact_hash": "contact",
    "device_hash": "device",
    "token_hash": "token",
    "push_token_hash": "token",
}
"""Columns with keyed hashes, and whose."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at one place came to."""

    rows: int
    found: int = 0
    hashes: int = 0
    kept: int = 0
    """What names a customer by its number, and nobody else."""
    where: tuple[str, ...] = ()
    """Some of what was found, by place; never what stands there."""
    newest: datetime | None = None
    """When the newest message that was found was published."""


def look(connection: Connection[Any], table: Table, subject: Subject, tick: Tick = lambda _: None) -> Seen:
    """Look at one table. The connection's transaction is the snapshot."""
    if table.schema == schema_name(subject.customer_id):
        return _in_tenant(connection, table, subject)
    if table.has_messages:
        return _messages(connection, table, subject, tick)
    if table.has_customer:
        return _customers_rows(connection, table, subject, tick)
    return _as_text(connection, table, subject)


def _as_text(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    """A table that knows no customer: its texts must name both, the contact and the customer."""
    row = _text_of(table.named("text"))
    named = sql.SQL("({row} ~* {pattern})").format(row=row, pattern=subject.pattern)
    if subject.contact_id is not None:
        named = sql.SQL("({named} AND {row} ~ {customer})").format(
            named=named, row=row, customer=subject.customer_pattern
        )
    conditions = [named, *literals(table, subject)]
    if subject.contact_id is None:
        # Dagster's partitions and tags are customers' numbers and nothing else.
        exact = [name for name in table.named("text") if name in {"partition", "value"}]
        conditions += [_equals(name, str(subject.customer_id)) for name in exact]
    return _counted(connection, table, conditions)


def look_for_texts(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    """Only for the texts that somebody asked for."""
    return _counted(connection, table, literals(table, subject) or [sql.SQL("false")])


def _in_tenant(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    if subject.contact_id is None:
        return _counted(connection, table, [sql.SQL("true")])
    conditions = [_equals(name, subject.contact_id) for name in table.named("number") if _CONTACT_COLUMN.search(name)]
    row = _text_of(table.named("text"))
    conditions.append(sql.SQL("({row} ~* {pattern})").format(row=row, pattern=subject.pattern))
    seen = _counted(connection, table, [*conditions, *literals(table, subject)])
    return replace(seen, hashes=_count_hashes(connection, table, subject))


def _count_hashes(connection: Connection[Any], table: Table, subject: Subject) -> int:
    values: Mapping[str, list[bytes]] = {
        "contact": [subject.contact_hash],
        # A device that is still there is no hash of something deleted.
        "device": list(subject.gone),
        "token": list(subject.gone_tokens),
    }
    conditions = [
        sql.SQL("{column} = ANY({values}::bytea [])").format(
            column=sql.Identifier("t", name), values=values[_HASHES[name]]
        )
        for name in table.named("bytes")
        if name in _HASHES
    ]
    if not conditions or table.name == "devices":
        return 0
    query = sql.SQL("SELECT count(*) FROM {table} AS t WHERE {any}")
    row = connection.execute(query.format(table=table.identifier, any=sql.SQL(" OR ").join(conditions))).fetchone()
    return 0 if row is None else int(row[0])


def _counted(connection: Connection[Any], table: Table, conditions: Sequence[sql.Composable]) -> Seen:
    found = sql.SQL(" OR ").join(conditions)
    query = sql.SQL(
        "SELECT count(*), count(*) FILTER (WHERE found), (array_agg(place) FILTER (WHERE found)) [1:{most}]"
        " FROM (SELECT t.ctid::text AS place, ({found}) AS found FROM {table} AS t) AS looked_at"
    ).format(most=sql.Literal(EXAMPLES), found=found, table=table.identifier)
    ((rows, count, places),) = connection.execute(query).fetchall()
    return Seen(rows, count, where=tuple(f"row {place}" for place in places or ()))


def _text_of(columns: Sequence[str]) -> sql.Composable:
    if not columns:
        return sql.SQL("''")
    texts = (sql.SQL("{}::text").format(sql.Identifier("t", name)) for name in columns)
    return sql.SQL("concat_ws(' ', {})").format(sql.SQL(", ").join(texts))


def _equals(column: str, value: int | str) -> sql.Composable:
    return sql.SQL("coalesce({} = {}, false)").format(sql.Identifier("t", column), sql.Literal(value))


def _customers_rows(connection: Connection[Any], table: Table, subject: Subject, tick: Tick) -> Seen:
    """A table with a column customer_id: the customer's rows are recognised as messages are."""
    if subject.contact_id is None:
        mine = [_equals("customer_id", subject.customer_id)]
        return _counted(connection, table, [*mine, *literals(table, subject)])
    seen = _counted(connection, table, literals(table, subject) or [sql.SQL("false")])
    more = [f"row {place}" for place, _ in rows_about(connection, table, subject, tick)]
    hashes = _count_hashes(connection, table, subject)
    if table.columns.get("contact_hash") == "text":
        hashes += _counted(connection, table, [_equals("contact_hash", str(subject.audit_hash))]).found
    return replace(seen, found=seen.found + len(more), hashes=hashes, where=(*seen.where, *more)[:EXAMPLES])


def _messages(connection: Connection[Any], table: Table, subject: Subject, tick: Tick) -> Seen:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table.identifier)).fetchone()
    found, newest = 0, None
    where: list[str] = []
    for message in messages_about(connection, table, subject, tick):
        found += 1
        newest = max(filter(None, (newest, message.published_at)), default=None)
        if len(where) < EXAMPLES:
            where.append(message.where)
    return Seen(0 if row is None else int(row[0]), found, where=tuple(where), newest=newest)


def look_compressed(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    """Bytes that may be compressed text, as Dagster keeps its snapshots: they are unpacked and searched."""
    rows = found = 0
    for name in table.named("bytes"):
        query = sql.SQL("SELECT t.{column} FROM {table} AS t WHERE t.{column} IS NOT NULL").format(
            column=sql.Identifier(name), table=table.identifier
        )
        for (value,) in streamed(connection, query, lambda _: None):
            rows += 1
            found += subject.is_named_in(_unpacked(bytes(value)).decode(errors="replace"))
    return Seen(rows, found)


def _unpacked(value: bytes) -> bytes:
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value


def look_at_statistics(connection: Connection[Any], subject: Subject) -> Seen:
    """Values of rows that are gone stay in the planner's statistics until their table is analysed again."""
    rows, where = 0, []
    own = schema_name(subject.customer_id)
    wanted = re.compile(rf"(?<![0-9]){subject.contact_id}(?![0-9])")
    for schema, table, column, values in connection.execute(_QUERIES["statistics"], {"tenant_schema": own}):
        rows += 1
        is_contact = subject.contact_id is not None and schema == own and _CONTACT_COLUMN.search(column)
        if any(text in values for text in subject.texts) or (is_contact and wanted.search(values)):
            where.append(f"{schema}.{table}.{column}")
    return Seen(rows, len(where), where=tuple(where[:EXAMPLES]))


def survivors(connection: Connection[Any], subject: Subject) -> int:
    """Rows of devices that went with the contact, and are there all the same."""
    query = in_schema(_SUBJECT["survivors"], subject.customer_id).encode()
    recorded = [datetime.fromtimestamp(one.recorded_ms / 1000, UTC) for one in subject.gone.values()]
    gone = {"devices": list(subject.gone), "recorded": recorded}
    row = connection.execute(query, gone).fetchone()
    return 0 if row is None else int(row[0])
