"""The daemons as assets that Dagster does not run but sees: how far behind each is, observed every few minutes."""

import asyncio
from collections.abc import Mapping, Sequence

import dagster as dg

from clientmgr.broker.postgres.lag import SubscriptionLag, subscription_lag
from clientmgr.database import Database, Role
from clientmgr.devices import topics
from clientmgr_dagster.resources import TenantsResource

READS: Mapping[str, tuple[str, ...]] = {
    "writer": (topics.WRITER,),
    "republisher": (topics.REPUBLISHER,),
    "push-token-status": (topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS),
    "contact-deletion": (topics.CONTACT_DELETION,),
    "device-mapper-batch": (topics.device_mapper_subscription("batch", "dg00"),),
    "device-mapper-tx": (topics.device_mapper_subscription("tx", "dg00"),),
}
"""The subscriptions of each daemon that reads messages. (Those of the live positions read a Redis stream.)"""

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
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Observes how far behind the daemons are.",
)
def daemon_health_sensor(context: dg.SensorEvaluationContext, tenants: TenantsResource) -> dg.SensorResult:
    lags = asyncio.run(_lags(tenants.database))
    late_after_s = tenants.settings.daemon_late_after_s
    observations = [
        observe(daemon, [lags[name] for name in subscriptions if name in lags], late_after_s=late_after_s)
        for daemon, subscriptions in READS.items()
    ]
    late = [
        observation.asset_key.path[-1] for observation in observations if observation.metadata["state"].value == "late"
    ]
    if late:
        context.log.warning(f"behind for more than {late_after_s:.0f} s: {', '.join(late)}")
    return dg.SensorResult(asset_events=observations)


def observe(daemon: str, lags: Sequence[SubscriptionLag], *, late_after_s: float) -> dg.AssetObservation:
    """What is to be seen of one daemon: it is judged by what it leaves unread, wherever and however often it runs."""
    seconds = max((lag.seconds() for lag in lags), default=0.0)
    state = "never started" if not lags else "late" if seconds > late_after_s else "keeps up"
    return dg.AssetObservation(
        ["daemons", daemon.replace("-", "_")],
        metadata={
            "state": state,
            "unread": sum(lag.messages for lag in lags),
            "oldest_unread_s": round(seconds, 1),
            "waiting_retries": sum(lag.waiting for lag in lags),
            "dead_letters": sum(lag.dead for lag in lags),
        },
    )


async def _lags(database: Database) -> dict[str, SubscriptionLag]:
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        return {lag.subscription: lag for lag in await subscription_lag(connection, at_most=100_000)}
