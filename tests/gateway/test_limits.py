"""What many clients with large requests may cost: the gateway's memory stays where it is, and each waits its turn."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.pubsub_v1 import types

from clientmgr.base.database import Database
from clientmgr.broker.gateway.admission import Admission
from clientmgr.broker.gateway.refusals import Refusal
from tests.gateway.conftest import PROJECT
from tests.gateway.process import GatewayProcess

CLIENTS = 40
MOST_MB = 400
MISSING = f"projects/{PROJECT}/topics/not-there"


@pytest.fixture
def alone(gateway_database: Database, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway whose memory nobody else uses."""
    process = GatewayProcess(gateway_database, tmp_path / "gateway.log")
    process.start()
    yield process
    process.stop()


def attack(address: str, body: bytes) -> Counter[str]:
    """CLIENTS connections publish it at once."""
    statuses: Counter[str] = Counter()
    together = threading.Barrier(CLIENTS)

    def publish() -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options=options) as channel:
            call = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
            together.wait()
            try:
                call(body, timeout=60)
            except grpc.RpcError as error:
                statuses[error.code().name] += 1
            else:
                statuses["OK"] += 1

    threads = [threading.Thread(target=publish) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def request(megabytes: float) -> bytes:
    message = types.PubsubMessage.pb()(data=b"x" * int(megabytes * 1e6))
    body: bytes = types.PublishRequest.pb()(topic=MISSING, messages=[message]).SerializeToString()
    return body


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_40_clients_with_large_requests_that_are_refused_leave_it_below_400_mb(alone: GatewayProcess) -> None:
    assert attack(alone.address, request(31)) == {"RESOURCE_EXHAUSTED": CLIENTS}
    assert attack(alone.address, request(10.2)) == {"INVALID_ARGUMENT": CLIENTS}
    assert attack(alone.address, request(9.9)) == {"NOT_FOUND": CLIENTS}
    assert alone.peak_memory_mb() < MOST_MB


@pytest.mark.anyio
async def test_bytes_of_a_client_and_of_all_are_waited_for() -> None:
    admission = Admission(most=100, most_a_client=60)
    entered: list[str] = []

    async def call(client: str, size: int, done: asyncio.Event) -> None:
        async with admission.place(client, size):
            entered.append(client)
            await done.wait()

    async with asyncio.TaskGroup() as tasks:
        first, rest = asyncio.Event(), asyncio.Event()
        tasks.create_task(call("a", 50, first))
        tasks.create_task(call("a", 50, rest))  # waits for its own
        tasks.create_task(call("b", 50, rest))
        tasks.create_task(call("c", 50, rest))  # waits for all
        await asyncio.sleep(0)
        assert entered == ["a", "b"]
        first.set()
        for _ in range(3):
            await asyncio.sleep(0)
        assert entered == ["a", "b", "a"]
        rest.set()
    assert entered == ["a", "b", "a", "c"]
    async with admission.place("d", 1000) as place:  # larger than all, alone
        place.shrink(10)
        async with admission.place("a", 50):
            assert place.size == 10


@pytest.mark.anyio
async def test_who_waits_too_long_or_behind_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = Admission(most=10, most_a_client=10)
    monkeypatch.setattr("clientmgr.broker.gateway.admission.WAIT_S", 0.01)
    async with admission.place("a", 10):
        with pytest.raises(Refusal, match="as many bytes as it may") as refusal:
            async with admission.place("b", 10):
                pass
        assert refusal.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        monkeypatch.setattr("clientmgr.broker.gateway.admission.MOST_WAITING", 0)
        with pytest.raises(Refusal, match="Too many calls wait"):
            async with admission.place("b", 10):
                pass
    async with admission.place("b", 10):
        pass


@pytest.mark.anyio
async def test_a_wait_that_is_cancelled_takes_nothing() -> None:
    admission = Admission(most=10, most_a_client=10)

    async def wait() -> None:
        async with admission.place("b", 10):
            pass

    async with admission.place("a", 10):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with admission.place("c", 10):
        pass
