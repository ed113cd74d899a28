"""The stores that are not ours. Lineage begins there."""

import dagster as dg

GROUP = "sources"
FROM_OUTSIDE = ["team:data-platform"]

bigquery_deleted_contacts = dg.AssetSpec(
    "bigquery_deleted_contacts",
    group_name=GROUP,
    kinds={"bigquery"},
    owners=FROM_OUTSIDE,
    description="Contacts that customers deleted: BIGQUERY_DELETED_CONTACTS_TABLE, not ours.",
)
dynamodb_devices = dg.AssetSpec(
    "dynamodb_devices",
    group_name=GROUP,
    kinds={"dynamodb"},
    owners=FROM_OUTSIDE,
    description="The devices as the older system keeps them: DYNAMODB_DEVICES_TABLE, not ours.",
)
telemetry_stream = dg.AssetSpec(
    "telemetry_stream",
    group_name=GROUP,
    kinds={"redis"},
    owners=FROM_OUTSIDE,
    description="Positions as trackers send them: the Redis stream REDIS_TELEMETRY_STREAM.",
)
