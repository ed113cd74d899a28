"""Redis is there to save time. The workers do the same work without it, and notice by themselves when it is back."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clientmgr.local.embedded.redis import EmbeddedRedis
from streaming import writer
from tests.streaming.rig import Rig, event

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cached_rig(rig: Rig, server: EmbeddedRedis) -> Rig:
    return replace(rig, settings=rig.settings.model_copy(update={"redis_url": server.url}))


async def test_a_customer_that_was_unknown_a_moment_ago_is_served_as_soon_as_it_is_activated(cached_rig: Rig) -> None:
    await cached_rig.publish(event(customer=8, client="too early"))
    await cached_rig.burst(writer.DAEMON)
    cached_rig.activate(8)
    await cached_rig.publish(event(customer=8, client="in time"))
    await cached_rig.burst(writer.DAEMON)

    assert [error.event["clientId"] for error in cached_rig.errors] == ["too early"]
    assert cached_rig.devices(8).keys() == {"in time"}


async def test_a_customer_that_was_active_a_moment_ago_is_not_served_once_it_is_deleted(cached_rig: Rig) -> None:
    await cached_rig.publish(event())
    await cached_rig.burst(writer.DAEMON)
    cached_rig.delete(7)
    await cached_rig.publish(event())
    await cached_rig.burst(writer.DAEMON)

    assert [error.attributes["errorClass"] for error in cached_rig.errors] == ["UnknownTenantError"]
    assert cached_rig.retries == []


async def test_the_workers_do_not_care_whether_redis_is_there(
    cached_rig: Rig, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clientmgr.tenants.cache_invalidation.ENTRY_LIFETIME_S", 0.1)
    await cached_rig.publish(event(customer=7), event(customer=8, client="unknown"))
    await cached_rig.burst(writer.DAEMON)
    server.crash()
    cached_rig.activate(8)
    await cached_rig.publish(event(customer=8, client="without"), event(customer=9, client="unknown"))
    await cached_rig.burst(writer.DAEMON)
    server.restart_on_same_port()
    cached_rig.activate(9)
    await cached_rig.publish(event(customer=8, client="with"), event(customer=9, client="with"))
    await cached_rig.burst(writer.DAEMON)

    assert [cached_rig.devices(customer).keys() for customer in (7, 8, 9)] == [{"c1"}, {"without", "with"}, {"with"}]
    assert [error.event["clientId"] for error in cached_rig.errors] == ["unknown", "unknown"]
