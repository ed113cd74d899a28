"""The overview says what it knows, and what it does not."""

import os
from typing import Any

import pytest
import redis

from clientmgr.base.settings import load_settings
from clientmgr.broker.message_metrics import CONSUMED
from clientmgr.contracts import daemons
from clientmgr.contracts.daemons import DURABLE_GROUP
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.heartbeats import beating
from clientmgr.operations.service_health import ServiceState, probe_services
from clientmgr_dashboard.operations import overview
from streaming.live.telemetry import telemetry_metrics
from tests.dashboard.house import House, Visit, serving
from tests.waiting import eventually

STREAM = "positions-of-the-overview"


@pytest.mark.anyio
async def test_a_lag_that_redis_does_not_know_is_not_a_writer_that_never_started(redis_server: EmbeddedRedis) -> None:
    settings = load_settings(redis_url=redis_server.url, redis_telemetry_stream=STREAM, live_ws_port=1, dagster_port=1)

    async def telemetry_writer() -> ServiceState:
        (found,) = [one for one in await probe_services(settings) if one.name == "telemetry-writer"]
        return found

    with redis.Redis.from_url(settings.redis_url) as client:
        _, second, _ = [client.xadd(STREAM, {"position": "x"}) for _ in range(3)]
        assert (await telemetry_writer()).state == "never started"
        # In the middle: Redis has not counted what lies before.
        client.xgroup_create(STREAM, DURABLE_GROUP, id=second)
        assert (await telemetry_writer()).state == "unknown"
        client.xreadgroup(DURABLE_GROUP, "somebody", {STREAM: ">"})
        assert (await telemetry_writer()).state == "keeps up"
        client.delete(STREAM)


def test_errors_that_were_not_all_counted_are_at_least_so_many(
    spare_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare_house.publish_and_write({"not": "an event"}, {"neither": "is this"})
    monkeypatch.setattr(overview, "LOOK_AT_ERRORS", 2)
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        problems = visit.get("/api/v1/overview").json()["problems"]
        where = {problem["text"]: problem["link"] for problem in problems}
        topic = "client-manager.writer-errors"
        assert where[f"at least 2 messages in {topic}"] == f"/failures?topic={topic}"
        assert f'<td class="num"><a href="/failures?topic={topic}">≥ 2</a></td>' in visit.see("/")


def test_how_far_one_is_behind_is_in_units_that_people_use(spare_house: House) -> None:
    spare_house.publish_and_write({"not": "an event"})
    spare_house.query("UPDATE clientmgr.consumer_offsets SET next_offset = 1")
    spare_house.query("UPDATE clientmgr.outbox_message_t SET published_at = now() - interval '3 hours 5 minutes'")
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        texts = [one["text"] for one in visit.get("/api/v1/overview").json()["problems"]]
        assert "client-manager.writer is 3 h behind" in texts


def test_a_process_that_is_gone_is_dead_however_little_it_leaves_unread(spare_house: House) -> None:
    spare_house.publish_and_write()

    def writer(visit: Visit) -> dict[str, Any]:
        overview = visit.get("/api/v1/overview").json()
        (found,) = [one for one in overview["daemons"] if one["name"] == "writer"]
        return {**found, "isAProblem": any(one["text"].startswith("writer: ") for one in overview["problems"])}

    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        assert (writer(visit)["state"], writer(visit)["isWell"]) == ("no sign of life", False)
        with beating(spare_house.settings, "writer", every_s=0.05), beating(spare_house.settings, "pubsub-gateway"):
            eventually(lambda: writer(visit)["instances"] == 1, "a sign of life")
            assert (writer(visit)["state"], writer(visit)["lastWorkAt"]) == ("keeps up", None)
            assert f"process {os.getpid()}" in visit.see("/")
            CONSUMED.labels("t", "s").inc()
            eventually(lambda: writer(visit)["lastWorkAt"] is not None, "a sign of work")
            assert f"process {os.getpid()}" in visit.see("/processes/pubsub-gateway")
        eventually(lambda: writer(visit)["state"] == "stopped", "it said that it stopped")
        spare_house.query("UPDATE clientmgr.heartbeats SET stopped_at = NULL, beat_at = now() - interval '2 minutes'")
        eventually(lambda: writer(visit)["state"] == "dead", "nothing was heard of it for long")
        assert (writer(visit)["isWell"], writer(visit)["isAProblem"]) == (False, True)


def test_every_process_of_the_system_is_listed_and_none_is_well_of_which_nothing_is_known(
    visit: Visit, house: House
) -> None:
    found = {one["name"]: one for one in visit.get("/api/v1/overview").json()["daemons"]}
    expected = {one.name for one in daemons.started()} | {one.name for one in daemons.DAGSTER}
    assert expected <= set(found)
    assert {name for name, one in found.items() if one["isWell"] and not one["instances"]} == set()
    assert visit.get("/processes/nobody").status_code == 404
    assert "Spark Connect" in visit.see("/processes/spark"), "the overview links to it"


def test_what_reads_positions_has_worked_once_it_has_counted_some(spare_house: House) -> None:
    def last_work() -> object:
        ((at,),) = spare_house.query("SELECT max(last_work_at) FROM clientmgr.heartbeats")
        return at

    with beating(spare_house.settings, "writer", "telemetry-writer", every_s=0.02):
        eventually(lambda: spare_house.query("SELECT FROM clientmgr.heartbeats"), "a sign of life")
        assert last_work() is None
        telemetry_metrics.WRITTEN.labels("i").inc()
        eventually(last_work, "a sign of work")
        assert spare_house.query("SELECT process FROM clientmgr.heartbeats WHERE last_work_at IS NOT NULL") == [
            ("telemetry-writer",)
        ]


def test_the_last_day_is_drawn_of_samples_with_a_gap_where_there_were_none(
    spare_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "TREND_EVERY_S", 0.0)
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        assert "No samples yet" in visit.see("/overview/trend")
        spare_house.query(
            "INSERT INTO clientmgr.samples"
            " (at, events, sends, errors, dead_letters, last_letter, unread, oldest_unread_s)"
            # What came while nobody looked is no rate of the minute that follows.
            " SELECT now() - m * interval '1 minute', 6000 - 60 * m - 90000 * (m > 60)::integer, 600 - 6 * m, 0,"
            " 100 - m, 0, 0, m"
            " FROM generate_series(0, 90) AS m WHERE m NOT BETWEEN 40 AND 60"
        )
        points = visit.get("/api/v1/overview/trend").json()["points"]
        known = [point for point in points if point["eventsPerMinute"] is not None]
        names = ("eventsPerMinute", "sendsPerMinute", "errorsPerMinute")
        assert {tuple(round(point[name], 6) for name in names) for point in known} == {(60, 6, 1)}
        assert 18 <= len(points) - len(known) <= 23, "twenty minutes are missing"
        page = visit.see("/")
        assert page.count('<polyline class="line series-0"') == 4 * 2 + 1, "two parts a chart, and the sparkline"
        assert '<th scope="row"><time' in page
