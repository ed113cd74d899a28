"""The look into PostgreSQL: every table of the catalogue, whatever it is called and whoever added it.

A table is looked at by what its columns are. Messages are recognised, rows of the customer are read as JSON and
recognised in the same way, and all other tables are searched as text by the server.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from psycopg import Connection, sql

from clientmgr.base.customer_ids import in_schema, schema_name
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.rule import Stored
from clientmgr.erasure.subject import Subject, written_forms

_QUERIES = named_queries("erasure/queries/places.sql")
_SUBJECT = named_queries("tenant/queries/subject.sql")

Kind = Literal["text", "number", "bytes", "other"]
ROWS_AT_ONCE: Final = 2000
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
"""Columns of the tenants' tables with keyed hashes, and whose."""


@dataclass(frozen=True, slots=True)
class Table:
    schema: str
    name: str
    columns: Mapping[str, Kind]

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def has_messages(self) -> bool:
        return self.columns.get("payload") == "bytes" and "host_id" in self.columns

    @property
    def has_customer(self) -> bool:
        return self.columns.get("customer_id") == "number"

    def named(self, kind: Kind) -> list[str]:
        return [name for name, of_kind in self.columns.items() if of_kind == kind]


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


Tick = Callable[[int], None]
"""Told of progress, in rows."""


def tables(
    connection: Connection[Any], subject: Subject, *, only: str | None = None, without: Sequence[str] = ()
) -> list[Table]:
    wanted = {"tenant_schema": schema_name(subject.customer_id), "only": only, "without": list(without)}
    found = connection.execute(_QUERIES["tables"], wanted)
    return [Table(schema, name, dict(zip(names, kinds, strict=True))) for schema, name, names, kinds in found]


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
    conditions = [named, *_literals(table, subject)]
    if subject.contact_id is None:
        # Dagster's partitions and tags are customers' numbers and nothing else.
        exact = [name for name in table.named("text") if name in {"partition", "value"}]
        conditions += [_equals(name, str(subject.customer_id)) for name in exact]
    return _counted(connection, table, conditions)


