"""One moment that all slices of a large table are read at, so that a row that moves is neither missed nor read twice.

An UPDATE gives a row another place in its table, and a slice is a range of places. So the driver holds a transaction
open, exports its snapshot, and each task that reads a slice takes that snapshot. The driver ends it with the read; if
the driver dies, PostgreSQL ends it with the connection; if its host is gone, `SPARK_SNAPSHOT_MAX_S` does. As long as it
lives, VACUUM keeps what was deleted since, in all tables: so it is opened only where a table is large enough to be cut.

On a cluster (`nodes.py`) each node has its own moment, and tasks read the tenant's shards on the node themselves. If a
tenant is moved meanwhile, the shards of that moment are what they were; once they are dropped, the read begins anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import adbc_driver_manager
import msgspec
import psycopg
from adbc_driver_postgresql import dbapi
from psycopg import Connection, sql

from clientmgr.base.citus import spreads_tenants
from clientmgr.base.connection_rights import TooMightyError, connect_checked
from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.errors import TransientError
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.nodes import (
    PAGE_BYTES,
    conninfo_of,
    contact_bounds,
    large_shards,
    named_on,
    places,
    still_here,
    tell_unreachable,
)
from clientmgr_dagster.spark.packing import LargeTable, Place, Slice

UNDEFINED_TABLE = "42P01"

_LARGE = """
SELECT wanted.customer_id, c.relpages, c.relfilenode::bigint
FROM unnest(%(customers)s::bigint []) AS wanted (customer_id)
JOIN pg_namespace AS n ON n.nspname = clientmgr.tenant_schema(wanted.customer_id)
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'devices' AND c.relpages > %(pages)s
ORDER BY 1
"""
# One table at a time: joined with many, the view would be worked out for all of them.
_CONTACT_BOUNDS = """
SELECT histogram_bounds::text::bigint [] FROM pg_stats
WHERE schemaname = clientmgr.tenant_schema(%s)::name AND tablename = 'devices' AND attname = 'contact_id'
"""


class SnapshotGoneError(TransientError):
    """The moment that a read shares can't be read any more. The read is to be done again, at a new one."""


class Snapshot(msgspec.Struct, frozen=True):
    """What tasks need to read slices at one moment. Nothing in it is secret: it travels as an option."""

    id: str = ""
    """PostgreSQL's name of it; empty: no table is large enough, and each is read as a whole."""
    pages_a_slice: int = 1
    tables: tuple[LargeTable, ...] = ()
    nodes: tuple[str, ...] = ()
    """Of a cluster: those that can be read directly, each with a moment of its own."""


WHOLE_TABLES: Final = Snapshot()


@contextmanager
def shared_snapshot(conninfo: str, settings: Settings, customers: Sequence[CustomerId]) -> Iterator[Snapshot]:
    """Hold a snapshot for as long as the `with` lasts. Actions on what is read with it belong inside."""
    pages = settings.spark_slice_mb * 1024 * 1024 // PAGE_BYTES
    with ExitStack() as opened:
        connection = opened.enter_context(_kept_open(conninfo))
        if settings.spark_reads_nodes and spreads_tenants(connection, settings.citus):
            placed = places(connection, customers)
            connection.close()
            yield _of_cluster(opened, placed, conninfo, settings, pages)
            return
        # Before the snapshot is taken: a table that is rewritten in between is then known by its new file.
        large = connection.execute(_LARGE, {"customers": list(customers), "pages": pages}).fetchall()
        if not large:
            connection.close()
            yield WHOLE_TABLES
            return
        tables = tuple(
            LargeTable(CustomerId(customer), size, filenode, _contact_bounds(connection, customer))
            for customer, size, filenode in large
        )
        yield Snapshot(_export(connection, settings.spark_snapshot_max_s), pages, tables)


