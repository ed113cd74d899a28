"""The keys that count, in memory: told of changes, read again every few seconds, and distrusted when that fails."""

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.logs import get_logger
from clientmgr.base.notifications import listen
from clientmgr.base.waiting import being_cancelled
from clientmgr.contracts.intake_keys import KeyKind, derived_secret, secret_hash
from clientmgr.tenants.live_intake_keys import CHANNEL, LiveKey, live_keys
from streaming.intake.intake_metrics import KEYS

log = get_logger(__name__)

READ_EVERY_S: Final = 18.0
"""Changes are notified. A read finds what no notification told."""
READ_AGAIN_S: Final = 3.0
"""After a read that failed: a few more fit into `STALE_AFTER_S`."""
STALE_AFTER_S: Final = 30.0
"""Without a read for so long, nobody knows which keys were revoked meanwhile."""


class Keyring:
    """One per process. `run` keeps it up to date."""

    def __init__(self, database: Database, signing_key: bytes) -> None:
        self._database = database
        self._signing_key = signing_key
        self._keys: Mapping[str, LiveKey] = {}
        self._secrets: dict[str, str] = {}
        self.origins: frozenset[str] = frozenset()
        """Of all keys: a browser's preflight request names none."""
        self._changed = asyncio.Event()
        self._read_at = float("-inf")
        self.loaded = asyncio.Event()
        self._connection: AsyncConnection[Any] | None = None
        """Kept from read to read."""

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._read_at > STALE_AFTER_S

    def find(self, key_id: str) -> LiveKey | None:
        key = self._keys.get(key_id)
        if key is None or (key.expires_at is not None and key.expires_at.timestamp() <= time.time()):
            return None
        return key

    def secret_of(self, key: LiveKey) -> str | None:
        """Of an `app` key. None: it was made with another INTAKE_SIGNING_KEY."""
        secret = self._secrets.get(key.key_id)
        if secret is None:
            secret = derived_secret(self._signing_key, key.key_id)
            if key.kind != KeyKind.APP or secret_hash(secret) != key.secret_hash:
                log.warning("the key was made with another INTAKE_SIGNING_KEY", key=key.key_id)
                return None
            self._secrets[key.key_id] = secret
        return secret

    async def run(self) -> None:
        """Ends only by cancellation."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._keep_reading())
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _listen(self) -> None:
        connect = functools.partial(self._database.connect_async, Role.READER, autocommit=True)
        await listen(connect, CHANNEL, lambda _: self._changed.set(), listening=self._changed.set)

    async def _keep_reading(self) -> None:
        while not being_cancelled():
            self._changed.clear()
            wait_s = READ_EVERY_S
            try:
                await self._read()
            except (psycopg.Error, OSError) as error:
                log.warning("keys can't be read", error=str(error).strip())
                wait_s = READ_AGAIN_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _live_keys(self) -> Sequence[LiveKey]:
        kept, self._connection = self._connection, None
        if kept is not None:
            try:
                return await self._read_over(kept)
            except psycopg.OperationalError:
                pass  # the server may have been restarted since
        return await self._read_over(await self._database.connect_async(Role.READER, autocommit=True))

    async def _read_over(self, connection: AsyncConnection[Any]) -> Sequence[LiveKey]:
        """Keeps the connection for the next read."""
        try:
            found = await live_keys(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return found

    async def _read(self) -> None:
        # Counted from before the read: a change during the read is seen no later than that.
        began = time.monotonic()
        found = await self._live_keys()
        self._keys = {key.key_id: key for key in found}
        self._secrets = {key_id: secret for key_id, secret in self._secrets.items() if key_id in self._keys}
        self.origins = frozenset(origin for key in found for origin in key.origins)
        self._read_at = began
        KEYS.set(len(self._keys))
        self.loaded.set()
