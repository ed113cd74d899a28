"""The partitions that all per-tenant assets share: one key per registered customer."""

from collections.abc import Sequence

import dagster as dg

from clientmgr.tenants.names import CustomerId

PARTITIONS = "tenants"
tenants_partitions = dg.DynamicPartitionsDefinition(name=PARTITIONS)

DDL_POOL = "tenant_ddl"
"""Whatever creates or drops schemas: the database bears only so much of it beside the daemons' work."""

LIFECYCLE_TAGS = {"dagster/priority": "10", "dagster/max_retries": "3", "dagster/max_runtime": "1800"}
"""Of runs that somebody waits for: they go before whatever else is queued, and one that died is started again."""


def partition_range(keys: Sequence[str]) -> dict[str, str]:
    """The tags of one run over neighbouring keys, from the first to the last."""
    return {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}


def forget_partition(instance: dg.DagsterInstance, customer_id: CustomerId) -> None:
    """Remove a customer's key, if it is there."""
    instance.delete_dynamic_partition(PARTITIONS, str(customer_id))
