"""The stores that are not ours. Lineage begins there."""

import dagster as dg

GROUP = "sources"


def _from_outside(name: str, kind: str, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        name, group_name=GROUP, kinds={kind}, owners=["team:data-platform"], description=f"{description}, not ours."
    )


bigquery_deleted_contacts = _from_outside(
    "bigquery_deleted_contacts", "bigquery", "Contacts that customers deleted: BIGQUERY_DELETED_CONTACTS_TABLE"
)
dynamodb_devices = _from_outside(
    "dynamodb_devices", "dynamodb", "The devices as the older system keeps them: DYNAMODB_DEVICES_TABLE"
)
telemetry_stream = _from_outside(
    "telemetry_stream", "redis", "Positions as trackers send them: the Redis stream REDIS_TELEMETRY_STREAM"
)
