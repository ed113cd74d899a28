"""Keeps the `tenants` partitions equal to the registry, and asks for the schema of each tenant new to Dagster."""

import dagster as dg

from clientmgr.base.database import Role
from clientmgr.tenants.registry import TenantStatus, list_tenants
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.defs.tenancy.jobs import tenant_schema_job
from clientmgr_dagster.partitions import (
    LIFECYCLE_TAGS,
    PARTITIONS,
    held_keys,
    partition_range,
    tenants_partitions,
)
from clientmgr_dagster.policies import TENANTS_PER_RUN
from clientmgr_dagster.resources import TenantsResource

# At most this many in one evaluation: a sensor has a minute, and the next evaluation goes on.
CHANGES_PER_TICK = TENANTS_PER_RUN


@dg.sensor(
    job=tenant_schema_job,
    # Each time that Dagster's daemon looks, which it does every 5 s.
    minimum_interval_seconds=1,
    default_status=SENSORS,
    description="Adds a partition for each active tenant, removes those of deleted ones.",
)
def tenant_registry_sensor(
    context: dg.SensorEvaluationContext, tenants: TenantsResource
) -> dg.SensorResult | dg.SkipReason:
    """Compare the registry with Dagster's keys. A registry that can't be read is a failed tick, never an empty one."""
    with tenants.database.connect(Role.READER) as connection:
        registered = {str(tenant.customer_id): tenant for tenant in list_tenants(connection)}
    known = set(context.instance.get_dynamic_partitions(PARTITIONS))
    active = {key for key, tenant in registered.items() if tenant.status == TenantStatus.ACTIVE}
    # A tenant in the making got its key from the activation; one that is going loses it in the course of that.
    gone = {key for key in known if key not in registered or registered[key].status == TenantStatus.DELETED}
    added = sorted(active - known, key=int)[:CHANGES_PER_TICK]
    removed = sorted(gone - held_keys(context.instance))[:CHANGES_PER_TICK] if gone else []
    if not added and not removed:
        return dg.SkipReason(f"{len(active)} active tenants, all of them known")
    return dg.SensorResult(
        dynamic_partitions_requests=[
            *([tenants_partitions.build_add_request(added)] if added else []),
            *([tenants_partitions.build_delete_request(removed)] if removed else []),
        ],
        run_requests=[_one_run_for(added, activated_at=registered[added[0]].activated_at)] if added else [],
    )


def _one_run_for(keys: list[str], *, activated_at: object) -> dg.RunRequest:
    """One run for all of them: keys added together are neighbours, and a range of neighbours is one run.

    The time of activation is part of the run key, so that a customer who comes back gets a run of its own.
    """
    run_key = f"tenant_schema:{keys[0]}:{keys[-1]}:{activated_at}"
    if len(keys) == 1:
        return dg.RunRequest(run_key=run_key, partition_key=keys[0], tags=LIFECYCLE_TAGS)
    return dg.RunRequest(run_key=run_key, tags=LIFECYCLE_TAGS | partition_range(keys))
