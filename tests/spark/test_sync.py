"""Devices compared with DynamoDB when the dashboard's numbers are collected: counts, sample, and a store that fails."""

import json
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.settings import Settings
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from clientmgr.local.standins.legacy_devices import Item, legacy_items
from clientmgr_dagster.defs.tenant_metrics import checks
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.dynamodb_source import DeviceScan, read_dynamodb
from tests.device_mapper.dynamodb import THROTTLED, MoodyDynamoDb
from tests.spark.calling import passes
from tests.spark.conftest import AWS_SECRET
from tests.spark.tenants import BROKEN, EMPTY, HUGE, ORDINARY, Tenants
from tests.spark.test_dashboard import collect

COLUMNS = """
SELECT sync_status, sync_dynamodb_devices, sync_sampled, sync_missing_in_dynamodb, sync_missing_in_postgres,
    sync_different, sync_difference_share
FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = {customer}
"""
STATUSES = "SELECT customer_id, status, sync_status FROM clientmgr.dashboard_tenant_metrics ORDER BY 1"
NOBODY = CustomerId(99)


@pytest.fixture
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SYNC_SCAN_ATTEMPTS", "1")
    return monkeypatch


@pytest.fixture
def legacy(dynamodb_stand_in: DynamoDbStandIn, environment: pytest.MonkeyPatch, tenants: Tenants) -> "Legacy":
    table = f"devices-{uuid.uuid4().hex[:8]}"
    dynamodb_stand_in.create_devices_table(table)
    environment.setenv("DYNAMODB_ENDPOINT", dynamodb_stand_in.url)
    environment.setenv("DYNAMODB_DEVICES_TABLE", table)
    return Legacy(dynamodb_stand_in, table, tenants)


class Legacy:
    """The older system's table."""

    def __init__(self, server: DynamoDbStandIn, table: str, tenants: Tenants) -> None:
        self.server, self.table, self._tenants = server, table, tenants

    def copy_of(self, customer: CustomerId) -> list[Item]:
        """The tenant's devices, the first of the sample first."""
        with self._tenants.database.connect(Role.READER) as connection:
            return sorted(legacy_items(connection, customer), key=lambda item: item["deviceKey"]["S"])

    def put(self, items: list[Item]) -> None:
        self.server.put(self.table, items)


def test_counts_and_a_sample_are_compared_and_what_differs_is_kept_without_secrets(
    spark: SparkSession, tenants: Tenants, legacy: Legacy, instance: dg.DagsterInstance
) -> None:
    tenants.make_all(huge=1500)
    # Few enough that the sample is all of them.
    tenants.query("""DELETE FROM "tenant_11".devices WHERE contact_id IS NULL OR substr(client_id, 2)::int > 100""")
    changed = legacy.copy_of(ORDINARY)
    assert len(changed) == 75
    changed[0]["language"] = {"S": "fr"}
    changed[1]["pushToken"] = {"S": "token-of-somebody-else"}
    changed[2]["contactKey"] = {"S": f"{ORDINARY}#5"}
    changed[3]["deviceKey"] = {"S": "APP-1#nobody-here-knows-it"}
    legacy.put([*changed[:-1], *legacy.copy_of(HUGE)])
    legacy.put([{"contactKey": {"S": f"{NOBODY}#1"}, "deviceKey": {"S": "APP-1#c1"}}])

    for _ in range(2):
        collect(instance)

        assert tenants.query(COLUMNS.format(customer=ORDINARY)) == [("differs", 74, 76, 2, 1, 3, 6 / 76)]
        assert tenants.query(COLUMNS.format(customer=HUGE)) == [("in sync", 1125, 100, 0, 0, 0, 0.0)]
        assert tenants.query(COLUMNS.format(customer=EMPTY)) == [("in sync", 0, 0, 0, 0, 0, 0.0)]
        assert tenants.query(STATUSES)[-1] == (BROKEN, "failed", "failed")
    ((fields, differences),) = tenants.query(
        "SELECT sync_different_fields, sync_differences FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = 11"
    )
    assert fields == {"language": 1, "push_token": 1, "contact_id": 1}
    assert sorted((one["client_id"], one["difference"], one["fields"]) for one in differences) == sorted(
        [
            (_client(changed[0]), "different", ["language"]),
            (_client(changed[1]), "different", ["push_token"]),
            (_client(changed[2]), "different", ["contact_id"]),
            ("nobody-here-knows-it", "missing in PostgreSQL", []),
            (_client(legacy.copy_of(ORDINARY)[3]), "missing in DynamoDB", []),
            (_client(changed[-1]), "missing in DynamoDB", []),
        ]
    )
    ((kept,),) = tenants.query(
        """SELECT sync_differences FROM clientmgr.dashboard_tenant_metrics_history
        WHERE customer_id = 11 ORDER BY collected_at DESC LIMIT 1"""
    )
    assert len(kept) == 6
    assert not any("client_id" in one for one in kept), "a device that is deleted must not live on in the history"
    assert "token-" not in json.dumps(differences), "no token, in whatever form"
    assert [row[0] for row in tenants.query("SELECT customer_id FROM clientmgr.dashboard_worst_sync")][:2] == [
        BROKEN,
        ORDINARY,
    ]


def _client(item: Item) -> str:
    return str(item["deviceKey"]["S"]).partition("#")[2]


