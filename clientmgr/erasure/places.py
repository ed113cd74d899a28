"""Every place where something of a contact or an account may be, and what a look into each came to. Read only.

Tables are found in the catalogue (`tables.py`); what is not PostgreSQL is listed here. All looks into the database see
one moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

import psycopg
from msgspec import Struct
from psycopg import Connection, sql

from clientmgr.base.customer_ids import schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.erasure import stored_rows, tables
from clientmgr.erasure.outside_postgres import (
    legacy_devices,
    look_into_files,
    look_into_redis,
)
from clientmgr.erasure.stored_rows import Table, Tick
from clientmgr.erasure.subject import Keys, Subject
from clientmgr.erasure.tables import Seen
from clientmgr.tenants import customer_data

_QUERIES = named_queries("erasure/queries/places.sql")

State = Literal["looked at", "could not be looked at", "not ours, not looked at", "not ours"]

DAGSTER: Final = "dagster"
PARTITIONS: Final = "dynamic_partitions"
"""Dagster's table of those who are tenants now."""
NOT_OURS: Final = (
    ("BigQuery", "The customers' own record of deleted contacts. It is read, never written."),
    ("Google Pub/Sub", "With BROKER=pubsub Google keeps messages until they are acknowledged or their retention ends."),
    (
        "backups",
        "Copies of the database and its write-ahead log, wherever you keep them: they go by their own retention.",
    ),
    ("the servers' own files", "Pages and logs of PostgreSQL and Redis hold what was deleted until they are reused."),
)
"""Places that nobody here can look into, and what they are."""


class Place(Struct, frozen=True, rename="camel"):
    """One line of a report."""

    place: str
    state: State
    looked_at: int = 0
    unit: str = "rows"
    found: int = 0
    """What names the contact, its devices or their tokens in clear."""
    hashes: int = 0
    """What stands for them: of no use without our key."""
    kept: int = 0
    """What outlives an account on purpose; `note` says why."""
    where: tuple[str, ...] = ()
    """Some of what was found, by its position."""
    note: str = ""
    newest: datetime | None = None
    """When the newest message that was found was published."""

    @property
    def is_ours(self) -> bool:
        return not self.state.startswith("not ours")


@dataclass(frozen=True)
class Stores:
    """Where to look, and with which keys."""

    database: Database
    settings: Settings
    dagster_url: str

    @property
    def keys(self) -> Keys:
        return Keys.from_settings(self.settings)


Watch = Callable[[str], Tick]
"""Told which place is looked at next; what it returns is told how far the look has come."""


def unwatched(_place: str) -> Tick:
    return lambda _: None


@contextmanager
def snapshot(database: Database) -> Iterator[Connection[Any]]:
    """One moment of the database, for reading alone. A killed process leaves no lock behind."""
    with database.connect(Role.READER) as connection:
        begin_snapshot(connection)
        yield connection
        connection.rollback()


def begin_snapshot(connection: Connection[Any]) -> None:
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    # Else the server would go on with a long query, and keep its locks, although nobody waits for the answer any more.
    connection.execute("SET LOCAL client_connection_check_interval = '1s'")


def ensure_grants(connection: Connection[Any]) -> None:
    """Let clientmgr_reader read every table that the owner made. For the owner, after migrations."""
    for (name,) in connection.execute(_QUERIES["unreadable"]).fetchall():
        connection.execute(sql.SQL("GRANT SELECT ON {} TO clientmgr_reader").format(sql.SQL(name)))


def look_everywhere(
    connection: Connection[Any], stores: Stores, subject: Subject, watch: Watch = unwatched
) -> Iterator[Place]:
    """A line for each place, those in the connection's snapshot first."""
    own = schema_name(subject.customer_id)
    all_tables = stored_rows.tables(connection, subject, without=[DAGSTER])
    if not any(table.schema == own for table in all_tables):
        yield Place(f"schema {own}", "looked at", 0, "tables", note="There is no such schema.")
    for table in all_tables:
        yield _looked_at(connection, table, subject, watch(table.title))
    yield from _survivors(connection, subject)
    yield _statistics(connection, subject)
    yield from _dagster(stores, subject, watch)
    yield from _redis(stores.settings, subject, watch)
    yield _files(stores.settings, subject, watch("files"))
    yield _legacy(stores.settings, subject)
    yield from (
        Place(f"table {name}", "not ours, not looked at", note="Its rows are another server's.")
        for (name,) in connection.execute(_QUERIES["not_tables"])
    )
    yield from (Place(name, "not ours, not looked at", note=note) for name, note in NOT_OURS)