@contextmanager
def _kept_open(conninfo: str) -> Iterator[Connection[Any]]:
    connection = connect_checked(conninfo, autocommit=True)
    try:
        yield connection
    finally:
        # Closing ends the transaction. That it had ended before is for the tasks to notice.
        with suppress(psycopg.Error):
            connection.close()


def _of_cluster(
    opened: ExitStack,
    placed: Mapping[CustomerId, Place],
    conninfo: str,
    settings: Settings,
    pages: int,
) -> Snapshot:
    """A moment of each node that can be reached and has a large table."""
    reached: list[str] = []
    tables: list[LargeTable] = []
    for node in sorted({one.node for one in placed.values() if one.node}):
        try:
            connection = opened.enter_context(_kept_open(conninfo_of(conninfo, node)))
        except (psycopg.OperationalError, TooMightyError) as error:
            tell_unreachable(node, error)
            continue
        reached.append(node)
        own = {customer: place for customer, place in placed.items() if place.node == node}
        if not (large := large_shards(connection, own, pages)):
            connection.close()
            continue
        bounds = {customer: contact_bounds(connection, customer, own[customer]) for customer, *_ in large}
        moment = _export(connection, settings.spark_snapshot_max_s)
        still = still_here(connection, [own[customer] for customer, *_ in large])
        tables += [
            LargeTable(customer, size, filenode, bounds[customer], replace(own[customer], snapshot=moment))
            for customer, size, filenode in large
            if own[customer] in still
        ]
    return Snapshot("", pages, tuple(tables), tuple(reached))


def _contact_bounds(connection: Connection[Any], customer_id: int) -> tuple[int, ...]:
    (bounds,) = connection.execute(_CONTACT_BOUNDS, (customer_id,)).fetchone() or (None,)
    return tuple(bounds or ())


def _export(connection: Connection[Any], max_s: int) -> str:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    # LOCAL: a pooler may hand the session to somebody else afterwards.
    connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(sql.Literal(f"{max_s:d}s")))
    (exported,) = connection.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
    return str(exported)


def begin_at(connection: dbapi.Connection, snapshot_id: str, one: Slice) -> None:
    """Read a slice at that moment, in the transaction that has begun and asked nothing yet."""
    snapshot_id = one.place.snapshot or snapshot_id
    with connection.cursor() as cursor:
        try:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(f"SET TRANSACTION SNAPSHOT {sql.Literal(snapshot_id).as_string()}")
        except adbc_driver_manager.Error as error:
            raise SnapshotGoneError(
                f"the snapshot {snapshot_id} that all slices of this read share is gone; the read begins anew when it "
                "is tried again. Either it lived longer than SPARK_SNAPSHOT_MAX_S, or its holder, the run, ended, or "
                "tasks reach another server than the run does, as with replicas behind one name. "
                f"PostgreSQL: {' '.join(str(error).split())}"
            ) from error
        table = named_on(f"{quoted_schema(one.customer_id)}.devices", one.customer_id, one.place)
        # With the lock nobody rewrites it (VACUUM FULL, TRUNCATE, some of ALTER TABLE) until this slice is read.
        if one.place.shards:
            _lock_shard(cursor, table)
        else:
            cursor.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
        cursor.execute(f"SELECT pg_relation_filenode({sql.Literal(table).as_string()}::regclass)::bigint")
        (filenode,) = cursor.fetchone() or (None,)
    if filenode != one.filenode:
        raise SnapshotGoneError(f"{table} was rewritten while its slices were read: rows are no longer where they were")


def _lock_shard(cursor: dbapi.Cursor, shard: str) -> None:
    """By reading nothing of it: Citus takes LOCK for a change, which shards may not have."""
    try:
        cursor.execute(f"SELECT 1 FROM {shard} LIMIT 0")
        cursor.fetchall()
    except adbc_driver_manager.Error as error:
        if error.sqlstate != UNDEFINED_TABLE:
            raise
        raise SnapshotGoneError(f"{shard} is gone: its tenant was moved to another node, or deleted") from error
