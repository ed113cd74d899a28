"""The last known position of each device: in memory for snapshots, in Redis to survive a restart."""

import time
from collections.abc import Iterable
from typing import cast

import msgspec

from clientmgr.base.portions import portions
from clientmgr.live.redis_stream import RedisClient
from streaming.live.records import LARGEST_RECORD

FORGET_AT_ONCE = 1000
NAMES_BYTES = 1024
"""How much longer than its record a position can be: it has the device's id in JSON, and names of fields."""


class _Timed(msgspec.Struct):
    ts: int


_decoder = msgspec.json.Decoder(_Timed)


class LastPositions:
    """The newest position by the time of its fix: an old fix that a device sends late does not count."""

    def __init__(self, stream: str, keep_days: int = 0, *, largest_bytes: int = LARGEST_RECORD) -> None:
        """Positions older than `keep_days` are forgotten, in Redis too. 0: keep all. So are those that come from a
        record of more than `largest_bytes`, which an earlier version may have saved.
        """
        self._key = f"{stream}:last-positions"
        self._upto_key = f"{self._key}:upto"
        self._keep_ms = keep_days * 86_400_000
        self._largest_bytes = largest_bytes + NAMES_BYTES
        self._known: dict[str, tuple[int, bytes]] = {}
        self._unsaved: set[str] = set()
        self._saved_upto = b""
        self.upto = b""
        """Id of the newest entry that counts here, whatever came of it. Empty: not known yet."""

    def put(self, device_id: str, ts: int, body: bytes) -> None:
        known = self._known.get(device_id)
        if known is None or known[0] <= ts:
            self._known[device_id] = (ts, body)
            self._unsaved.add(device_id)

    def bodies(self, device_ids: Iterable[str]) -> list[bytes]:
        """The known positions of the given devices."""
        found = (self._known.get(device_id) for device_id in device_ids)
        return [known[1] for known in found if known is not None]

    async def load(self, client: RedisClient) -> None:
        """Add what other instances have saved, or this one before a restart, and up to which entry that goes."""
        self.upto = self.upto or cast(bytes | None, await client.get(self._upto_key)) or b""
        saved = cast(dict[bytes, bytes], await client.hgetall(self._key))
        too_large = [device_id for device_id, body in saved.items() if len(body) > self._largest_bytes]
        for device_id in too_large:
            del saved[device_id]
        for portion in portions(too_large, FORGET_AT_ONCE):
            await client.hdel(self._key, *portion)
        for device_id, body in saved.items():
            try:
                ts = _decoder.decode(body).ts
                name = device_id.decode()
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # somebody else wrote it
            known = self._known.get(name)
            if known is None or known[0] < ts:
                self._known[name] = (ts, body)
        await self.forget_old(client)

    async def forget_old(self, client: RedisClient) -> None:
        """Drop devices whose last position is older than the retention."""
        if not self._keep_ms:
            return
        oldest = time.time() * 1000 - self._keep_ms
        old = [device_id for device_id, (ts, _) in self._known.items() if ts < oldest]
        for device_id in old:
            del self._known[device_id]
        self._unsaved.difference_update(old)
        # A device that reports again just now is saved again: every instance reads its record.
        for portion in portions(old, FORGET_AT_ONCE):
            await client.hdel(self._key, *portion)

    async def save(self, client: RedisClient) -> None:
        """Write what is new. What can't be written now is kept for the next call."""
        upto = self.upto
        if self._unsaved:
            saving, self._unsaved = self._unsaved, set()
            try:
                await client.hset(self._key, mapping={device_id: self._known[device_id][1] for device_id in saving})
            except BaseException:
                self._unsaved |= saving & self._known.keys()  # some may have been dropped in between
                raise
        if upto != self._saved_upto:
            # After the positions: who begins here later reads on from an entry that is surely in them. An instance that
            # is behind may take it back a little, which costs the next one a little more to read.
            await client.set(self._upto_key, upto)
            self._saved_upto = upto
