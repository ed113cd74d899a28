"""Backfills do what was selected: launched by GraphQL and from the UI, planned by Dagster's own daemon loop."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionStatus

from clientmgr.base.database import Role
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.definitions import defs
from clientmgr_dagster.instance import with_all_selected
from clientmgr_dagster.partitions import PARTITIONS, tenants_partitions
from clientmgr_dagster.policies import TENANTS_PER_RUN
from tests.browser import HOW_TO_GET_IT, browsing, find_chromium
from tests.conftest import _throwaway_database
from tests.dagster.backfills import House, opened_house
from tests.waiting import eventually

# Dagster's own: it launches backfills by what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources` is deprecated:DeprecationWarning")

GRAPH = defs.get_repository_def().asset_graph
EXECUTABLE = sorted(key.to_user_string() for key in GRAPH.executable_asset_keys)
PER_TENANT = [
    name for name in EXECUTABLE if GRAPH.get(dg.AssetKey.from_user_string(name)).partitions_def == tenants_partitions
]
TENANTS = [str(customer) for customer in range(1, TENANTS_PER_RUN + 5)]


@pytest.fixture(scope="module")
def house(
    postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    for database in _throwaway_database(postgres_server, _template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        logins = postgres_server.role_settings(database.url.rpartition("/")[2])
        with opened_house(database, tmp_path_factory.mktemp("backfills"), logins) as house:
            house.instance.add_dynamic_partitions(PARTITIONS, TENANTS)
            yield house


def test_any_two_assets_that_are_selected_together_run(house: House) -> None:
    wanted = ["2", "3", "7"]
    pairs = [pair for pair in itertools.combinations(EXECUTABLE, 2) if set(pair) & set(PER_TENANT)]
    assert len(pairs) >= 15
    for pair in pairs:
        backfill_id = house.launched(pair, wanted)
        assert house.targets(backfill_id) == {name: set(wanted) if name in PER_TENANT else set() for name in pair}
        if set(pair) <= set(PER_TENANT):
            # An asset without partitions may have to wait for the other's.
            assert house.requested(backfill_id) == dict.fromkeys(pair, wanted)
        house.cancel(backfill_id)


@pytest.mark.parametrize("without", [None, *PER_TENANT])
def test_all_but_one_run_over_more_tenants_than_a_run_takes(house: House, without: str | None) -> None:
    selected, wanted = [name for name in PER_TENANT if name != without], TENANTS[1:]
    backfill_id = house.launched(selected, wanted)

    assert house.requested(backfill_id) == dict.fromkeys(selected, wanted)
    sizes = {len(house.partitions_of(request)) for request in house.planned(backfill_id)}
    assert sizes == {TENANTS_PER_RUN, len(wanted) % TENANTS_PER_RUN}
    house.cancel(backfill_id)


def test_what_is_selected_with_other_partitions_between_is_refused_and_named(house: House) -> None:
    """Where Dagster can't say which partitions of the later asset are meant, it launches nothing and says so."""
    launched = house.backfill(house.launched(["tenant_schema"], ["2"]))
    data = launched.asset_backfill_data
    assert data is not None
    others = tenants_partitions.subset_with_partition_keys(["3"])
    subsets = {**data.target_subset.partitions_subsets_by_asset_key, dg.AssetKey("deleted_contacts"): others}
    target = data.target_subset._replace(partitions_subsets_by_asset_key=subsets)
    selection = [*target.asset_keys, dg.AssetKey("orphan_deletions")]
    with pytest.raises(dg.DagsterInvalidInvocationError, match="would leave out orphan_deletions"):
        with_all_selected(
            launched._replace(asset_selection=selection, asset_backfill_data=data._replace(target_subset=target))
        )
    house.cancel(launched.backfill_id)


@pytest.mark.server
def test_from_the_launch_to_the_end_both_of_two_assets_with_one_between_are_materialised(house: House) -> None:
    wanted = ["2", "3", "4"]
    TenantSchemaManager(house.database, house.settings).activate([2, 3, 4], actor="test")
    backfill_id = house.launched(["tenant_schema", "orphan_candidates"], wanted)
    house.iterate()
    for run in house.runs_of(backfill_id):
        house.instance.launch_run(run.run_id, house.workspace.create_request_context())

    def over() -> bool:
        house.iterate()
        return house.backfill(backfill_id).status in BULK_ACTION_TERMINAL_STATUSES

    eventually(over, "the backfill ends", within_s=120)
    assert house.backfill(backfill_id).status is BulkActionStatus.COMPLETED_SUCCESS
    for name in ("tenant_schema", "orphan_candidates"):
        assert house.instance.get_materialized_partitions(dg.AssetKey(name)) == set(wanted)
    check = dg.AssetCheckKey(dg.AssetKey("orphan_candidates"), "no_young_candidates")
    assert house.instance.get_latest_asset_check_evaluation_record(check) is not None


@pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)
def test_so_do_two_assets_that_are_selected_in_the_browser(house: House, tmp_path: Path) -> None:
    before = {backfill.backfill_id for backfill in house.instance.get_backfills()}

    def new() -> list[str]:
        return [one.backfill_id for one in house.instance.get_backfills() if one.backfill_id not in before]

    with browsing(tmp_path) as browser:
        browser.open(f"{house.address}/asset-groups~/tenant_schema,orphan_candidates")
        browser.click("Materialize selected (2)", within_s=60)
        browser.click("All", within_s=60)
        browser.click("Launch backfill", within_s=60)
        eventually(new, "the backfill is stored")

    (backfill_id,) = new()
    assert house.requested(backfill_id) == {"tenant_schema": TENANTS, "orphan_candidates": TENANTS}
    house.cancel(backfill_id)
