"""Imports a customer as soon as somebody starts its migration, and all migrating ones every night."""

from collections.abc import Iterator

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.legacy_migration.imported_customers import customers_being_imported, customers_to_import
from clientmgr_dagster.automation import SCHEDULES, SENSORS
from clientmgr_dagster.chunks import requests_for_all
from clientmgr_dagster.defs.legacy_migration.assets import IMPORT, SCANNED, STAGE
from clientmgr_dagster.partitions import PARTITIONS
from clientmgr_dagster.policies import AS_LONG_AS_WANTED
from clientmgr_dagster.resources import TenantsResource

legacy_migration_job = dg.define_asset_job(
    "legacy_migration_job",
    selection=dg.AssetSelection.assets(SCANNED, IMPORT, STAGE),
    tags=AS_LONG_AS_WANTED,
    description="Imports customers' devices from DynamoDB and compares both stores.",
)


@dg.sensor(
    job=legacy_migration_job,
    minimum_interval_seconds=30,
    default_status=SENSORS,
    description="Imports the customers whose migration somebody has started.",
)
def legacy_migration_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    with tenants.database.connect(Role.READER) as connection:
        started = customers_to_import(connection)
    keys = _neighbours(context.instance, [str(customer) for customer in started])
    if not keys:
        yield dg.SkipReason("nobody's migration was started since its last import")
        return
    # A scan is of the whole table, for however many customers: one run for all of them.
    moment = max(started.values()).isoformat()
    yield from requests_for_all(keys, name="legacy_migration", moment=moment, size=len(keys))


@dg.schedule(
    job=legacy_migration_job,
    cron_schedule="15 1 * * *",
    execution_timezone="UTC",
    default_status=SCHEDULES,
    description="All customers that are being migrated, every night at 01:15 UTC.",
)
def nightly_legacy_migration(
    context: dg.ScheduleEvaluationContext, tenants: TenantsResource
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    with tenants.database.connect(Role.READER) as connection:
        migrating = customers_being_imported(connection)
    keys = _neighbours(context.instance, [str(customer) for customer in sorted(migrating)])
    if not keys:
        yield dg.SkipReason("no customer is being migrated")
        return
    moment = context.scheduled_execution_time.isoformat()
    yield from requests_for_all(keys, name="legacy_migration", moment=moment, size=len(keys))


def _neighbours(instance: dg.DagsterInstance, wanted: list[str]) -> list[str]:
    """All keys from the first wanted one to the last: a range is one run, which passes over who is not migrated."""
    known = instance.get_dynamic_partitions(PARTITIONS)
    positions = [known.index(key) for key in wanted if key in known]
    return list(known[min(positions) : max(positions) + 1]) if positions else []
