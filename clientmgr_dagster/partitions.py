"""The partitions that all per-tenant assets share: one key per registered customer."""

from collections.abc import Iterable, Sequence

import dagster as dg

# An instance tells of its backfills only in these terms, which Dagster does not export.
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    BulkActionStatus,
    PartitionBackfill,
)

from clientmgr.base.customer_ids import CustomerId

PARTITIONS = "tenants"
tenants_partitions = dg.DynamicPartitionsDefinition(name=PARTITIONS)

DDL_POOL = "tenant_ddl"
"""Whatever creates or drops schemas: the database bears only so much of it beside the daemons' work."""

LIFECYCLE_TAGS = {"dagster/priority": "10", "dagster/max_retries": "3", "dagster/max_runtime": "1800"}
"""Of runs that somebody waits for: they go before whatever else is queued, and one that died is started again."""


UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

UNFINISHED_BACKFILL = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
_NAMES_A_KEY = ("dagster/partition", RANGE_START, RANGE_END)


def partition_range(keys: Sequence[str]) -> dict[str, str]:
    """The tags of one run over neighbouring keys, from the first to the last."""
    return {RANGE_START: keys[0], RANGE_END: keys[-1]}


def forget_partition(instance: dg.DagsterInstance, customer_id: CustomerId) -> None:
    """Remove a customer's key, if it is there. One that is held is left to the `tenant_registry_sensor`."""
    if str(customer_id) not in held_keys(instance):
        instance.delete_dynamic_partition(PARTITIONS, str(customer_id))


def held_keys(instance: dg.DagsterInstance) -> set[str]:
    """Keys that a run which has not ended begins or ends with, and all of a backfill that has not ended.

    Dagster looks a range up by its two ends when the run starts, and again for each result: were one of them gone by
    then, the run would fail for all its tenants. A backfill fails for all of them where any of its keys is gone.
    """
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=UNFINISHED))
    held = {run.tags[tag] for run in runs for tag in _NAMES_A_KEY if tag in run.tags}
    backfills = instance.get_backfills(filters=BulkActionsFilter(statuses=UNFINISHED_BACKFILL))
    return held.union(*map(_keys_of, backfills))


def _keys_of(backfill: PartitionBackfill) -> Iterable[str]:
    if backfill.asset_backfill_data is None:
        return backfill.partition_names or ()
    subsets = backfill.asset_backfill_data.target_subset.partitions_subsets_by_asset_key.values()
    return {key for subset in subsets for key in subset.get_partition_keys()}
