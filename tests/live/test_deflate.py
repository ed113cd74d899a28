"""Compression: large answers for clients that ask for it, positions never, and nothing for those that do not ask."""

import json
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, PerMessageDeflate

from clientmgr.live.tokens import make_token
from streaming.live.broadcast.frames import WORTH_DEFLATING
from tests.live.serving import Served, Watcher, serving
from tests.live.stream import Stream, record

pytestmark = pytest.mark.anyio
DEVICES = [f"device-{number}" for number in range(300)]


class Counting(PerMessageDeflate):
    """Counts what the server compressed."""

    sizes: list[int]

    def decode(self, frame: Any, **limits: Any) -> Any:
        if frame.rsv1 and len(frame.data) > 200:  # not the small one that the client sent
            Counting.sizes.append(len(frame.data))
        return super().decode(frame, **limits)


@pytest.mark.parametrize("window_bits", [9, 15])
async def test_a_large_snapshot_is_compressed_for_who_asks_and_positions_are_not(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, window_bits: int
) -> None:
    monkeypatch.setattr(Counting, "sizes", [], raising=False)
    monkeypatch.setattr("websockets.extensions.permessage_deflate.PerMessageDeflate", Counting)
    stream.enter("E1", DEVICES)
    asking = [ClientPerMessageDeflateFactory(server_max_window_bits=window_bits)]
    stream.add(*(record(device) for device in DEVICES))
    async with serving(stream.settings, live_auth="off") as served:
        outbound = await served.metric("liveMessagesOutbound_total", type="subscribed")
        plain = await _snapshot_and_one(served, stream, extensions=None)
        assert Counting.sizes == []
        compressed = await _snapshot_and_one(served, stream, extensions=asking)
        assert await served.metric("liveMessagesOutbound_total", type="subscribed") == outbound + 2
    assert [one["deviceId"] for one in compressed] == [one["deviceId"] for one in plain]
    assert len(compressed) == len(DEVICES)
    (size,) = Counting.sizes  # the snapshot, and not the position
    assert WORTH_DEFLATING < size < len(json.dumps(plain)) / 3


async def _snapshot_and_one(served: Served, stream: Stream, *, extensions: Any) -> list[dict[str, Any]]:
    socket: ClientConnection
    async with connect(served.url, proxy=None, compression=None, extensions=extensions) as socket:
        watcher = Watcher(socket)
        snapshot = await watcher.subscribe("E1")
        stream.add(record(DEVICES[0]))
        await watcher.positions(1)
    return snapshot


async def test_compressed_messages_of_clients_are_understood_and_bombs_are_refused(stream: Stream) -> None:
    async with serving(stream.settings) as served:
        token = make_token(served.settings.live_token_key.get_secret_value().encode(), ["*"], 60)
        async with connect(f"{served.url}?token={token}", proxy=None, compression="deflate") as socket:
            watcher = Watcher(socket)
            refused = await watcher.ask({"type": "subscribe", "topic": "x" * 3000})
            assert refused["code"] == "unknown_topic"
            await watcher.say({"type": "subscribe", "topic": "x" * 5_000_000})
            assert (await watcher.closed())[0] == 1009
