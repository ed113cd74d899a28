"""Pruning the event log on Dagster's PostgreSQL storage: what tells the present stays, and so does what is others'."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG

from clientmgr.base.settings import Settings
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.event_log import Ours, Pruned, prune
from clientmgr_dagster.resources import TenantsResource

Query = Callable[..., list[tuple[Any, ...]]]

SCHEMA, DEVICES, THEIRS = dg.AssetKey("tenant_schema"), dg.AssetKey("devices"), dg.AssetKey("their_asset")
OURS = Ours("__repository__@client_manager", [SCHEMA, DEVICES], [dg.AssetCheckKey(SCHEMA, "our_check")])
OTHERS = "__repository__@somebody_else"


@dg.asset_check(asset=tenant_schema)
def our_check() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=tenant_schema)
def their_check() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset
def their_asset() -> None: ...


@dg.asset(name="devices")
def their_devices() -> None:
    """To us an external asset. To its owner, one that is materialised."""


@pytest.fixture
def age(query: Query) -> Callable[[], None]:
    """Makes all that was stored so far 40 days old."""

    def make_old() -> None:
        query('UPDATE dagster.event_logs SET "timestamp" = "timestamp" - interval \'40 days\'')
        query("UPDATE dagster.asset_check_executions SET create_timestamp = create_timestamp - interval '40 days'")

    return make_old


def run(instance: dg.DagsterInstance, query: Query, repository: str, *assets: Any, key: str | None = None) -> str:
    """A run as Dagster stores it when it is launched from a location: with its label beside the tags."""
    resources = {"tenants": TenantsResource()}
    run_id = dg.materialize(assets, partition_key=key, instance=instance, resources=resources).run_id
    query(
        "INSERT INTO dagster.run_tags (run_id, key, value) VALUES (%s, %s, %s)",
        run_id,
        REPOSITORY_LABEL_TAG,
        repository,
    )
    return run_id


def pruned(settings: Settings) -> Pruned:
    return prune(dagster_database_url(settings), OURS, keep_days=30, page=50)


def events(query: Query) -> dict[str, int]:
    return dict(query("SELECT run_id, count(*) FROM dagster.event_logs GROUP BY run_id"))


def test_pruning_keeps_what_tells_the_present_state_of_every_partition(
    stored: dg.DagsterInstance,
    settings: Settings,
    manager: TenantSchemaManager,
    query: Query,
    age: Callable[[], None],
) -> None:
    manager.activate([1, 2], actor="test")
    stored.add_dynamic_partitions("tenants", ["1", "2"])
    old = [run(stored, query, OURS.repository, tenant_schema, key=key) for key in ("1", "1", "2")]
    age()
    new = run(stored, query, OURS.repository, tenant_schema, key="1")
    before = events(query)

    assert pruned(settings).events > 0

    left = events(query)
    assert set(left) == {old[2], new}, "of the old ones, only what tells partition 2's state is left"
    assert left[old[2]] < 5 < left[new]
    assert left[new] == before[new]
    assert stored.get_materialized_partitions(SCHEMA) == {"1", "2"}
    newest = stored.get_latest_materialization_event(SCHEMA)
    assert newest is not None
    assert newest.run_id == new
    deleted = query(
        "SELECT count(*) FROM dagster.asset_event_tags AS t WHERE NOT EXISTS "
        "(SELECT FROM dagster.event_logs AS e WHERE e.id = t.event_id)"
    )
    assert deleted == [(0,)], "no tag of an event that is gone"
    assert pruned(settings).events == 0


def test_what_belongs_to_other_locations_of_the_instance_stays(
    stored: dg.DagsterInstance,
    settings: Settings,
    manager: TenantSchemaManager,
    query: Query,
    age: Callable[[], None],
) -> None:
    manager.activate([1], actor="test")
    stored.add_dynamic_partitions("tenants", ["1"])
    for _ in range(2):
        for asset in (THEIRS, DEVICES):
            stored.report_runless_asset_event(dg.AssetObservation(asset))
    theirs = [run(stored, query, OTHERS, their_asset, their_devices) for _ in range(2)]
    unknown = dg.materialize([their_asset], instance=stored).run_id
    ours = [run(stored, query, OURS.repository, tenant_schema, our_check, their_check, key="1") for _ in range(2)]
    age()
    before = events(query)

    found = pruned(settings)

    left = events(query)
    untouched = [*theirs, unknown]
    assert {run_id: left[run_id] for run_id in untouched} == {run_id: before[run_id] for run_id in untouched}
    assert left[ours[1]] < before[ours[1]]
    runless = query("SELECT asset_key, count(*) FROM dagster.event_logs WHERE run_id = '' GROUP BY 1 ORDER BY 1")
    assert runless == [(DEVICES.to_string(), 1), (THEIRS.to_string(), 2)]
    checks = query("SELECT check_name, count(*) FROM dagster.asset_check_executions GROUP BY 1 ORDER BY 1")
    assert (checks, found.check_results) == ([("our_check", 1), ("their_check", 2)], 1)
