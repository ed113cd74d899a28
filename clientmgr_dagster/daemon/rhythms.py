"""How often the daemon evaluates each of our sensors: after news that concern it, and seldom without any.

Dagster's own daemon, which `dagster dev` runs in a checkout, goes by each sensor's minimum interval alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dagster._core.remote_representation.external import RemoteSensor
from dagster._core.scheduler.instigation import InstigatorState, SensorInstigatorData
from dagster._daemon.sensor import is_under_min_interval

from clientmgr.contracts.topics import ACCOUNT_DELETION, ACTIVATE_CUSTOMER, CONTACT_DELETION
from clientmgr_dagster.daemon.news import LEGACY_MIGRATIONS, PARTITIONS, REGISTRY, RUNS, News


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a sensor is evaluated."""

    after: tuple[str, ...] = ()
    """The kinds of news that it acts on."""
    lingers_s: float = 0.0
    """News may be told before all is done that it is about: so long it is evaluated at its minimum interval."""
    at_most_every_s: float = 0.0
    """Where news come in crowds. Besides, its own minimum interval counts."""
    at_least_every_s: float = 600.0
    """Without any news: a notification may have been lost, and some things change without one."""
    reads_on: bool = False
    """It takes a part of what is there, and its cursor says how far it is: while that moves, there may be more."""
    watches_runs: bool = False
    """It is evaluated at its minimum interval as long as a run has not ended."""


RHYTHMS: Final = {
    "customer_activation_sensor": Rhythm((ACTIVATE_CUSTOMER,), reads_on=True),
    "account_deletion_sensor": Rhythm((ACCOUNT_DELETION,), reads_on=True),
    # A run holds the partitions that it works on: they go when it has ended.
    "tenant_registry_sensor": Rhythm((REGISTRY, PARTITIONS, RUNS), at_most_every_s=4.0),
    # What was left half-way is repaired after a while (TENANT_RECONCILE_GRACE_S). A schema may go without a word.
    "tenant_drift_sensor": Rhythm((REGISTRY, RUNS), lingers_s=300.0, at_least_every_s=300.0),
    "legacy_migration_sensor": Rhythm((LEGACY_MIGRATIONS, PARTITIONS)),
    # A run's last event and its status are not written together.
    "run_failure_sensor": Rhythm((RUNS,), lingers_s=60.0, reads_on=True),
    "lost_start_sensor": Rhythm((RUNS,), watches_runs=True),
    "daemon_health_sensor": Rhythm(at_least_every_s=120.0),
    # Contacts are deleted after the message that asks for it, devices by runs and by messages of their own.
    "deletion_lineage_sensor": Rhythm((CONTACT_DELETION, RUNS), lingers_s=120.0, at_least_every_s=300.0),
}
"""By sensor. One that is not here has Dagster's rhythm."""


class Gate:
    """Stands where Dagster asks whether a sensor's minimum interval is over: not for one that has nothing to do."""

    def __init__(
        self, news: News, runs_are_under_way: Callable[[], bool], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._news = news
        self._runs_are_under_way = runs_are_under_way
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def rests(self, state: InstigatorState, sensor: RemoteSensor, *dagster_s: Any) -> bool:
        """Dagster asks it twice: before it puts an evaluation into its queue, and when that begins."""
        rhythm, data = RHYTHMS.get(sensor.name), state.instigator_data
        if rhythm is None or not isinstance(data, SensorInstigatorData):
            return is_under_min_interval(state, sensor, *dagster_s)
        has_moved = self._has_moved(sensor.name, data)
        if is_under_min_interval(state, sensor, *dagster_s):
            return True
        began = data.last_tick_start_timestamp
        if not began or not data.last_tick_success_timestamp or self._clock() - began >= rhythm.at_least_every_s:
            return False  # never evaluated, failed, or long ago
        if self._clock() - began < rhythm.at_most_every_s:
            return True
        if self._news.last(rhythm.after) + rhythm.lingers_s >= began or (rhythm.reads_on and has_moved):
            return False
        return not (rhythm.watches_runs and self._runs_are_under_way())

    def _has_moved(self, sensor: str, data: SensorInstigatorData) -> bool:
        """Whether its newest evaluation has moved its cursor."""
        before = self._seen.get(sensor)
        has_moved = before is not None and (
            data.cursor != before.cursor or (data.last_tick_start_timestamp == before.began and before.has_moved)
        )
        self._seen[sensor] = _Seen(data.last_tick_start_timestamp, data.cursor, has_moved)
        return has_moved


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of a sensor, at Dagster's last question."""

    began: float | None
    cursor: str | None
    has_moved: bool
