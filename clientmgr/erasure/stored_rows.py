"""The tables of the catalogue, and the rows and messages in them that are about somebody. Read only."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from psycopg import Connection, sql

from clientmgr.base.customer_ids import schema_name
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure.rule import Stored
from clientmgr.erasure.subject import Subject, written_forms

_QUERIES = named_queries("erasure/queries/places.sql")

Kind = Literal["text", "number", "bytes", "other"]
ROWS_AT_ONCE: Final = 2000

Tick = Callable[[int], None]
"""Told of progress, in rows."""


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


def tables(connection: Connection[Any], subject: Subject, *, without: Sequence[str] = ()) -> list[Table]:
    """Of all schemas but those of other tenants."""
    wanted = {"tenant_schema": schema_name(subject.customer_id), "without": list(without)}
    return tables_in(connection, [schema for (schema,) in connection.execute(_QUERIES["schemas"], wanted)])


def tables_in(connection: Connection[Any], schemas: Sequence[str]) -> list[Table]:
    found = connection.execute(_QUERIES["tables"], {"schemas": list(schemas)})
    return [Table(schema, name, dict(zip(names, kinds, strict=True))) for schema, name, names, kinds in found]


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
        literally=sql.SQL(" OR ").join(literals(table, subject) or [sql.SQL("false")]),
    )
    for place, text in streamed(connection, query, tick):
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
    place = next((sql.Identifier("t", name) for name in ("topic_id", "topic") if name in table.columns), None)
    number = next(name for name in ("c_offset", "id", "message_id") if name in table.columns)
    time = next((name for name in ("original_published_at", "published_at") if name in table.columns), None)
    others = [name for name in ("exception", "reason") if name in table.columns]
    at = sql.Identifier("t", time or "published_at") if time else sql.SQL("NULL")
    published = sql.Identifier("t", "published_at") if "published_at" in table.columns else at
    literal = sql.SQL(" OR ").join(literals(table, subject) or [sql.SQL("false")])
    query = sql.SQL(
        "SELECT {place}, {number}, t.payload, t.host_id, t.user_id, t.attributes, coalesce({at}, {published}),"
        " concat_ws(' ', {others}), ({literal}) FROM {table} AS t"
        " WHERE t.host_id = {customer} OR position({customer_bytes}::bytea IN t.payload) > 0 OR ({literal})"
    ).format(
        # What knows its topic by another table alone is named after itself.
        place=place or sql.Literal(table.name),
        number=sql.Identifier("t", number),
        at=at,
        published=published,
        others=sql.SQL(", ").join([sql.SQL("NULL"), *(sql.Identifier("t", name) for name in others)]),
        literal=literal,
        table=table.identifier,
        customer=sql.Literal(str(subject.customer_id)),
        customer_bytes=sql.Literal(str(subject.customer_id).encode()),
    )
    rows = streamed(connection, query, tick)
    for topic, offset, payload, host_id, user_id, attributes, published_at, error, literally in rows:
        at_ms = 0 if published_at is None else int(published_at.timestamp() * 1000)
        message = Stored(payload, host_id, user_id, attributes, at_ms)
        explained = error and host_id == str(subject.customer_id) and re.search(subject.pattern, error, re.IGNORECASE)
        if literally or explained or subject.concerns(message):
            where = f"{topics.get(topic, topic)}, {'offset' if number == 'c_offset' else 'message'} {offset}"
            yield StoredMessage(where, payload, user_id, attributes, published_at)


def literals(table: Table, subject: Subject) -> list[sql.Composable]:
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


def streamed(connection: Connection[Any], query: sql.Composed, tick: Tick) -> Iterator[tuple[Any, ...]]:
    """The rows through a cursor on the server: memory stays the same however many there are."""
    with connection.cursor(name="looked_at") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows
            tick(len(rows))
