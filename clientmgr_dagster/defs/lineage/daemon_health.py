"""Looks at the daemons every minute: an event for each whose state changed, and every few minutes for all.

A daemon that gets on, or has nothing to do, is materialised: that is what its freshness goes by. One that leaves its
work undone is only observed, so it grows stale, and its check fails.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import dagster as dg
import msgspec

from clientmgr.base.database import Role
from clientmgr.base.settings import Settings
from clientmgr.broker.postgres.lag import SubscriptionLag, subscription_lag
from clientmgr.operations.daemon_health import READS, judge_all
from clientmgr.operations.service_health import readers_of_positions
from clientmgr.operations.store_progress import StoreProgress, store_progress
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.defs.lineage.daemons import daemon_assets, daemon_key, observed_processes
from clientmgr_dagster.defs.lineage.stores import erasure_sweeps, live_positions
from clientmgr_dagster.resources import TenantsResource

LOOK_EVERY_S = 60
REPORT_EVERY_S = 300
"""A daemon that is as it was gets an event this often."""
COUNT_AT_MOST = 100_000
"""Per partition of a topic: counting stops there."""

GETS_ON = "gets_on"
gets_on_specs = [
    dg.AssetCheckSpec(GETS_ON, asset=spec.key, description="It reads on while something is unread.")
    for spec in daemon_assets
]

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


class LastLook(msgspec.Struct, frozen=True):
    """The sensor's cursor."""

    positions: dict[str, int] = {}
    """How far each reader of messages was."""
    well: dict[str, bool] = {}
    positions_written: int = -1
    sweep: int = 0
    reported_at: float = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of one daemon."""

    daemon: str
    is_well: bool
    """As far as a single look can tell."""
    position: int | None
    """Of a reader of messages: it grows with every message that is done."""
    numbers: Mapping[str, int | float | str]


@dg.sensor(
    minimum_interval_seconds=LOOK_EVERY_S,
    default_status=SENSORS,
    description="Observes whether the daemons get on, and what they wrote.",
)
def daemon_health_sensor(context: dg.SensorEvaluationContext, tenants: TenantsResource) -> dg.SensorResult:
    last = msgspec.json.decode(context.cursor, type=LastLook) if context.cursor else LastLook()
    looks = asyncio.run(look_at_daemons(tenants))
    well = {look.daemon: gets_on(look, last) for look in looks}
    if stuck := [daemon for daemon, is_well in well.items() if not is_well]:
        context.log.warning(f"these do not get on: {', '.join(stuck)}")
    with tenants.database.connect(Role.READER) as connection:
        stores = store_progress(connection)
    is_due = time.time() - last.reported_at >= REPORT_EVERY_S
    now = LastLook(
        {look.daemon: look.position for look in looks if look.position is not None},
        well,
        stores.positions_written,
        stores.sweep,
        time.time() if is_due else last.reported_at,
    )
    told = [look for look in looks if is_due or last.well.get(look.daemon) != well[look.daemon]]
    return dg.SensorResult(
        asset_events=[*_of_daemons(told, now, last), *_of_stores(stores, last)],
        cursor=msgspec.json.encode(now).decode(),
    )


@dg.multi_asset_check(specs=gets_on_specs, description="The daemons, looked at now.")
def daemons_get_on(tenants: TenantsResource) -> Iterator[dg.AssetCheckResult]:
    """The sensor evaluates the same checks by itself. This is for whoever wants to know at once."""
    for look in asyncio.run(look_at_daemons(tenants)):
        yield dg.AssetCheckResult(
            asset_key=daemon_key(look.daemon), check_name=GETS_ON, passed=look.is_well, metadata=dict(look.numbers)
        )


def gets_on(look: Look, last: LastLook) -> bool:
    """Behind is not stuck: a daemon that works off a long queue gets on."""
    before = last.positions.get(look.daemon)
    return look.is_well or (look.position is not None and before is not None and look.position > before)


async def look_at_daemons(tenants: TenantsResource) -> list[Look]:
    async with await tenants.database.connect_async(Role.READER, autocommit=True) as connection:
        lags = await subscription_lag(connection, at_most=COUNT_AT_MOST)
    return [*_readers_of_messages(lags, tenants.settings), *await _readers_of_positions(tenants.settings)]


def _readers_of_messages(lags: list[SubscriptionLag], settings: Settings) -> Iterator[Look]:
    positions = {lag.subscription: sum(one.next_offset for one in lag.partitions) for lag in lags}
    for health in judge_all(lags, late_after_s=settings.daemon_late_after_s):
        numbers = {name: value for name, value in asdict(health).items() if name != "daemon"}
        read = [positions[name] for name in READS[health.daemon] if name in positions]
        yield Look(health.daemon, health.state == "keeps up", sum(read) if read else None, numbers)


async def _readers_of_positions(settings: Settings) -> list[Look]:
    if not settings.redis_url:
        names = [process.name for entry, process in observed_processes() if entry.streams]
        return [Look(name, True, None, {"state": "not used", "detail": "REDIS_URL is not set"}) for name in names]
    states = await readers_of_positions(settings)
    return [Look(one.name, one.is_well, None, {"state": one.state, "detail": one.detail}) for one in states]


def _of_daemons(looks: list[Look], now: LastLook, last: LastLook) -> Iterator[Event]:
    for look in looks:
        event = dg.AssetMaterialization if now.well[look.daemon] else dg.AssetObservation
        yield event(daemon_key(look.daemon), metadata=dict(look.numbers))
        if last.well.get(look.daemon) != now.well[look.daemon]:
            yield dg.AssetCheckEvaluation(
                asset_key=daemon_key(look.daemon),
                check_name=GETS_ON,
                passed=now.well[look.daemon],
                metadata={name: dg.MetadataValue.text(str(value)) for name, value in look.numbers.items()},
            )


def _of_stores(stores: StoreProgress, last: LastLook) -> Iterator[Event]:
    if stores.positions_written not in (last.positions_written, 0):
        # A counter of PostgreSQL's, which begins anew after a crash.
        written = stores.positions_written - max(last.positions_written, 0)
        yield dg.AssetMaterialization(
            live_positions.key, metadata={"positions": written if written > 0 else stores.positions_written}
        )
    if stores.sweep > last.sweep and stores.sweep_began is not None:
        yield dg.AssetMaterialization(
            erasure_sweeps.key,
            metadata={
                "erased_what_was_deleted_before": dg.MetadataValue.timestamp(stores.sweep_began),
                "found": stores.sweep_found,
            },
        )
