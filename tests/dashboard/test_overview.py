"""The overview says what it knows, and what it does not."""

import os
from typing import Any

import pytest
import redis

from clientmgr.base.settings import load_settings
from clientmgr.broker.message_metrics import CONSUMED
from clientmgr.contracts.daemons import DURABLE_GROUP
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations.heartbeats import beating
from clientmgr.operations.service_health import ServiceState, probe_services
from clientmgr_dashboard.operations import overview
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
        assert "at least 2 messages in client-manager.writer-errors" in visit.get("/api/v1/overview").json()["problems"]
        assert '<td class="num">≥ 2</td>' in visit.see("/")


def test_a_process_that_is_gone_is_dead_however_little_it_leaves_unread(spare_house: House) -> None:
    spare_house.publish_and_write()

    def writer(visit: Visit) -> dict[str, Any]:
        overview = visit.get("/api/v1/overview").json()
        (found,) = [one for one in overview["daemons"] if one["name"] == "writer"]
        return {**found, "isAProblem": any(one.startswith("writer: ") for one in overview["problems"])}

    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        assert (writer(visit)["state"], writer(visit)["lastSignAt"]) == ("keeps up", None)
        with beating(spare_house.settings, "writer", every_s=0.05), beating(spare_house.settings, "pubsub-gateway"):
            eventually(lambda: writer(visit)["instances"] == 1, "a sign of life")
            assert (writer(visit)["state"], writer(visit)["lastWorkAt"]) == ("keeps up", None)
            assert f"process {os.getpid()}" in visit.see("/")
            CONSUMED.labels("t", "s").inc()
            eventually(lambda: writer(visit)["lastWorkAt"] is not None, "a sign of work")
            assert "pubsub-gateway" in visit.see("/")
        eventually(lambda: writer(visit)["state"] == "stopped", "it said that it stopped")
        spare_house.query("UPDATE clientmgr.heartbeats SET stopped_at = NULL, beat_at = now() - interval '2 minutes'")
        eventually(lambda: writer(visit)["state"] == "dead", "nothing was heard of it for long")
        assert (writer(visit)["isWell"], writer(visit)["isAProblem"]) == (False, True)
