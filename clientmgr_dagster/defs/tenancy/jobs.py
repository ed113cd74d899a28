"""The jobs that tenancy's sensors start: their runs are found by these names."""

import dagster as dg

from clientmgr_dagster.defs.tenancy.assets import tenant_schema

tenant_schema_job = dg.define_asset_job(
    "tenant_schema_job",
    selection=dg.AssetSelection.assets(tenant_schema),
    description="Creates the schemas of new tenants, and brings existing ones to the newest migration.",
)
