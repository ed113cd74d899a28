"""`legacy_devices`, `legacy_import` and `migration_stage`: scanned by Spark, imported by the rules of events, compared.

One step computes all three, so that a customer that fails costs only itself, and so that the scanned items are gone
from our tables as soon as they are compared.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg
import psycopg

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.errors import ClientManagerError, is_transient
from clientmgr.base.stopping import StoppedError
from clientmgr.devices.store import DeviceStore
from clientmgr.legacy_migration.importing import LegacyImport, unfinished_scans
from clientmgr.legacy_migration.moving import MigrationStatus, settle_check, status_of
from clientmgr.legacy_migration.stages import IMPORTED
from clientmgr.operations.batch_failures import failures_of
from clientmgr_dagster.catalogue import computed_by
from clientmgr_dagster.chunks import active_customers_of
from clientmgr_dagster.failing import fail_if_tenants_failed, reporting_even_if_it_fails, stoppable
from clientmgr_dagster.materialisations import OwnNumbers
from clientmgr_dagster.metadata import failure_table, log_partitions, log_summary, table
from clientmgr_dagster.policies import PER_TENANT
from clientmgr_dagster.resources import TenantsResource
from clientmgr_dagster.spark.legacy_devices import STEP, scan_legacy_devices
from clientmgr_dagster.spark.session import SparkResource

GROUP = "legacy_migration"
SCANNED, IMPORT, STAGE = "legacy_devices", "legacy_import", "migration_stage"
ACTOR = "dagster:legacy_migration"

IN_SYNC = dg.AssetCheckSpec(
    "in_sync",
    asset=IMPORT,
    description="DynamoDB has no device of these customers, and no field of one, that is missing here or older here.",
)


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            SCANNED,
            deps=["dynamodb_devices"],
            group_name=GROUP,
            kinds={"spark", "dynamodb", "postgres"},
            metadata={"dagster/table_name": "clientmgr.legacy_devices"},
            skippable=True,
            description="A migrating customer's items in DynamoDB, scanned at DYNAMODB_SCAN_SHARE of its capacity. "
            "They are deleted here as soon as they are imported and compared.",
        ),
        dg.AssetSpec(
            IMPORT,
            deps=[SCANNED, "tenant_schema"],
            group_name=GROUP,
            kinds={"postgres"},
            metadata={
                "dagster/table_name": "clientmgr.legacy_imports",
                **computed_by("clientmgr.legacy_migration.importing", "clientmgr.legacy_migration.events"),
            },
            skippable=True,
            description="The items as devices, by the rules of events: what is newer here stays.",
        ),
        dg.AssetSpec(
            STAGE,
            deps=[IMPORT],
            group_name=GROUP,
            kinds={"postgres"},
            metadata={
                "dagster/table_name": "clientmgr.legacy_migrations",
                **computed_by("clientmgr.legacy_migration.moving", "clientmgr.legacy_migration.stages"),
            },
            skippable=True,
            description="How far a customer is on its way. A comparison takes it to `in sync` and back from there; "
            "`clientmgr migration advance` takes it further.",
        ),
    ],
    check_specs=[IN_SYNC],
    can_subset=True,
    pool="spark",
    **PER_TENANT,
)
def legacy_migration(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource
) -> Iterator[dg.AssetCheckResult]:
    """Scan, import, compare, move. Customers that nobody started to migrate are passed over."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    customers = _migrating(context, tenants) if selected else []
    failures: dict[CustomerId, str] = {}
    if SCANNED in selected:
        failures |= _scan(context, tenants, spark, customers)
    if IMPORT in selected:
        failures |= _import(context, tenants, [one for one in customers if one not in failures])
    if STAGE in selected:
        _settle(context, tenants, [one for one in customers if one not in failures])
    if IN_SYNC.key in context.selected_asset_check_keys:
        yield in_sync(tenants)
    fail_if_tenants_failed(tenants, customers, failures)


def in_sync(tenants: TenantsResource) -> dg.AssetCheckResult:
    """Of all customers that are imported: counts and every field of every device, no sample."""
    with tenants.database.connect(Role.READER) as connection:
        compared = [one for one in status_of(connection, tenants.settings) if one.stage in IMPORTED and one.started]
    apart = [one for one in compared if one.checked_at is not None and not one.comparison.is_in_sync]
    return dg.AssetCheckResult(
        asset_key=IN_SYNC.asset_key,
        check_name=IN_SYNC.name,
        passed=not apart,
        metadata={
            "compared": sum(one.checked_at is not None for one in compared),
            "not_compared_yet": sum(one.checked_at is None for one in compared),
            "customers": table([_difference(one) for one in apart]),
        },
    )


