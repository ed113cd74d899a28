"""The partitions that all per-tenant assets share: one key per registered customer."""

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

# Needed to list an instance's backfills; Dagster does not export them.
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
"""For what creates or drops schemas: too much of it at once would slow the daemons down."""

LIFECYCLE_TAGS = {"dagster/priority": "10", "dagster/max_retries": "3", "dagster/max_runtime": "1800"}
"""For runs that somebody waits for: they come first in the queue, and one whose process died is started again."""


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


def run_keys(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> Sequence[str]:
    """The keys of a run, by its tags: also where the context has none, as a check's."""
    if "dagster/partition" in tags:
        return [tags["dagster/partition"]]
    keys = list(instance.get_dynamic_partitions(PARTITIONS))
    if tags.get(RANGE_START) not in keys or tags.get(RANGE_END) not in keys:
        return []
    return keys[keys.index(tags[RANGE_START]) : keys.index(tags[RANGE_END]) + 1]


def forget_partition(instance: dg.DagsterInstance, customer_id: CustomerId) -> None:
    """Remove a customer's key, if it is there. One that is held stays until the `tenant_registry_sensor` removes it."""
    if str(customer_id) not in held_keys(instance):
        instance.delete_dynamic_partition(PARTITIONS, str(customer_id))


def held_keys(instance: dg.DagsterInstance) -> set[str]:
    """The first and last key of each unfinished run, and all keys of each unfinished backfill.

    Dagster looks a range up by its two ends when the run starts, and again for each result. If one of them is gone by
    then, the run fails for all its tenants. A backfill fails for all its tenants if any of its keys is gone.
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
