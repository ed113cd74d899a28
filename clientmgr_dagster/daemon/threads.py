"""Dagster's daemons, a thread each, held back until news say that there is something to do, or for a long time.

Dagster has no setting for it. When a thread looks is ours; what a look does is Dagster's.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagster import DagsterInstance, RunsFilter
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, BulkActionStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._daemon import sensor as sensor_evaluations
from dagster._daemon.auto_run_reexecution.event_log_consumer import EventLogConsumerDaemon
from dagster._daemon.controller import create_daemons_from_instance
from dagster._daemon.daemon import BackfillDaemon, DagsterDaemon, IntervalDaemon, MonitoringDaemon, SensorDaemon
from dagster._daemon.freshness import FreshnessDaemon
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from clientmgr_dagster.daemon.news import BACKFILLS, RUNS, News
from clientmgr_dagster.daemon.rhythms import Gate

AT_LEAST_EVERY_S: Final = 600.0
"""Without any news: a notification may have been lost."""
SENSORS_AT_LEAST_EVERY_S: Final = 60.0
"""Some sensors are due without news. A look that finds none is one statement."""
SENSORS_LINGER_S: Final = 30.0
"""After any news Dagster goes on to look for due sensors for so long."""
SENSORS_AFTER_NEWS_EVERY_S: Final = 2.0
"""Not every 5 s, as Dagster does: news may come while the sensor is being evaluated."""
FRESHNESS_EVERY_S: Final = 300.0
"""Nothing is late before a quarter of an hour is over (clientmgr_dagster/policies.py)."""
RETRIES_LINGER_S: Final = 60.0
"""A run's last event and its status are not written together."""
MONITORING_LINGERS_S: Final = 180.0
"""It frees what an ended run holds, a minute after its end (`free_slots_after_run_end_seconds`)."""
PACE_S: Final = 0.25
"""How often a thread looks in memory for news."""


class Unfinished:
    """Whether something has not come to its end. Asked once after each change."""

    def __init__(self, news: News, kind: str, ask: Callable[[], bool]) -> None:
        self._news = news
        self._kind = kind
        self._ask = ask
        self._asked_at = 0.0
        self._answer = True

    def __call__(self) -> bool:
        if self._news.last([self._kind]) >= self._asked_at:
            asked_at = time.time()
            self._answer = self._ask()
            self._asked_at = asked_at
        return self._answer


class Looks:
    """When a thread looks: after news, every `every_s` while they linger or work goes on, and after a long time."""

    def __init__(
        self, news: News, kind: str, *, every_s: float, goes_on: Callable[[], bool], lingers_s: float = 0.0
    ) -> None:
        self._news = news
        self._kind = kind
        self._every_s = every_s
        self._goes_on = goes_on
        self._lingers_s = lingers_s
        self._began = 0.0

    def is_due(self) -> bool:
        """If so, a look begins now."""
        due = self._is_due(time.time() - self._began)
        if due:
            self._began = time.time()
        return due

    def _is_due(self, since_s: float) -> bool:
        last = self._news.last([self._kind])
        if since_s >= AT_LEAST_EVERY_S or (self._news.is_listening and last >= self._began):
            return True
        return since_s >= self._every_s and (last + self._lingers_s > self._began or self._goes_on())


@dataclass(frozen=True, slots=True)
class Waking:
    """What ends a wait between two looks."""

    news: News
    last: Callable[[], float]
    """When there was news for the last time."""
    pause_s: Callable[[float], float]
    """How long to wait without any, given how long Dagster would."""


