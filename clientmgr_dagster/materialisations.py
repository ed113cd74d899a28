"""Which tenants of a run get a materialisation, and how those are written: in batches, through Dagster's own log.

Everything that depends on Dagster's internals for this is here. Its public `context.log_event` writes one event at a
time, 20 ms each; what an asset yields is written in batches, but stands for every partition of the run.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import dagster as dg

# What Dagster itself writes a yielded asset's partitions with; it does not export them.
from dagster._core.events import (
    AssetMaterializationPlannedData,
    DagsterEventBatchMetadata,
    StepMaterializationData,
    log_step_event,
)

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.portions import portions

OwnNumbers = Mapping[str, int | str]

SCHEDULE_TAG: Final = "dagster/schedule_name"
PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Last:
    """A tenant's newest materialisation."""

    at: datetime
    numbers: OwnNumbers
    failed_since: bool = False
    """Whether an attempt after it failed: the partition is shown as failed until it is materialised again."""


def worth_an_event(
    numbers: Mapping[CustomerId, OwnNumbers],
    last: Mapping[CustomerId, Last],
    *,
    work: Collection[str],
) -> set[CustomerId]:
    """The rule for scheduled runs: who of these tenants is materialised. For the others nothing changed.

    A tenant is if it never was, if the run did something for it (a number in `work` is not 0), if its other numbers are
    not those of its newest materialisation, or if it failed since. Where nobody is, the one with the oldest is: by it
    Dagster sees that the schedule works, and that an asset of which nothing changes is fresh.
    """
    changed = {
        customer
        for customer, own in numbers.items()
        if customer not in last
        or last[customer].failed_since
        or any(own.get(name) for name in work)
        or _without(last[customer].numbers, work) != _without(own, work)
    }
    return changed or set(sorted(numbers, key=lambda one: last[one].at)[:1])


def _without(numbers: OwnNumbers, names: Collection[str]) -> OwnNumbers:
    return {name: value for name, value in numbers.items() if name not in names}


def materialise(
    context: dg.AssetExecutionContext,
    asset_key: dg.AssetKey,
    numbers: Mapping[CustomerId, OwnNumbers],
    *,
    work: Collection[str] = (),
) -> None:
    """Record that these tenants' partitions are materialised.

    A run that a person launched, or a message, materialises all of them. A scheduled one goes by `worth_an_event`.
    """
    chosen: Collection[CustomerId] = numbers
    if leaves_out_unchanged(context):
        last = _last_of(context.instance, asset_key, numbers)
        chosen = worth_an_event(numbers, last, work=work)
    _write(
        context,
        [
            dg.AssetMaterialization(asset_key, partition=str(customer), metadata=dict(own))
            for customer, own in numbers.items()
            if customer in chosen
        ],
    )


def leaves_out_unchanged(context: dg.AssetExecutionContext) -> bool:
    """Only where Dagster plans a run as a whole (`DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS`).

    Where it plans each partition, those that a failed run did not materialise are shown as failed.
    """
    storage = context.instance.event_log_storage
    return SCHEDULE_TAG in context.run.tags and bool(
        storage.supports_partition_subset_in_asset_materialization_planned_events
    )


def mark_failed(context: dg.AssetExecutionContext, asset_key: dg.AssetKey, customers: Iterable[CustomerId]) -> None:
    """Show these tenants' partitions as failed once the run has failed, and no others of the run.

    Dagster shows a partition as failed if a run that failed had planned it and did not materialise it.
    """
    step_key = context.get_step_execution_context().step.key
    for customer in customers:
        planned = AssetMaterializationPlannedData(asset_key, partition=str(customer))
        event = dg.DagsterEvent.build_asset_materialization_planned_event(context.run.job_name, step_key, planned)
        context.instance.report_dagster_event(event, run_id=context.run.run_id)


def _write(context: dg.AssetExecutionContext, materialisations: Sequence[dg.AssetMaterialization]) -> None:
    """As `context.log_event` does, but as one batch, which is stored at once where DAGSTER_EVENT_BATCH_SIZE is set.

    And without `logging_tags`, which say again in each event what its run is: a tenth of its size.
    """
    step = context.get_step_execution_context()
    batch = str(uuid.uuid4())
    for number, one in enumerate(materialisations, start=1):
        event = dg.DagsterEvent(
            dg.DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name=step.job_name,
            step_handle=step.step.handle,
            node_handle=step.step.node_handle,
            step_kind_value=step.step.kind.value,
            event_specific_data=StepMaterializationData(one),
            message=f"Materialized value {one.label}.",
        )
        log_step_event(step, event, DagsterEventBatchMetadata(batch, number == len(materialisations)))
        # Beside the log, the step's own list of what happened: what executes it in this process returns that.
        context.op_execution_context._events.append(event)


def _last_of(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, customers: Collection[CustomerId]
) -> dict[CustomerId, Last]:
    """What Dagster's log says: a table of our own would be a second truth."""
    storage = instance.event_log_storage
    found: dict[CustomerId, Last] = {}
    for page in portions(list(customers), PAGE):
        keys = {str(customer) for customer in page}
        done = storage.get_latest_storage_id_by_partition(
            asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=keys
        )
        if not done:
            continue
        planned = storage.get_latest_storage_id_by_partition(
            asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, partitions=keys
        )
        wanted = dg.AssetRecordsFilter(asset_key=asset_key, storage_ids=list(done.values()))
        for record in instance.fetch_materializations(wanted, limit=len(done)).records:
            one = record.asset_materialization
            if one is not None and one.partition is not None:
                found[CustomerId(int(one.partition))] = Last(
                    datetime.fromtimestamp(record.timestamp, UTC),
                    {name: value.value for name, value in one.metadata.items()},  # type: ignore[misc]  # ours
                    planned.get(one.partition, 0) > record.storage_id,
                )
    return found
