"""Events of partitions that no run materialised, many in one write."""

import uuid
from collections.abc import Sequence

import dagster as dg

# What `report_runless_asset_event` is made of: it takes one event at a time, which is a dozen statements each.
from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata, DagsterEventType, StepMaterializationData
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID


def report_materializations(instance: dg.DagsterInstance, events: Sequence[dg.AssetMaterialization]) -> None:
    """All of one asset: of each write Dagster notes the last one's as the asset's newest.

    They are written in batches where DAGSTER_EVENT_BATCH_SIZE says so.
    """
    batch = str(uuid.uuid4())
    for position, event in enumerate(events, start=1):
        instance.report_dagster_event(
            DagsterEvent(
                event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
                event_specific_data=StepMaterializationData(event),
                job_name=RUNLESS_JOB_NAME,
            ),
            run_id=RUNLESS_RUN_ID,
            batch_metadata=DagsterEventBatchMetadata(batch, is_end=position == len(events)),
        )
