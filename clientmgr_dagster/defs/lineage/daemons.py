"""The daemons as assets, one for each process of the registry (clientmgr/contracts/daemons.py) that makes data.

What each reads, looks up and writes is its entry's matter: a new daemon appears by itself. Those that read what an
asset per tenant publishes have a partition per tenant: the chain does not end there.
"""

from collections.abc import Iterator
from typing import Final

import dagster as dg

from clientmgr.contracts import daemons, topics
from clientmgr.contracts.daemon_entry import DaemonEntry, Process
from clientmgr_dagster.catalogue import computed_by
from clientmgr_dagster.defs.lineage.sources import telemetry_stream
from clientmgr_dagster.partitions import tenants_partitions
from clientmgr_dagster.policies import DAEMON_FRESHNESS

GROUP = "daemons"

PUBLISHED_BY: Final = {topics.CONTACT_DELETION: "contact_deletion_messages"}
"""Topics that an asset per tenant publishes to."""


def observed_processes() -> Iterator[tuple[DaemonEntry, Process]]:
    """Those whose progress can be seen from outside. Dashboard, gateway and intake serve others."""
    for entry in daemons.ALL:
        if entry.starts == "always" and (entry.streams or entry.judged_by == "unread messages"):
            yield from ((entry, process) for process in entry.processes)


def daemon_key(process: str) -> dg.AssetKey:
    return dg.AssetKey(["daemons", process.replace("-", "_")])


def writers_of(table: str) -> list[dg.AssetKey]:
    """The daemons that write a table, by the name of its asset."""
    return [daemon_key(process.name) for entry, process in observed_processes() if table in entry.writes]


def _spec(entry: DaemonEntry, process: Process, earlier: list[Process]) -> dg.AssetSpec:
    read = {subscription.topic for subscription in process.reads}
    # Only those that stand earlier in the registry: daemons may well publish to each other, and lineage has no circles.
    feeding = [daemon_key(one.name) for one in earlier if not read.isdisjoint(one.publishes)]
    assets = [PUBLISHED_BY[topic] for topic in sorted(read) if topic in PUBLISHED_BY]
    streams = [telemetry_stream.key] if entry.streams else []
    what = " and ".join(f"`{one.name}`" for one in process.reads) or "the telemetry stream"
    return dg.AssetSpec(
        daemon_key(process.name),
        deps=[*assets, *feeding, *streams, *entry.looks_up],
        group_name=GROUP,
        kinds={"python", "redis" if entry.streams else "postgres"},
        partitions_def=tenants_partitions if assets else None,
        freshness_policy=DAEMON_FRESHNESS,
        metadata=computed_by(*entry.code),
        # Not `capitalize`: it would make small letters of all others, of names too.
        description=f"{entry.does[0].upper()}{entry.does[1:]}. `clientmgr {' '.join(process.arguments)}` reads {what}.",
    )


def _specs() -> list[dg.AssetSpec]:
    specs: list[dg.AssetSpec] = []
    earlier: list[Process] = []
    for entry, process in observed_processes():
        specs.append(_spec(entry, process, earlier))
        earlier.append(process)
    return specs


daemon_assets = _specs()
