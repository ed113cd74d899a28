"""What breaks first, of one database on one server: each limit with the number of tenants that reaches it. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scaling.measured import Measured
from bench.scaling.model import DAY_S, GB, HOUR_S, STEPS, TB, Assumed, Costs, Growth, consumers_of_a_writer


@dataclass(frozen=True)
class Limit:
    """Something that ends, and where."""

    what: str
    tenants: float
    """At how many tenants, with 10,000 devices each, in one database on one server; infinite: tenants do not matter."""
    then: str


def limits(costs: Costs, measured: Measured, assumed: Assumed) -> Sequence[Limit]:
    """What breaks first, of one database on one server, the first one first."""
    devices_each = STEPS[0].devices / STEPS[0].tenants
    events_each = devices_each * assumed.events_a_device_day / DAY_S * assumed.peak_factor
    largest = measured.sizes[-1]
    backends = consumers_of_a_writer()

    found = [
        Limit(
            f"pg_dump needs more locks than PostgreSQL's default table of {64 * 100:,} has",
            until(costs.dump_locks, 64 * 100),
            "raise max_locks_per_transaction, or take physical backups, which need no locks",
        ),
        Limit(
            f"pg_dump needs more than the {largest.lock_table:,} locks of the embedded server",
            until(costs.dump_locks, largest.lock_table),
            "physical backups",
        ),
        Limit(
            "a whole dump takes an hour",
            until(costs.dump_s, HOUR_S),
            "physical backups; dump single tenants",
        ),
        Limit(
            "the start after a crash takes 5 minutes",
            until(costs.crash_start_s, 300),
            "recovery_init_sync_method = syncfs; a standby to fail over to; fewer tenants a server",
        ),
        Limit(
            "autovacuum looks at the database for longer than its 60 s between looks",
            until(costs.look_s, 60),
            "fewer tenants a server",
        ),
        Limit(
            f"one writer's {backends} backends hold 16 GB",
            until(costs.writer_bytes, 16 * GB / backends),
            "shorter-lived connections; writers that keep to some partitions; fewer tenants a server",
        ),
        Limit(
            f"the disk of {assumed.node_disk_bytes / TB:.0f} TB is full",
            assumed.node_disk_bytes / assumed.bloat / (costs.tenant_bytes.each + devices_each * costs.device_bytes),
            "several nodes",
        ),
        Limit(
            f"half of the server's {assumed.node_cores} cores are busy with events",
            assumed.node_cores * assumed.busy * costs.events_a_core_second / costs.server_share / events_each,
            "several nodes",
        ),
        Limit(
            f"the log takes {assumed.log_events_a_second:,.0f} events a second",
            assumed.log_events_a_second / events_each,
            "BROKER=pubsub; then several installations",
        ),
        Limit(
            f"Pub/Sub takes {assumed.pubsub_bytes_a_second / 1e6:,.0f} MB a second, documented as a large region's",
            assumed.pubsub_bytes_a_second / assumed.event_bytes / events_each,
            "have Google raise the quota; several installations in several projects",
        ),
        Limit(
            f"the nightly jobs take {assumed.night_hours:.0f} hours on the two cores that measured",
            until(
                Growth(costs.nightly_s.constant, costs.nightly_s.each + devices_each * costs.count_s_a_device * 2),
                assumed.night_hours * HOUR_S,
            ),
            "more of Spark's cores, and nodes that count at once",
        ),
        Limit(
            "Dagster takes 2 s to list the partitions",
            until(costs.list_s, 2),
            "several installations",
        ),
    ]
    return sorted(found, key=lambda one: one.tenants)


def until(growth: Growth, value: float) -> float:
    """Where the line reaches it; never: infinite."""
    return max((value - growth.constant) / growth.each, 0.0) if growth.each > 0 else math.inf
