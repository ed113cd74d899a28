"""Numbers are evidence: what a tenant's partition says in Dagster is that tenant's, and no total of the run's tenants.

Every asset per tenant runs over three tenants that differ in all numbers, and a deleted one in their midst, which gets
nothing; each partition is compared with the tables.
"""

import uuid
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.database import Database
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.partitions import partition_range
from tests.spark.deletions import add
from tests.spark.legacy import begin_migration, items_of
from tests.spark.tenants import BROKEN as DELETED
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants
from tests.streaming.rig import read_topic

EVERYBODY = (ORDINARY, HUGE, EMPTY)
DEVICES = {ORDINARY: 40, HUGE: 200, EMPTY: 0}
ITEMS = {ORDINARY: 3, HUGE: 7, EMPTY: 0}
ROWS_IN_FILES = {ORDINARY: 4, HUGE: 9, EMPTY: 0}
DELETED_CONTACTS = {ORDINARY: range(1001, 1004), HUGE: range(1001, 1011), EMPTY: range(0)}
Numbers = Mapping[str, object]


@pytest.fixture
def three_tenants(bigquery: BigQueryStandIn, tenants: Tenants, instance: dg.DagsterInstance) -> Tenants:
    tenants.activate(ORDINARY, EMPTY)
    tenants.query("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (12, 'activating')")
    tenants.query("INSERT INTO clientmgr.tenants (customer_id, status) VALUES (14, 'deleted')")
    instance.add_dynamic_partitions("tenants", [str(customer) for customer in (ORDINARY, HUGE, DELETED, EMPTY)])
    for customer, contacts in DELETED_CONTACTS.items():
        if contacts:
            add(bigquery, customer, contacts[0], contacts[-1])
    return tenants


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for each customer, but for the one that has no file."""
    monkeypatch.setenv("DEVICE_IMPORT_FOLDER", f"file://{tmp_path}/{{customer}}")
    for customer, count in ROWS_IN_FILES.items():
        if count:
            (tmp_path / str(customer)).mkdir()
            rows = "".join(f"A,from-file-{number}\n" for number in range(count))
            (tmp_path / str(customer) / "devices.csv").write_text(f"applicationCode,clientId\n{rows}")


@pytest.fixture
def legacy_table(dynamodb_stand_in: DynamoDbStandIn, three_tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of the older system that nobody compares with: the dashboard's numbers say so."""
    name = f"numbers-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(name)
    legacy = {"DYNAMODB_ENDPOINT": dynamodb_stand_in.url, "DYNAMODB_DEVICES_TABLE": name, "SYNC_VALIDATION": "off"}
    for variable, value in legacy.items():
        monkeypatch.setenv(variable, value)
    return name


