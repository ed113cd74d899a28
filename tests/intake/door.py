"""What the intake's tests are made of: a server in this event loop, keys, and calls with them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import msgspec

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Role
from clientmgr.base.settings import Settings
from clientmgr.contracts.intake_keys import KeyKind, authorization
from clientmgr.tenants.intake_keys import create_key, revoke_key
from streaming.intake.server import serve_until_stopped
from tests.streaming.rig import Rig


@dataclass(frozen=True)
class Door:
    """A running intake, and keys for application "A" of customer 7."""

    rig: Rig
    client: httpx.AsyncClient
    port: int
    server_key: str
    app_key: str

    async def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """A call with the server's key, or another (empty: none)."""
        given = {"Authorization": f"Bearer {self.server_key if key is None else key}"} if key != "" else {}
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        given |= {"Content-Type": "application/json"} if content else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, path, content=content, headers=given)

    async def signed(
        self, method: str, path: str, body: Any = None, *, at_ms: int | None = None, key: str = "", **headers: str
    ) -> httpx.Response:
        content = b"" if body is None else msgspec.json.encode(body)
        header = authorization(
            key or self.app_key,
            method,
            path,
            now_ms() if at_ms is None else at_ms,
            idempotency_key=headers.get("Idempotency_Key", ""),
            body=content,
        )
        answer: httpx.Response = await self.call(method, path, content, key="", Authorization=header, **headers)
        return answer

    def make_key(self, **options: Any) -> str:
        return make_key(self.rig, **options)

    def revoke(self, key: str) -> None:
        with self.rig.database.connect(Role.WRITER) as connection:
            revoke_key(connection, AuditLogger.from_settings(self.rig.settings), key.split("_")[1], actor="test")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_key(
    rig: Rig,
    *,
    customer: int = 7,
    application: str = "A",
    kind: KeyKind = KeyKind.SERVER,
    name: str = "default",
    lifetime: timedelta | None = None,
    origins: tuple[str, ...] = (),
) -> str:
    with rig.database.connect(Role.WRITER) as connection:
        return create_key(
            connection,
            AuditLogger.from_settings(rig.settings),
            rig.settings,
            CustomerId(customer),
            application,
            name=name,
            kind=kind,
            origins=origins,
            lifetime=lifetime,
            actor="test",
        ).key


@asynccontextmanager
async def serving(rig: Rig, settings: Settings) -> AsyncIterator[int]:
    """The port of an intake that runs meanwhile."""
    stop = asyncio.Event()
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_until_stopped(settings, rig.broker, stop, ready.set_result))
    either: set[asyncio.Future[Any]] = {task, ready}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not ready.done():
            await task
        yield ready.result()
    finally:
        stop.set()
        await task


@asynccontextmanager
async def opened(rig: Rig, **overrides: Any) -> AsyncIterator[Door]:
    server_key, app_key = make_key(rig), make_key(rig, kind=KeyKind.APP, name="app")
    async with (
        serving(rig, rig.settings.model_copy(update=overrides)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        yield Door(rig, client, port, server_key, app_key)


async def until_answered(call: Any, status: int, *, within_s: float = 60.0) -> httpx.Response:
    """The answer with that status, once there is one."""
    deadline = time.monotonic() + within_s
    while True:
        answer: httpx.Response = await call()
        if answer.status_code == status:
            return answer
        assert time.monotonic() < deadline, f"still {answer.status_code}: {answer.text}"
        await asyncio.sleep(0.05)