class Alarm(threading.Event):
    """Stands for the daemon's end, on which Dagster's loops wait between two looks: it also ends a wait for news."""

    def __init__(self, stop: threading.Event, waking: Waking) -> None:
        super().__init__()
        self._stop = stop
        self._waking = waking
        self._looked_at = time.time()

    def wait(self, timeout: float | None = None) -> bool:
        end = time.time() + self._waking.pause_s(timeout or 0.0)
        while (left_s := end - time.time()) > 0 and not self._has_news():
            if self._stop.wait(min(left_s, PACE_S)):
                return True
        self._looked_at = time.time()
        return self._stop.is_set()

    def _has_news(self) -> bool:
        return self._waking.news.is_listening and self._waking.last() >= self._looked_at


def resting_daemons(instance: DagsterInstance, news: News) -> Sequence[DagsterDaemon[Any]]:
    """Dagster's, as it makes them for this instance."""
    runs = Unfinished(news, RUNS, lambda: _has_runs(instance))
    backfills = Unfinished(news, BACKFILLS, lambda: _has_backfills(instance))
    # Dagster's loop asks for it by this name, and hands nothing in.
    sensor_evaluations.is_under_min_interval = Gate(news, runs).rests  # type: ignore[assignment]
    daemons = create_daemons_from_instance(instance)
    for daemon in daemons:
        match daemon:
            case SensorDaemon():
                _wake(daemon, Waking(news, news.last_of_all, _until_a_sensor_is_due(news)))
            case BackfillDaemon():
                until_due = _until_a_backfill_is_due(backfills)
                _wake(daemon, Waking(news, lambda: news.last([BACKFILLS]), until_due))
            case QueuedRunCoordinatorDaemon():
                _hold_back(daemon, Looks(news, RUNS, every_s=daemon.interval_seconds, goes_on=runs))
                daemon.interval_seconds = 2 * PACE_S  # a run is taken from the queue as soon as it is there
            case MonitoringDaemon():
                every_s = daemon.interval_seconds
                _hold_back(daemon, Looks(news, RUNS, every_s=every_s, goes_on=runs, lingers_s=MONITORING_LINGERS_S))
            case EventLogConsumerDaemon():
                every_s = daemon.interval_seconds
                _hold_back(daemon, Looks(news, RUNS, every_s=every_s, goes_on=runs, lingers_s=RETRIES_LINGER_S))
            case FreshnessDaemon():
                daemon.interval_seconds = FRESHNESS_EVERY_S
    return daemons


def _hold_back(daemon: IntervalDaemon[Any], looks: Looks) -> None:
    look = daemon.run_iteration

    def look_if_due(context: Any) -> Iterator[Any]:
        if looks.is_due():
            yield from look(context)

    daemon.run_iteration = look_if_due  # type: ignore[method-assign,assignment]


def _wake(daemon: DagsterDaemon[Any], waking: Waking) -> None:
    loop = daemon.core_loop

    def loop_on_an_alarm(context: Any, stop: threading.Event) -> Iterator[Any]:
        return loop(context, Alarm(stop, waking))

    daemon.core_loop = loop_on_an_alarm  # type: ignore[method-assign,assignment]


def _until_a_sensor_is_due(news: News) -> Callable[[float], float]:
    def pause_s(dagster_s: float) -> float:
        if not news.is_listening:
            return dagster_s
        is_quiet = time.time() - news.last_of_all() > SENSORS_LINGER_S
        return SENSORS_AT_LEAST_EVERY_S if is_quiet else min(dagster_s, SENSORS_AFTER_NEWS_EVERY_S)

    return pause_s


def _until_a_backfill_is_due(goes_on: Unfinished) -> Callable[[float], float]:
    return lambda dagster_s: dagster_s if goes_on() else AT_LEAST_EVERY_S


def _has_runs(instance: DagsterInstance) -> bool:
    return bool(instance.get_run_ids(RunsFilter(statuses=NOT_FINISHED_STATUSES), limit=1))


def _has_backfills(instance: DagsterInstance) -> bool:
    unfinished = [one for one in BulkActionStatus if one not in BULK_ACTION_TERMINAL_STATUSES]
    return bool(instance.get_backfills_count(BulkActionsFilter(statuses=unfinished)))