def _migrating(context: dg.AssetExecutionContext, tenants: TenantsResource) -> list[CustomerId]:
    customers = active_customers_of(context, tenants)
    with tenants.database.connect(Role.READER) as connection:
        found = {one.customer_id: one for one in status_of(connection, tenants.settings, customers)}
    migrating = [one for one in customers if one in found and found[one].started and found[one].stage in IMPORTED]
    if passed_over := len(customers) - len(migrating):
        context.log.info(f"{passed_over} customers are not being migrated (`clientmgr migration start`): passed over")
    return migrating


def _scan(
    context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource, customers: Sequence[CustomerId]
) -> dict[CustomerId, str]:
    """One scan for all. Whose items of a scan before are still to be imported needs none: its run was killed."""
    settings, run_id = tenants.settings, context.run.run_id
    with tenants.database.connect(Role.READER) as connection:
        younger_than = timedelta(hours=settings.erasure_hours / 4)
        unfinished = unfinished_scans(connection, customers, younger_than=younger_than)
    if wanted := [customer for customer in customers if customer not in unfinished]:
        scanned_at = datetime.now(UTC)
        spark.run(
            context, scan_legacy_devices, tenants.database, settings, wanted, scanned_at=scanned_at, run_id=run_id
        )
    with tenants.database.connect(Role.READER) as connection:
        failures = failures_of(connection, run_id, STEP)
        found = [one for one in status_of(connection, settings, customers) if one.customer_id not in failures]
    log_partitions(context, SCANNED, ((one.customer_id, {"items": one.items or 0}) for one in found))
    items = {one.customer_id: one.items or 0 for one in found}
    log_summary(context, SCANNED, items, unit="items", continued=len(unfinished), failed=failure_table(failures))
    return failures


def _import(
    context: dg.AssetExecutionContext, tenants: TenantsResource, customers: Sequence[CustomerId]
) -> dict[CustomerId, str]:
    failures: dict[CustomerId, str] = {}
    done: list[CustomerId] = []

    def report() -> None:
        with tenants.database.connect(Role.READER) as connection:
            found = list(status_of(connection, tenants.settings, done))
        log_partitions(context, IMPORT, ((one.customer_id, _numbers(one)) for one in found), work=("imported",))
        imported = {one.customer_id: one.imported or 0 for one in found}
        log_summary(context, IMPORT, imported, unit="items", failed=failure_table(failures))

    with stoppable(context) as still_wanted, reporting_even_if_it_fails(context, report):
        work = LegacyImport(tenants.database, DeviceStore.from_settings(tenants.settings), still_wanted)
        for customer in customers:
            try:
                asyncio.run(work.run(customer, _telling(context, customer)))
            except StoppedError:
                raise
            except (psycopg.Error, ClientManagerError) as error:
                if is_transient(error):
                    raise
                failures[customer] = str(error)
            else:
                done.append(customer)
    return failures


def _telling(context: dg.AssetExecutionContext, customer: CustomerId, *, each: int = 50_000) -> "_Progress":
    return _Progress(context, customer, each)


class _Progress:
    """Says now and then how far an import has come."""

    def __init__(self, context: dg.AssetExecutionContext, customer: CustomerId, each: int) -> None:
        self._context, self._customer, self._each = context, customer, each
        self._next = each

    def __call__(self, done: int) -> None:
        if done >= self._next:
            self._next = done + self._each
            self._context.log.info(f"customer {self._customer}: {done} items imported")


def _settle(context: dg.AssetExecutionContext, tenants: TenantsResource, customers: Sequence[CustomerId]) -> None:
    audit = AuditLogger.from_settings(tenants.settings)
    stages: dict[CustomerId, OwnNumbers] = {}
    for customer in customers:
        with tenants.database.connect(Role.WRITER) as connection:
            stages[customer] = {
                "stage": str(settle_check(connection, audit, tenants.settings, customer, actor=ACTOR).stage)
            }
    log_partitions(context, STAGE, stages.items())


def _numbers(one: MigrationStatus) -> OwnNumbers:
    return {
        "imported": one.imported or 0,
        "passed_over": one.passed_over or 0,
        "rejected": one.rejected or 0,
        "different": one.different or 0,
    }


def _difference(one: MigrationStatus) -> dict[str, object]:
    fields = ", ".join(f"{name} ({count})" for name, count in one.different_fields.items())
    return {"customer": str(one.customer_id), "different": one.different, "fields": fields, "rejected": one.rejected}
