"""A stream of its own for each test, on the session's Redis and PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from pydantic import SecretStr

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.local.embedded.redis import EmbeddedRedis
from streaming.live.broadcast.broadcast_metrics import CONFLATED, DROPPED, FANOUT, MALFORMED, ORPHANS, RECORDS
from streaming.live.broadcast.sending import ring
from streaming.live.broadcast.sending.io_uring import open_ring
from tests.keys import TEST_KEY
from tests.live.serving import Served, serving
from tests.live.stream import Stream, own_stream

# Waits that are sensible in production and pointless here.
IMPATIENT = {
    "live_ws_port": 0,
    "live_token_key": SecretStr(TEST_KEY),
    "telemetry_claim_idle_ms": 300,
    "telemetry_stream_keep_s": 0.0,
}


@pytest.fixture
def stream(
    database: Database, redis_server: EmbeddedRedis, settings_for: Callable[[Database], Settings]
) -> Iterator[Stream]:
    settings = settings_for(database).model_copy(update={"redis_url": redis_server.url, **IMPATIENT})
    stream = Stream(own_stream(settings), database)
    yield stream
    stream.close()


@pytest.fixture(params=["each by itself", "together"])
def both_ways_to_send(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the plain sender, and with the ring, for which a test's few watchers are enough here."""
    if request.param == "together":
        opened = open_ring()
        if opened is None:
            pytest.skip("there is no io_uring here, or it may not be used")
        opened.close()
    monkeypatch.setenv("LIVE_IO_URING", "true" if request.param == "together" else "false")
    monkeypatch.setattr(ring, "WORTH_IT_FROM", 1)
    # The instance of the other way had the same name.
    for metric in (RECORDS, FANOUT, ORPHANS, MALFORMED, DROPPED, CONFLATED):
        metric.clear()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the server runs on: its transports are what backpressure is about."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def shared(anyio_backend: object, stream: Stream) -> AsyncIterator[Served]:
    """An instance as it is by default."""
    async with serving(stream.settings) as served:
        yield served