def look_for_texts(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    """Only for the texts that somebody asked for."""
    return _counted(connection, table, _literals(table, subject) or [sql.SQL("false")])


def _in_tenant(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    if subject.contact_id is None:
        return _counted(connection, table, [sql.SQL("true")])
    conditions = [_equals(name, subject.contact_id) for name in table.named("number") if _CONTACT_COLUMN.search(name)]
    row = _text_of(table.named("text"))
    conditions.append(sql.SQL("({row} ~* {pattern})").format(row=row, pattern=subject.pattern))
    seen = _counted(connection, table, [*conditions, *_literals(table, subject)])
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


def _literals(table: Table, subject: Subject) -> list[sql.Composable]:
    """Conditions that find the texts that somebody asked for, in every column that can hold them."""
    forms = [form for text in subject.texts for form in written_forms(text)]
    conditions: list[sql.Composable] = []
    for form in forms:
        conditions += [
            sql.SQL("coalesce(strpos({}::text, {}) > 0, false)").format(sql.Identifier("t", name), form)
            for name in table.named("text")
        ]
        conditions += [
            sql.SQL("coalesce(position({}::bytea IN {}) > 0, false)").format(form.encode(), sql.Identifier("t", name))
            for name in table.named("bytes")
        ]
    return conditions


def _equals(column: str, value: int | str) -> sql.Composable:
    return sql.SQL("coalesce({} = {}, false)").format(sql.Identifier("t", column), sql.Literal(value))


def _customers_rows(connection: Connection[Any], table: Table, subject: Subject, tick: Tick) -> Seen:
    """A table with a column customer_id: the customer's rows are recognised as messages are."""
    if subject.contact_id is None:
        mine = [_equals("customer_id", subject.customer_id)]
        return _counted(connection, table, [*mine, *_literals(table, subject)])
    seen = _counted(connection, table, _literals(table, subject) or [sql.SQL("false")])
    more = [f"row {place}" for place, _ in rows_about(connection, table, subject, tick)]
    hashes = 0
    if table.columns.get("contact_hash") == "text":
        hashes = _counted(connection, table, [_equals("contact_hash", str(subject.audit_hash))]).found
    return replace(seen, found=seen.found + len(more), hashes=hashes, where=(*seen.where, *more)[:EXAMPLES])


def rows_about(
    connection: Connection[Any], table: Table, subject: Subject, tick: Tick = lambda _: None
) -> Iterator[tuple[str, str]]:
    """The customer's rows that name the contact, its devices or their tokens: where they are, and as JSON."""
    # Bytes are hashes here, and no text.
    read = sql.SQL(", ").join(sql.Identifier("t", name) for name in table.columns if name not in table.named("bytes"))
    query = sql.SQL(
        "SELECT t.ctid::text, row_to_json(r)::text FROM {table} AS t, LATERAL (SELECT {read}) AS r"
        " WHERE t.customer_id = {customer} AND NOT ({literally})"
    ).format(
        table=table.identifier,
        read=read,
        customer=sql.Literal(subject.customer_id),
        literally=sql.SQL(" OR ").join(_literals(table, subject) or [sql.SQL("false")]),
    )
    for place, text in _streamed(connection, query, tick):
        row = Stored(text.encode(), str(subject.customer_id), "", {}, 0)
        if subject.concerns(row) or re.search(subject.pattern, text, re.IGNORECASE):
            yield place, text


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that is about the subject, and where it is stored."""

    where: str
    payload: bytes
    key: str
    attributes: Mapping[str, Any]
    published_at: datetime | None


def messages_about(
    connection: Connection[Any], table: Table, subject: Subject, tick: Tick = lambda _: None
) -> Iterator[StoredMessage]:
    """The messages of a table that are about the subject, wherever they are labelled to belong."""
    topics = dict(connection.execute(_QUERIES["topics"]).fetchall())
    place = "topic_id" if "topic_id" in table.columns else "topic"
    number = next(name for name in ("c_offset", "id", "message_id") if name in table.columns)
    time = next((name for name in ("original_published_at", "published_at") if name in table.columns), None)
    others = [name for name in ("exception", "reason") if name in table.columns]
    at = sql.Identifier("t", time or "published_at") if time else sql.SQL("NULL")
    published = sql.Identifier("t", "published_at") if "published_at" in table.columns else at
    literal = sql.SQL(" OR ").join(_literals(table, subject) or [sql.SQL("false")])
    query = sql.SQL(
        "SELECT {place}, {number}, t.payload, t.host_id, t.user_id, t.attributes, coalesce({at}, {published}),"
        " concat_ws(' ', {others}), ({literal}) FROM {table} AS t"
        " WHERE t.host_id = {customer} OR position({customer_bytes}::bytea IN t.payload) > 0 OR ({literal})"
    ).format(
        place=sql.Identifier("t", place),
        number=sql.Identifier("t", number),
        at=at,
        published=published,
        others=sql.SQL(", ").join([sql.SQL("NULL"), *(sql.Identifier("t", name) for name in others)]),
        literal=literal,
        table=table.identifier,
        customer=sql.Literal(str(subject.customer_id)),
        customer_bytes=sql.Literal(str(subject.customer_id).encode()),
    )
    rows = _streamed(connection, query, tick)
    for topic, offset, payload, host_id, user_id, attributes, published_at, error, literally in rows:
        at_ms = 0 if published_at is None else int(published_at.timestamp() * 1000)
        message = Stored(payload, host_id, user_id, attributes, at_ms)
        explained = error and host_id == str(subject.customer_id) and re.search(subject.pattern, error, re.IGNORECASE)
        if literally or explained or subject.concerns(message):
            where = f"{topics.get(topic, topic)}, {'offset' if number == 'c_offset' else 'message'} {offset}"
            yield StoredMessage(where, payload, user_id, attributes, published_at)


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


def _streamed(connection: Connection[Any], query: sql.Composed, tick: Tick) -> Iterator[tuple[Any, ...]]:
    """The rows through a cursor on the server: memory stays the same however many there are."""
    with connection.cursor(name="looked_at") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows
            tick(len(rows))


def look_compressed(connection: Connection[Any], table: Table, subject: Subject) -> Seen:
    """Bytes that may be compressed text, as Dagster keeps its snapshots: they are unpacked and searched."""
    rows = found = 0
    for name in table.named("bytes"):
        query = sql.SQL("SELECT t.{column} FROM {table} AS t WHERE t.{column} IS NOT NULL").format(
            column=sql.Identifier(name), table=table.identifier
        )
        for (value,) in _streamed(connection, query, lambda _: None):
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
