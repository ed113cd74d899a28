"""The tables that daemons write, and the proof that what was deleted is gone: the audit log and the erasure sweeps."""

import dagster as dg

from clientmgr_dagster.catalogue import TABLE, computed_by, tenants_table
from clientmgr_dagster.defs.lineage.daemons import writers_of
from clientmgr_dagster.partitions import tenants_partitions
from clientmgr_dagster.policies import SWEEP_FRESHNESS

GROUP = "stores"

devices = dg.AssetSpec(
    "devices",
    group_name=GROUP,
    kinds={"postgres"},
    partitions_def=tenants_partitions,
    deps=["tenant_schema", "legacy_import", "device_files", *writers_of("devices")],
    metadata={TABLE: tenants_table("devices"), **computed_by("clientmgr.devices.store")},
    description="Each customer's devices, as the daemons write and delete them. Materialised when some were deleted.",
)
audit_log = dg.AssetSpec(
    "audit_log",
    group_name=GROUP,
    kinds={"postgres"},
    partitions_def=tenants_partitions,
    # A deletion is audited in the transaction that deletes, whether a daemon does it or the nightly job.
    deps=[devices, "orphan_deletions"],
    metadata={TABLE: "clientmgr.audit_log", **computed_by("clientmgr.audit.log")},
    description="Each customer's chain of the audit log. Materialised when deletions were added to it.",
)
erasure_sweeps = dg.AssetSpec(
    "erasure_sweeps",
    group_name=GROUP,
    kinds={"postgres"},
    deps=[devices],
    freshness_policy=SWEEP_FRESHNESS,
    metadata={TABLE: "clientmgr.erasure_sweeps", **computed_by("clientmgr.erasure.sweep")},
    description="Finished sweeps: what was deleted before one began is nowhere in our tables, but as a keyed hash.",
)
live_positions = dg.AssetSpec(
    "live_positions",
    group_name=GROUP,
    kinds={"postgres"},
    deps=writers_of("live_positions"),
    metadata={TABLE: "live.positions", **computed_by("streaming.live.telemetry.writer")},
    description="Where every tracked device has been.",
)