def test_the_check_fails_beyond_the_tolerance_and_shows_what_differs_without_naming_devices(
    spark: SparkSession,
    tenants: Tenants,
    legacy: Legacy,
    instance: dg.DagsterInstance,
    environment: pytest.MonkeyPatch,
) -> None:
    tenants.activate(ORDINARY, EMPTY)
    tenants.add_devices(ORDINARY, 40)
    items = legacy.copy_of(ORDINARY)
    items[0]["platform"] = {"S": "symbian"}
    legacy.put(items)

    collect(instance)

    assert not passes(checks.sync_within_tolerance)
    result = checks.sync_within_tolerance(TenantsResource())
    assert isinstance(result, dg.AssetCheckResult)
    shown = result.metadata["devices"]
    assert isinstance(shown, dg.TableMetadataValue)
    assert [(one.data["customer_id"], one.data["fields"]) for one in shown.records] == [(str(ORDINARY), "platform")]
    assert _client(items[0]) not in str(result.metadata), "a device that is deleted must not live on in Dagster's log"
    environment.setenv("SYNC_TOLERANCE", "0.04")
    assert passes(checks.sync_within_tolerance)


class Tiring(MoodyDynamoDb):
    """Answers the first requests and throttles the rest."""

    def __init__(self, server: Any, *, answers: int) -> None:
        super().__init__(server)
        self._answers_left = answers

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self._answers_left -= 1
        return super().answer(body, headers) if self._answers_left >= 0 else (400, THROTTLED)


@pytest.mark.parametrize(("answers", "why"), [(0, "slow down"), (3, "slow down"), (None, "onnect")])
def test_a_store_that_is_down_or_throttles_costs_the_comparison_and_nothing_else(
    spark: SparkSession,
    tenants: Tenants,
    legacy: Legacy,
    instance: dg.DagsterInstance,
    environment: pytest.MonkeyPatch,
    answers: int | None,
    why: str,
) -> None:
    tenants.activate(ORDINARY, EMPTY)
    tenants.add_devices(ORDINARY, 40)
    legacy.put(legacy.copy_of(ORDINARY))
    server = Tiring(legacy.server, answers=answers or 0)
    server.mood = "well" if answers is not None else "gone"

    with server.serving() as url:
        environment.setenv("DYNAMODB_ENDPOINT", url)
        collect(instance)

    assert tenants.query(STATUSES) == [(ORDINARY, "ok", "failed"), (EMPTY, "ok", "failed")]
    assert tenants.query("SELECT devices FROM clientmgr.dashboard_tenant_metrics WHERE customer_id = 11") == [(40,)]
    ((failure,),) = tenants.query("SELECT DISTINCT sync_failure FROM clientmgr.dashboard_tenant_metrics")
    assert why in failure
    assert not passes(checks.sync_within_tolerance)


def test_a_missing_table_is_named(
    spark: SparkSession, tenants: Tenants, legacy: Legacy, environment: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    tenants.activate(EMPTY)
    environment.setenv("DYNAMODB_DEVICES_TABLE", "not-there")

    collect(instance)

    ((failure,),) = tenants.query("SELECT sync_failure FROM clientmgr.dashboard_tenant_metrics")
    assert "ResourceNotFoundException" in failure


def test_each_segment_is_a_task_and_together_they_read_every_item_once(
    spark: SparkSession, legacy: Legacy, tenants: Tenants
) -> None:
    tenants.activate(ORDINARY)
    tenants.add_devices(ORDINARY, 400)
    legacy.put(legacy.copy_of(ORDINARY))
    access = DynamoDbAccess(legacy.table, legacy.server.url)

    rows = read_dynamodb(spark, access, DeviceScan((ORDINARY, EMPTY), 3, 10))

    assert rows.rdd.getNumPartitions() == 3
    found = rows.collect()
    counts = [row.items for row in found if row["items"] is not None and row.customer_id == ORDINARY]
    assert (len(counts), sum(row["items"] for row in found if row["items"] is not None)) == (3, 300)
    assert sum(1 for count in counts if count) > 1, "the items are spread over the segments"
    sampled = [row.device_key for row in found if row.device_key is not None]
    assert 10 <= len(sampled) < 200
    assert len(sampled) == len(set(sampled))


def test_the_credentials_are_in_no_plan_no_log_and_no_message(
    spark: SparkSession, legacy: Legacy, event_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    access = DynamoDbAccess(legacy.table, legacy.server.url, attempts=1)
    rows = read_dynamodb(spark, access, DeviceScan((ORDINARY,), 2, 10))
    assert rows.count() == 2
    rows.explain(mode="extended")
    nowhere = DynamoDbAccess(legacy.table, "http://127.0.0.1:1", attempts=1)
    (failed,) = read_dynamodb(spark, nowhere, DeviceScan((ORDINARY,), 2, 10)).collect()

    shown = capfd.readouterr()
    logged = "".join(file.read_text() for file in event_log.rglob("*") if file.is_file())
    assert "clientmgr_dynamodb" in logged, "the test looks at the log that Spark's UI is made from"
    assert AWS_SECRET not in shown.out + shown.err + logged + failed.error
    assert "127.0.0.1:1" in failed.error


def test_where_there_is_no_dynamodb_nothing_is_asked(
    spark: SparkSession, tenants: Tenants, environment: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    tenants.activate(EMPTY)

    collect(instance)

    assert tenants.query(STATUSES) == [(EMPTY, "ok", "not checked")]
    assert passes(checks.sync_within_tolerance)
