"""Our Dagster instance (`instance_class` in dagster.yaml): a backfill targets everything that was selected for it.

Dagster finds the targets of a backfill by walking from the first of the selected assets to their children, and from
those to theirs, as long as they are selected too. Where something between two selected assets is not selected, the walk
never gets to the later one, and Dagster leaves it out without a word: `orphan_candidates` selected with
`tenant_schema`, for one, because `devices` stands between them and Dagster does not compute it.
Every launch of a backfill ends in `add_backfill`, whichever page, script or sensor it comes from. So it is mended here.
"""

from collections.abc import Mapping
from typing import Any

from dagster import DagsterInstance, DagsterInvalidInvocationError

# Dagster does not export what a backfill is made of.
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.instance.ref import InstanceRef


class Instance(DagsterInstance):
    """Dagster's own, but for what a new backfill targets."""

    def add_backfill(self, partition_backfill: PartitionBackfill) -> None:
        super().add_backfill(with_all_selected(partition_backfill))

    @classmethod
    def config_schema(cls) -> Mapping[str, Any]:
        """Dagster asks every class that dagster.yaml names. This one takes no options, and changes no default."""
        return {}

    @classmethod
    def config_defaults(cls, base_dir: str) -> Mapping[str, Any]:
        return InstanceRef.config_defaults(base_dir)


def with_all_selected(backfill: PartitionBackfill) -> PartitionBackfill:
    """The same backfill, targeting every selected asset. One that can't be completed is refused, with the reason."""
    data = backfill.asset_backfill_data
    if data is None:
        # A job's, by its partitions. There is nothing to select.
        return backfill
    left_out = set(backfill.asset_selection or ()) - data.target_subset.asset_keys
    if not left_out:
        return backfill
    targets = data.target_subset.partitions_subsets_by_asset_key
    first, *others = targets.values()
    if any(other != first for other in others):
        names = ", ".join(sorted(key.to_user_string() for key in left_out))
        raise DagsterInvalidInvocationError(
            f"This backfill would leave out {names}: something between the selected assets is not selected, and their "
            "partitions differ. Nothing was launched. Launch what would be left out in a backfill of its own."
        )
    whole = data.target_subset._replace(partitions_subsets_by_asset_key={**targets, **dict.fromkeys(left_out, first)})
    return backfill._replace(asset_backfill_data=data._replace(target_subset=whole))
