"""On a Citus cluster tenants are read from the nodes that have them: the same rows, even if one moves or is away."""

import os
from dataclasses import replace
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database
from clientmgr.base.errors import TransientError
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark import nodes, snapshots, tenant_source
from clientmgr_dagster.spark.devices import reading_conninfo
from clientmgr_dagster.spark.packing import Place
from clientmgr_dagster.spark.snapshots import Snapshot, SnapshotGoneError, shared_snapshot
from clientmgr_dagster.spark.tenant_source import Pack, Request, TenantReader
from tests.spark.tenants import HUGE, Tenants

pytestmark = pytest.mark.skipif(
    not os.environ.get("CITUS_TESTS"), reason="CITUS_TESTS and CITUS_DATABASE_URL name no Citus cluster"
)

OTHERS = tuple(CustomerId(number) for number in range(21, 27))
EVERYBODY = (HUGE, *OTHERS)
FEW, MANY = 30, 6000
SCHEMA = StructType([StructField("customer_id", LongType()), StructField("client_id", StringType())])
SIZES = StructType([StructField(name, LongType()) for name in ("customer_id", "table_bytes", "devices")])
METRICS = Request(
    EVERYBODY,
    50,
    query="dashboard_metrics",
    parameters={"collected_at": "2026-01-01T00:00:00+00:00", "orphaned_before": "2025-12-01T00:00:00+00:00"},
)
Row = tuple[int, str]

_TRUE_SIZES = """
SELECT customer_id, citus_total_relation_size(('tenant_' || customer_id || '.devices')::regclass)
FROM unnest(%(customers)s::bigint []) AS customer_id
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"spark_slice_mb": 1})


@pytest.fixture
def spread(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> Tenants:
    monkeypatch.setattr(nodes, "_said", set())
    tenants.activate(*EVERYBODY)
    for customer in OTHERS:
        tenants.add_devices(customer, FEW)
    tenants.add_devices(HUGE, MANY)
    return tenants


@pytest.fixture
def conninfo(database: Database, settings: Settings) -> str:
    return reading_conninfo(database, settings)


def reader(conninfo: str, snapshot: Snapshot) -> TenantReader:
    return TenantReader(conninfo, Request(EVERYBODY, 50, snapshot=snapshot), SCHEMA)


def rows_of(of: TenantReader, packs: list[Pack]) -> list[Row]:
    found = [row for pack in packs for batch in of.read(pack) for row in batch.to_pylist()]
    return sorted((row["customer_id"], row["client_id"]) for row in found)


def nodes_of(packs: list[Pack]) -> set[str]:
    return {one.place.node for pack in packs for one in pack.slices}


@pytest.fixture
def expected(spread: Tenants) -> list[Row]:
    found = [(HUGE, f"c{number}") for number in range(1, MANY + 1)]
    return sorted(found + [(customer, f"c{number}") for customer in OTHERS for number in range(1, FEW + 1)])


def unreachable(node: str, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """From where these modules ask, nothing listens at that node's place."""

    def elsewhere(conninfo: str, asked: str) -> str:
        return nodes.conninfo_of(conninfo, "127.0.0.1:1" if asked == node else asked)

    for module in modules:
        monkeypatch.setattr(module, "conninfo_of", elsewhere)


def test_each_node_is_asked_for_its_own_tenants_and_a_huge_one_slice_by_slice_at_one_moment(
    conninfo: str, settings: Settings, spread: Tenants, expected: list[Row]
) -> None:
    with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
        of = reader(conninfo, snapshot)
        packs = list(of.partitions())
        found: list[Row] = []
        for pack in packs:
            found += rows_of(of, [pack])
            spread.query(f'UPDATE "tenant_{HUGE}".devices SET updated_at = now()')
        assert sorted(found) == expected
    assert "" not in nodes_of(packs)
    assert len(nodes_of(packs)) >= 2
    assert all(len({one.place.node for one in pack.slices}) == 1 for pack in packs)
    assert sum(not one.is_whole for pack in packs for one in pack.slices) >= 3