def test_a_partition_carries_its_own_numbers_and_no_others(
    spark: SparkSession,
    database: Database,
    three_tenants: Tenants,
    instance: dg.DagsterInstance,
    dynamodb_stand_in: DynamoDbStandIn,
    legacy_table: str,
    files: None,
) -> None:
    definitions = build_definitions()
    graph = definitions.get_repository_def().asset_graph
    seen: dict[str, dict[int, Numbers]] = {}

    def compute(*assets: str) -> None:
        job = definitions.resolve_implicit_job_def_def_for_assets([dg.AssetKey(name) for name in assets])
        assert job is not None
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in assets],
            tags=partition_range([str(ORDINARY), str(EMPTY)]),
        )
        for event in result.get_asset_materialization_events():
            one = event.materialization
            numbers = {name: value.value for name, value in one.metadata.items()}
            seen.setdefault(one.asset_key.to_user_string(), {})[int(str(one.partition))] = numbers

    def by_customer(sql: str) -> dict[int, tuple[object, ...]]:
        return {row[0]: row[1:] for row in three_tenants.query(sql)}

    expected: dict[str, dict[int, Numbers]] = {}

    compute("tenant_schema")
    versions = by_customer("SELECT customer_id, schema_version FROM clientmgr.tenants")
    expected["tenant_schema"] = {
        customer: {"schema_version": versions[customer][0], "migrated_now": int(customer == HUGE)}
        for customer in EVERYBODY
    }

    for customer, count in DEVICES.items():
        three_tenants.add_devices(customer, count)
    compute("deleted_contacts")
    waiting = by_customer("SELECT customer_id, count(*) FROM clientmgr.deleted_contacts GROUP BY 1")
    expected["deleted_contacts"] = {customer: {"waiting": waiting.get(customer, (0,))[0]} for customer in EVERYBODY}

    compute("contact_deletion_messages")
    tenants_of_messages = [one.tenant for one in read_topic(database, CONTACT_DELETION)]
    expected["contact_deletion_messages"] = {
        customer: {"messages": tenants_of_messages.count(str(customer))} for customer in EVERYBODY
    }

    # The worker has not done anything yet: all of them still have devices.
    compute("contact_deletion_reconciliation")
    reconciled = by_customer(
        "SELECT customer_id, found, missed, published FROM clientmgr.contact_deletion_reconciliations"
    )
    expected["contact_deletion_reconciliation"] = {
        customer: dict(zip(("dagster/row_count", "missed", "messages"), reconciled[customer], strict=True))
        for customer in EVERYBODY
    }

    compute("orphan_candidates")
    candidates = by_customer("SELECT customer_id, count(*) FROM clientmgr.orphan_candidates GROUP BY 1")
    expected["orphan_candidates"] = {
        customer: {"dagster/row_count": candidates.get(customer, (0,))[0]} for customer in EVERYBODY
    }
    compute("orphan_deletions")
    deletions = by_customer(
        "SELECT customer_id, outcome, candidates, deleted, spared FROM clientmgr.orphan_deletion_results"
    )
    expected["orphan_deletions"] = {
        customer: dict(zip(("outcome", "candidates", "deleted", "spared"), deletions[customer], strict=True))
        for customer in EVERYBODY
    }

    compute("dashboard_tenant_metrics")
    metrics = by_customer(
        "SELECT customer_id, devices, contacts, orphans, sync_status FROM clientmgr.dashboard_tenant_metrics"
    )
    expected["dashboard_tenant_metrics"] = {
        customer: dict(zip(("devices", "contacts", "orphans", "sync"), metrics[customer], strict=True))
        for customer in EVERYBODY
    }
    compute("dashboard_tenant_metrics_history")
    history = by_customer("SELECT customer_id, devices FROM clientmgr.dashboard_tenant_metrics_history")
    expected["dashboard_tenant_metrics_history"] = {
        customer: {"devices": history[customer][0]} for customer in EVERYBODY
    }

    begin_migration(three_tenants, EVERYBODY)
    for customer, count in ITEMS.items():
        dynamodb_stand_in.put(legacy_table, items_of(customer, count))
    for asset in ("legacy_devices", "legacy_import", "migration_stage"):
        compute(asset)
    imports = by_customer(
        "SELECT customer_id, items, imported, passed_over, rejected, different FROM clientmgr.legacy_imports"
    )
    assert {customer: numbers[0] for customer, numbers in imports.items()} == ITEMS
    expected["legacy_devices"] = {customer: {"items": imports[customer][0]} for customer in EVERYBODY}
    expected["legacy_import"] = {
        customer: dict(zip(("imported", "passed_over", "rejected", "different"), imports[customer][1:], strict=True))
        for customer in EVERYBODY
    }
    stages = by_customer("SELECT customer_id, stage FROM clientmgr.legacy_migrations")
    expected["migration_stage"] = {customer: {"stage": stages[customer][0]} for customer in EVERYBODY}

    compute("device_files")
    expected["device_files"] = {
        customer: {"files": int(count > 0), "imported": count, "rejected": 0, "unchanged": 0}
        for customer, count in ROWS_IN_FILES.items()
    }

    assert seen == expected
    assert len({numbers[0] for numbers in metrics.values()}) == 3
    assert len({tuple(numbers.values()) for numbers in seen["contact_deletion_messages"].values()}) == 3
    assert [reconciled[customer][0] for customer in EVERYBODY] == [3, 10, 0]
    per_tenant = {key.to_user_string() for key in graph.executable_asset_keys if graph.get(key).is_partitioned}
    assert seen.keys() == per_tenant, "every asset per tenant has to be looked at here"
