"""The daemons as assets that Dagster does not run but sees: how far behind each is, observed every few minutes."""

import asyncio
from dataclasses import asdict

import dagster as dg

from clientmgr.base.database import Database, Role
from clientmgr.broker.postgres.lag import SubscriptionLag, subscription_lag
from clientmgr.operations.daemon_health import READS, DaemonHealth, judge_all
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.resources import TenantsResource

daemon_assets = [
    dg.AssetSpec(
        ["daemons", daemon.replace("-", "_")],
        group_name="operations",
        kinds={"python", "postgres"},
        description=f"`clientmgr run {daemon}`, which reads {' and '.join(subscriptions)}.",
    )
    for daemon, subscriptions in READS.items()
]


@dg.sensor(
    minimum_interval_seconds=120,
    default_status=SENSORS,
    description="Observes how far behind the daemons are.",
)
def daemon_health_sensor(context: dg.SensorEvaluationContext, tenants: TenantsResource) -> dg.SensorResult:
    late_after_s = tenants.settings.daemon_late_after_s
    daemons = judge_all(asyncio.run(_lags(tenants.database)), late_after_s=late_after_s)
    if late := [daemon.daemon for daemon in daemons if daemon.state == "late"]:
        context.log.warning(f"behind for more than {late_after_s:.0f} s: {', '.join(late)}")
    return dg.SensorResult(asset_events=[observation(daemon) for daemon in daemons])


def observation(health: DaemonHealth) -> dg.AssetObservation:
    seen = {name: value for name, value in asdict(health).items() if name != "daemon"}
    return dg.AssetObservation(["daemons", health.daemon.replace("-", "_")], metadata=seen)


async def _lags(database: Database) -> list[SubscriptionLag]:
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        return await subscription_lag(connection, at_most=100_000)