def test_a_node_that_can_not_be_reached_is_named_once_and_its_tenants_come_through_the_coordinator(
    conninfo: str,
    settings: Settings,
    expected: list[Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
        (cut_at,) = {table.place.node for table in snapshot.tables}
    unreachable(cut_at, monkeypatch, snapshots)
    for _ in range(2):
        with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
            of = reader(conninfo, snapshot)
            packs = list(of.partitions())
            assert rows_of(of, packs) == expected
    assert "" in nodes_of(packs)
    assert cut_at not in nodes_of(packs)
    assert nodes._said == {cut_at}


def test_a_task_that_can_not_reach_a_node_reads_through_the_coordinator_but_never_parts_of_a_table(
    conninfo: str, settings: Settings, expected: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
        of = reader(conninfo, snapshot)
        packs = list(of.partitions())
        (cut_at,) = {table.place.node for table in snapshot.tables}
        whole = reader(conninfo, msgspec.structs.replace(snapshot, tables=()))
        of_wholes = list(whole.partitions())
        unreachable(cut_at, monkeypatch, tenant_source)
        assert rows_of(whole, of_wholes) == expected
        with pytest.raises(TransientError, match="SPARK_READS_NODES"):
            rows_of(of, packs)


def test_a_tenant_that_is_moved_meanwhile_is_never_read_empty_or_old(
    conninfo: str, settings: Settings, database: Database, spread: Tenants, expected: list[Row], postgres_server: Any
) -> None:
    with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
        of, whole = reader(conninfo, snapshot), reader(conninfo, msgspec.structs.replace(snapshot, tables=()))
        packs, of_wholes = list(of.partitions()), list(whole.partitions())
        (was_at,) = {table.place.node for table in snapshot.tables}
        with coordinator(database, postgres_server) as connection:
            move(connection, HUGE, was_at)
            spread.query(f"""DELETE FROM "tenant_{HUGE}".devices WHERE client_id = 'c1'""")
            assert rows_of(whole, of_wholes) == [row for row in expected if row != (HUGE, "c1")]
            connection.execute("CALL citus_cleanup_orphaned_resources()")
        with pytest.raises(SnapshotGoneError):
            rows_of(of, packs)
    with shared_snapshot(conninfo, settings, EVERYBODY) as snapshot:
        assert was_at not in {table.place.node for table in snapshot.tables}
        of = reader(conninfo, snapshot)
        assert rows_of(of, list(of.partitions())) == [row for row in expected if row != (HUGE, "c1")]


def test_what_is_left_of_a_tenant_that_was_moved_away_is_not_taken_for_it(conninfo: str, spread: Tenants) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        placed = nodes.places(connection, EVERYBODY)
    by_node: dict[str, list[Place]] = {}
    for place in placed.values():
        by_node.setdefault(place.node, []).append(place)
    node, own = next(iter(by_node.items()))
    foreign = next(place for place in placed.values() if place.node != node)
    with psycopg.connect(nodes.conninfo_of(conninfo, node), autocommit=True) as connection:
        assert nodes.still_here(connection, [*own, replace(foreign, node=node)]) == own


def test_a_tenants_size_is_that_of_its_rows_on_the_node_whoever_is_asked(
    conninfo: str, settings: Settings, database: Database, spread: Tenants, postgres_server: Any
) -> None:
    with coordinator(database, postgres_server) as connection:
        true = dict(connection.execute(_TRUE_SIZES, {"customers": list(EVERYBODY)}).fetchall())
    assert true[HUGE] > 10 * true[OTHERS[0]] > 0
    through_the_coordinator = settings.model_copy(update={"spark_reads_nodes": False})
    for asked, from_nodes in ((settings, True), (through_the_coordinator, False)):
        with shared_snapshot(conninfo, asked, EVERYBODY) as snapshot:
            of = TenantReader(conninfo, replace(METRICS, snapshot=snapshot), SIZES)
            packs = list(of.partitions())
            assert ("" not in nodes_of(packs)) == from_nodes
            found = [row for pack in packs for batch in of.read(pack) for row in batch.to_pylist()]
        assert (len(found) > len(EVERYBODY)) == from_nodes, "a huge one is read in slices"
        assert {row["customer_id"]: row["table_bytes"] for row in found if row["devices"]} == true


def coordinator(database: Database, server: Any) -> Any:
    name = database.url.partition("?")[0].rpartition("/")[2]
    return psycopg.connect(server.superuser_url(name), autocommit=True)


def move(connection: psycopg.Connection[Any], customer: CustomerId, was_at: str) -> None:
    found = connection.execute(
        "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND nodename || ':' || nodeport <> %s", (was_at,)
    ).fetchall()
    host, port = found[0]
    connection.execute(
        "SELECT citus_schema_move(%s::regnamespace, %s, %s, 'block_writes')", (f"tenant_{customer}", host, port)
    )
