"""The stores that the assets are computed from, so that lineage begins there. Dagster does not compute them."""

import dagster as dg

from clientmgr_dagster.partitions import tenants_partitions

GROUP = "sources"

devices = dg.AssetSpec(
    "devices",
    group_name=GROUP,
    kinds={"postgres"},
    partitions_def=tenants_partitions,
    deps=["tenant_schema"],
    description="Each customer's devices, written by the streaming daemons: `tenant_<customerId>.devices`.",
)
bigquery_deleted_contacts = dg.AssetSpec(
    "bigquery_deleted_contacts",
    group_name=GROUP,
    kinds={"bigquery"},
    description="Contacts that customers deleted: BIGQUERY_DELETED_CONTACTS_TABLE, not ours.",
)
dynamodb_devices = dg.AssetSpec(
    "dynamodb_devices",
    group_name=GROUP,
    kinds={"dynamodb"},
    description="The devices as the older system keeps them: DYNAMODB_DEVICES_TABLE, not ours.",
)
