"""The intake killed under load: whatever it answered with 202 is in the log. And it stops cleanly when asked to."""

import asyncio
import json
import signal
import socket
from collections import Counter
from pathlib import Path

import httpx
import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from tests.intake.door import make_key
from tests.streaming.processes import worker
from tests.streaming.rig import Rig, until

pytestmark = [pytest.mark.anyio, pytest.mark.server]

CLIENTS = 8
BATCH = 20


class Sender:
    """Sends batches until it is told to stop, and again what got no answer: as an SDK does."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.accepted: list[str] = []
        self.failures = 0
        self.stop = False

    async def gets_on(self) -> None:
        wanted = len(self.accepted) + 20 * BATCH
        await until(lambda: len(self.accepted) >= wanted, "events are accepted", within_s=120)

    async def run(self, name: int) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=60) as client:
            number = 0
            while not self.stop:
                ids = [f"{name}-{number}-{n}" for n in range(BATCH)]
                body = [{"eventId": one, "eventType": "client.updated", "clientId": one} for one in ids]
                try:
                    answer = await client.post("/v1/events", content=json.dumps(body), headers=self._headers)
                except httpx.TransportError:
                    answer = None
                if answer is not None and answer.status_code == 202:
                    self.accepted += answer.json()["eventIds"]
                    number += 1
                else:
                    self.failures += 1
                    await asyncio.sleep(0.05)


async def test_what_was_accepted_is_in_the_log_after_kills(
    anyio_backend: str, database: Database, settings: Settings, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = settings.model_copy(update={"intake_port": port, "data_dir": tmp_path, "intake_key_events_per_s": 1e6})
    async with PostgresBroker(database, settings) as broker:
        rig = Rig(settings, database, broker)
        rig.activate(7)
        sender = Sender(port, make_key(rig))
        sending = [asyncio.create_task(sender.run(name)) for name in range(CLIENTS)]
        try:
            for _ in range(2):
                with worker(settings, tmp_path, "intake") as process:
                    await sender.gets_on()
                    process.kill()
            with worker(settings, tmp_path, "intake") as process:
                await sender.gets_on()
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait) == 0
        finally:
            sender.stop = True
            await asyncio.gather(*sending)
        counted = Counter(one.event["eventId"] for one in rig.topic(topics.WRITER))
    assert sender.failures > 0
    assert len(sender.accepted) == len(set(sender.accepted))
    assert set(sender.accepted) <= set(counted)
    # All or nothing: of a batch that got no answer, every event is there or none is.
    batches = Counter(event_id.rpartition("-")[0] for event_id in counted)
    assert set(batches.values()) == {BATCH}
    assert set(counted.values()) == {1}, "what is sent again with its eventId is not published again"