def _looked_at(connection: Connection[Any], table: Table, subject: Subject, tick: Tick) -> Place:
    try:
        with connection.transaction():
            seen = tables.look(connection, table, subject, tick)
    except psycopg.errors.InsufficientPrivilege as error:
        return Place(table.title, "could not be looked at", note=str(error).strip().partition("\n")[0])
    why = customer_data.KEPT.get(table.name) if table.schema == customer_data.SCHEMA else None
    if subject.contact_id is None and why is not None:
        return Place(table.title, "looked at", seen.rows, kept=seen.found, note=why)
    return _place(table.title, seen, note=why or "" if table.has_customer and seen.hashes else "")


def _statistics(connection: Connection[Any], subject: Subject) -> Place:
    seen = tables.look_at_statistics(connection, subject)
    note = "Analysing these tables makes it forget." if seen.found else ""
    return _place("what PostgreSQL's planner remembers", seen, unit="columns", note=note)


def _survivors(connection: Connection[Any], subject: Subject) -> Iterator[Place]:
    if subject.gone:
        count = tables.survivors(connection, subject)
        note = "Devices that went with the contact. One that came back since is another registration."
        yield Place(
            "devices that were deleted with the contact", "looked at", len(subject.gone), "devices", count, note=note
        )


def _dagster(stores: Stores, subject: Subject, watch: Watch) -> Iterator[Place]:
    tick = watch("Dagster")
    try:
        with psycopg.connect(stores.dagster_url, connect_timeout=10) as connection:
            begin_snapshot(connection)
            found = stored_rows.tables_in(connection, [_dagster_schema(connection, stores)])
            for table in found:
                yield _of_dagster(connection, table, subject, tick)
            if not found:
                yield Place("Dagster's tables", "looked at", 0, "tables", note="There are none.")
            connection.rollback()
    except psycopg.Error as error:
        yield Place("Dagster's tables", "could not be looked at", note=str(error).strip().partition("\n")[0])


def _of_dagster(connection: Connection[Any], table: Table, subject: Subject, tick: Tick) -> Place:
    name = f"Dagster's {table.name}"
    seen = tables.look(connection, table, subject, tick)
    packed = tables.look_compressed(connection, table, subject)
    found = seen.found + packed.found
    if subject.contact_id is not None or table.name == PARTITIONS:
        return _place(name, replace(seen, found=found))
    asked = tables.look_for_texts(connection, table, subject)
    kept = found - asked.found
    note = "Its history names customers by their number, never contacts or devices." if kept else ""
    return _place(name, replace(asked, kept=kept), note=note)


def _dagster_schema(connection: Connection[Any], stores: Stores) -> str:
    """Where Dagster's tables are: in a schema of our database, unless it has a database of its own."""
    if not stores.settings.dagster_database_url:
        return DAGSTER
    row = connection.execute("SELECT current_schema()").fetchone()
    return DAGSTER if row is None else str(row[0])


def _redis(settings: Settings, subject: Subject, watch: Watch) -> Iterator[Place]:
    if not settings.redis_url:
        yield Place("Redis", "looked at", 0, "keys", note="None is configured: nothing is kept there.")
        return
    import redis

    try:
        yield _place("Redis", look_into_redis(settings, subject, watch("Redis")), unit="keys")
    except (redis.RedisError, OSError) as error:
        yield Place("Redis", "could not be looked at", note=str(error))


def _files(settings: Settings, subject: Subject, tick: Tick) -> Place:
    seen = look_into_files(settings, subject, tick)
    note = "Logs name customers by their number." if seen.kept else ""
    return _place("files of the data folder", seen, unit="files", note=note)


def _legacy(settings: Settings, subject: Subject) -> Place:
    name = "DynamoDB"
    if not settings.has_legacy_store:
        return Place(name, "looked at", 0, "devices", note="There is no legacy store (LEGACY_STORE).")
    if subject.contact_id is None:
        return Place(
            name, "not ours, not looked at", note="The store that devices come from. It is read, never written."
        )
    try:
        count = sum(1 for _ in legacy_devices(settings, subject))
    except Exception as error:  # noqa: BLE001  # boto3 raises what it likes, and this store is not ours to vouch for
        return Place(name, "not ours, not looked at", note=f"It did not answer: {error}")
    note = "Its owner has to delete them." if count else ""
    return Place(name, "not ours", count, "devices", count, note=note)


def _place(name: str, seen: Seen, *, unit: str = "rows", note: str = "") -> Place:
    return Place(
        name,
        "looked at",
        seen.rows,
        unit,
        seen.found,
        seen.hashes,
        seen.kept,
        where=seen.where,
        note=note,
        newest=seen.newest,
    )
