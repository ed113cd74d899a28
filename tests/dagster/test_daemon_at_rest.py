"""When Dagster's daemon looks: after news, as long as something goes on, and after a long time. Else it rests."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from dagster._core.remote_representation.external import RemoteSensor
from dagster._core.scheduler.instigation import InstigatorState, SensorInstigatorData
from dagster._daemon.controller import create_daemons_from_instance

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.contracts.topics import ACTIVATE_CUSTOMER, WRITER
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.daemon import news as news_kinds
from clientmgr_dagster.daemon import threads
from clientmgr_dagster.daemon.news import REGISTRY, RUNS, News, hear
from clientmgr_dagster.daemon.rhythms import RHYTHMS, Gate
from clientmgr_dagster.daemon.threads import Alarm, Looks, Unfinished, Waking, resting_daemons
from clientmgr_dagster.definitions import defs
from clientmgr_dagster.partitions import PARTITIONS
from tests.dagster.rig import activation, publish
from tests.waiting import eventually


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def news(clock: Clock) -> News:
    """Told of nothing since long ago."""
    news = News(clock)
    news.listening()
    clock.now += 10_000.0
    return news


def sensor(name: str) -> RemoteSensor:
    # What Dagster's question is asked about, of which its name and interval count.
    return cast(RemoteSensor, SimpleNamespace(name=name, min_interval_seconds=0))


def state(began: float, *, cursor: str | None = None, succeeded: bool = True) -> InstigatorState:
    data = SensorInstigatorData(
        last_tick_timestamp=began,
        last_tick_start_timestamp=began,
        last_tick_success_timestamp=began if succeeded else None,
        cursor=cursor,
    )
    return cast(InstigatorState, SimpleNamespace(instigator_data=data))


MESSAGES = sensor("customer_activation_sensor")


def gate(news: News, clock: Clock, *, under_way: bool = False) -> Gate:
    return Gate(news, lambda: under_way, clock=clock)


def test_every_sensor_of_ours_has_a_rhythm() -> None:
    assert set(RHYTHMS) == {one.name for one in defs.get_repository_def().sensor_defs}


def test_a_sensor_rests_until_there_is_news_of_its_kind(news: News, clock: Clock) -> None:
    asked = gate(news, clock)
    began = clock.now - 5
    assert asked.rests(state(began), MESSAGES)
    news.heard(REGISTRY)
    assert asked.rests(state(began), MESSAGES), "that concerns others"
    news.heard(ACTIVATE_CUSTOMER)
    assert not asked.rests(state(began), MESSAGES)


def test_news_that_comes_during_an_evaluation_calls_for_another(news: News, clock: Clock) -> None:
    began = clock.now
    clock.now += 1
    news.heard(ACTIVATE_CUSTOMER)
    clock.now += 1
    assert not gate(news, clock).rests(state(began), MESSAGES)


def test_a_sensor_that_failed_or_was_never_evaluated_does_not_rest(news: News, clock: Clock) -> None:
    asked = gate(news, clock)
    assert not asked.rests(state(clock.now - 5, succeeded=False), MESSAGES)
    assert not asked.rests(state(0.0), MESSAGES)


def test_a_sensor_looks_now_and_then_for_news_that_was_lost(news: News, clock: Clock) -> None:
    longest_s = RHYTHMS[MESSAGES.name].at_least_every_s
    assert gate(news, clock).rests(state(clock.now - longest_s + 1), MESSAGES)
    assert not gate(news, clock).rests(state(clock.now - longest_s), MESSAGES)


def test_nothing_rests_while_nobody_listens(news: News, clock: Clock) -> None:
    news.lost()
    assert not gate(news, clock).rests(state(clock.now), MESSAGES)
    news.listening()
    clock.now += 1
    assert not gate(news, clock).rests(state(clock.now - 5), MESSAGES), "nobody told us of what came before"
    assert gate(news, clock).rests(state(clock.now), MESSAGES)


def test_a_sensor_that_took_a_part_of_what_is_there_goes_on_until_its_cursor_stands(news: News, clock: Clock) -> None:
    asked = gate(news, clock)
    assert asked.rests(state(clock.now - 9, cursor="0"), MESSAGES)
    for _ in range(2):  # Dagster asks before it queues an evaluation, and when that begins
        assert not asked.rests(state(clock.now - 9, cursor="500"), MESSAGES), "it read 500"
    for _ in range(2):
        assert not asked.rests(state(clock.now - 5, cursor="600"), MESSAGES), "and then 100"
    assert asked.rests(state(clock.now - 1, cursor="600"), MESSAGES), "and then none"


def test_news_of_what_takes_a_while_keeps_a_sensor_awake_for_that_long(news: News, clock: Clock) -> None:
    news.heard(REGISTRY)
    lingers_s = RHYTHMS["tenant_drift_sensor"].lingers_s
    said = clock.now
    clock.now += lingers_s + 10
    assert not gate(news, clock).rests(state(said + lingers_s - 1), sensor("tenant_drift_sensor"))
    assert gate(news, clock).rests(state(said + lingers_s + 1), sensor("tenant_drift_sensor"))


def test_a_sensor_whose_news_come_in_crowds_is_not_evaluated_at_each(news: News, clock: Clock) -> None:
    registry = sensor("tenant_registry_sensor")
    news.heard(RUNS)
    assert gate(news, clock).rests(state(clock.now - 3), registry)
    assert not gate(news, clock).rests(state(clock.now - 4), registry)


def test_starting_runs_are_watched_as_long_as_one_has_not_ended(news: News, clock: Clock) -> None:
    assert gate(news, clock).rests(state(clock.now - 25), sensor("lost_start_sensor"))
    assert not gate(news, clock, under_way=True).rests(state(clock.now - 25), sensor("lost_start_sensor"))


def test_a_thread_looks_after_news_at_its_own_pace_while_work_goes_on_and_after_a_long_time(
    news: News, clock: Clock
) -> None:
    goes_on = True
    looks = Looks(news, RUNS, every_s=3.0, goes_on=lambda: goes_on)
    assert looks.is_due(), "the first"
    clock.now += 1
    assert not looks.is_due()
    news.heard(RUNS)
    clock.now += 0.1
    assert looks.is_due()
    clock.now += 2
    assert not looks.is_due()
    clock.now += 1
    assert looks.is_due(), "something goes on"
    goes_on = False
    clock.now += 100
    assert not looks.is_due()
    news.lost()
    assert looks.is_due()
    clock.now += 1
    assert not looks.is_due(), "no more often than without us"
    news.listening()
    assert looks.is_due(), "nobody told us of what came before"
    clock.now += threads.AT_LEAST_EVERY_S
    assert looks.is_due()


def test_what_is_unfinished_is_asked_for_once_after_each_change(news: News, clock: Clock) -> None:
    asked: list[float] = []

    def ask() -> bool:
        asked.append(clock.now)
        return True

    unfinished = Unfinished(news, RUNS, ask)
    assert unfinished()
    clock.now += 1
    assert unfinished()
    assert len(asked) == 1
    news.heard(RUNS)
    clock.now += 1
    unfinished()
    unfinished()
    assert len(asked) == 2


def test_a_wait_ends_with_news_and_with_the_daemon() -> None:
    news, stop = News(), threading.Event()
    news.listening()
    alarm = Alarm(stop, Waking(news, news.last_of_all, lambda _: 60.0))
    began = time.monotonic()
    threading.Timer(0.05, news.heard, [RUNS]).start()
    assert not alarm.wait(5.0)
    threading.Timer(0.05, stop.set).start()
    assert alarm.wait(5.0)
    assert time.monotonic() - began < 50


def test_all_threads_of_dagster_s_are_there_and_those_that_look_often_are_held_back(stored: dg.DagsterInstance) -> None:
    daemons = {one.daemon_type(): one for one in resting_daemons(stored, News())}
    assert daemons.keys() == {one.daemon_type() for one in create_daemons_from_instance(stored)}
    held_back = {name for name, one in daemons.items() if {"run_iteration", "core_loop"} & vars(one).keys()}
    assert held_back == {"SENSOR", "BACKFILL", "QUEUED_RUN_COORDINATOR", "MONITORING", "EVENT_LOG_CONSUMER"}


@contextlib.contextmanager
def following(news: News, url: str) -> Iterator[None]:
    """As the daemon does it for as long as it lives."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    hearing = asyncio.run_coroutine_threadsafe(hear(news, url), loop)
    yield
    hearing.cancel()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_the_daemon_is_told_of_messages_tenants_runs_partitions_and_what_is_switched_on(
    stored: dg.DagsterInstance, database: Database, settings: Settings, manager: TenantSchemaManager
) -> None:
    told: set[str] = set()

    class Noted(News):
        def heard(self, kind: str) -> None:
            told.add(kind)

    def comes(kind: str) -> None:
        eventually(lambda: kind in told, kind)
        told.clear()

    publish(database, settings, ACTIVATE_CUSTOMER)
    with following(noted := Noted(), dagster_database_url(settings)):
        eventually(lambda: noted.is_listening, "it listens")
        publish(database, settings, WRITER, activation(7, 1))
        publish(database, settings, ACTIVATE_CUSTOMER, activation(7, 1))
        eventually(lambda: told, "a message")
        assert told == {ACTIVATE_CUSTOMER}, "and not of the others"
        manager.activate([7], actor="test")
        comes(REGISTRY)
        stored.add_dynamic_partitions(PARTITIONS, ["7"])
        comes(news_kinds.PARTITIONS)
        run = stored.create_run_for_job(defs.resolve_job_def("tenant_schema_job"))
        comes(RUNS)
        stored.report_run_failed(run)
        comes(RUNS)
