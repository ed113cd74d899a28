"""The code location: everything in `defs/`, with the resources that tests replace."""

import dagster as dg

from clientmgr_dagster.defs.tenancy.assets import tenant_schema
from clientmgr_dagster.defs.tenancy.sensors import tenant_registry_sensor
from clientmgr_dagster.resources import TenantsResource


def build_definitions(**resources: object) -> dg.Definitions:
    """The definitions, with any resource replaced by name."""
    return dg.Definitions(
        assets=[tenant_schema],
        sensors=[tenant_registry_sensor],
        resources={"tenants": TenantsResource(), **resources},
        # A process per step would be a JVM per step.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
