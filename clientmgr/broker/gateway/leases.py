"""Messages that clients have in hand: claiming, acknowledging, moving deadlines, giving back. The SQL decides."""

import base64
import binascii
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.batcher import Batcher
from clientmgr.broker.gateway.configuration import SubscriptionRow
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.refusals import invalid, not_found_when_gone
from clientmgr.broker.gateway.wakeups import Wakeups

QUERIES = named_queries("gateway/queries/leases.sql")
MAX_ACKS_AT_ONCE = 10_000
_ACK_ID = struct.Struct(">qqq")


@dataclass(frozen=True, slots=True)
class AckId:
    """What a client acknowledges with: one delivery of one message to one subscription."""

    subscription_id: int
    offset: int
    lease: int

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(_ACK_ID.pack(self.subscription_id, self.offset, self.lease)).decode()

    @classmethod
    def parse(cls, text: str) -> "AckId":
        try:
            return cls(*_ACK_ID.unpack(base64.b64decode(text, altchars=b"-_", validate=True)))
        except (binascii.Error, struct.error, ValueError):
            raise invalid(f"You have passed an invalid ack ID to the service (ack_id={text}).") from None


@dataclass(frozen=True, slots=True)
class LeasedMessage:
    """A message of the log, delivered for the `attempt`th time."""

    ack_id: AckId
    attempt: int
    ordering_key: str
    key: str
    data: bytes
    attributes: dict[str, str]
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Deadline:
    ack_id: AckId
    seconds: int


class Leases:
    """One process's view of all leases. Acknowledgements that come together are committed together."""

    def __init__(self, pool: Pool, wakeups: Wakeups) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._acknowledging: Batcher[str, Sequence[AckId], list[bool]] = Batcher(
            self._acknowledge, len, MAX_ACKS_AT_ONCE
        )
        self._modifying: Batcher[str, Sequence[Deadline], list[bool]] = Batcher(self._modify, len, MAX_ACKS_AT_ONCE)

    async def claim(
        self,
        subscription: SubscriptionRow,
        *,
        wanted: int,
        max_bytes: int,
        lease_time: timedelta | None,
        attempt_limit: int | None,
    ) -> list[LeasedMessage]:
        """At most `wanted` messages, and no more once they fill `max_bytes`; none when nothing is due."""
        # Random: after a crash of the database a counter might give out a number twice.
        lease = secrets.randbits(62) + 1
        rows = await self._rows(
            "claim",
            subscription.name,
            wanted=wanted,
            max_bytes=max_bytes,
            lease=lease,
            lease_time=lease_time,
            attempt_limit=attempt_limit,
        )
        return [
            LeasedMessage(AckId(subscription.id, offset, lease), attempt, ordering_key, key, data, attributes, at)
            for offset, attempt, ordering_key, key, data, attributes, at in rows
        ]

    async def acknowledge(self, subscription: str, ack_ids: Sequence[AckId]) -> list[bool]:
        """Which of them are acknowledged, durably, when this returns. False only on exactly-once subscriptions."""
        return await self._acknowledging.submit(subscription, ack_ids) if ack_ids else []

    async def modify(self, subscription: str, deadlines: Sequence[Deadline]) -> list[bool]:
        """Move the deadlines. Returns which of the leases were still held."""
        return await self._modifying.submit(subscription, deadlines) if deadlines else []

    async def release(self, subscription: str, held: Sequence[AckId]) -> None:
        """Give back those of `held` that nobody else has by now."""
        if not held:
            return
        await self._rows("release", subscription, **_columns(held))
        self._wakeups.look_now()

    async def still_leased(self, subscription_id: int, held: Sequence[AckId]) -> set[AckId]:
        """Those of `held` whose leases have neither ended nor been settled."""
        rows = await self._rows("still_leased", "", id=subscription_id, **_columns(held))
        return {AckId(subscription_id, offset, lease) for offset, lease in rows}

    async def finish(self) -> None:
        await self._acknowledging.finish()
        await self._modifying.finish()

    async def _acknowledge(self, subscription: str, batches: Sequence[Sequence[AckId]]) -> list[list[bool]]:
        ids = [ack_id for batch in batches for ack_id in batch]
        rows = await self._rows(
            "acknowledge",
            subscription,
            ids=[ack_id.subscription_id for ack_id in ids],
            **_columns(ids),
        )
        # The next of their ordering keys may be due now.
        self._wakeups.subscription_has_news(ids[0].subscription_id)
        return _by_batch({nth for (nth,) in rows}, [len(batch) for batch in batches])

    async def _modify(self, subscription: str, batches: Sequence[Sequence[Deadline]]) -> list[list[bool]]:
        deadlines = [deadline for batch in batches for deadline in batch]
        rows = await self._rows(
            "modify_deadline",
            subscription,
            ids=[deadline.ack_id.subscription_id for deadline in deadlines],
            **_columns([deadline.ack_id for deadline in deadlines]),
            seconds=[deadline.seconds for deadline in deadlines],
        )
        if any(deadline.seconds == 0 for deadline in deadlines):
            self._wakeups.look_now()
        return _by_batch({nth for (nth,) in rows}, [len(batch) for batch in batches])

    async def _rows(self, query: str, subscription: str, **parameters: Any) -> list[tuple[Any, ...]]:
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            with not_found_when_gone(subscription):
                await cursor.execute(QUERIES[query], {"name": subscription, **parameters})
            return await cursor.fetchall()


def _columns(ack_ids: Sequence[AckId]) -> dict[str, list[int]]:
    return {
        "offsets": [ack_id.offset for ack_id in ack_ids],
        "leases": [ack_id.lease for ack_id in ack_ids],
    }


def _by_batch(succeeded: set[int], sizes: Sequence[int]) -> list[list[bool]]:
    """Positions, counted from 1 over all batches, as a list per batch."""
    results = []
    at = 1
    for size in sizes:
        results.append([nth in succeeded for nth in range(at, at + size)])
        at += size
    return results
