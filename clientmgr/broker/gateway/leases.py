"""Messages that clients have in hand: claiming, acknowledging, moving deadlines, giving back. The SQL decides."""

import base64
import binascii
import contextlib
import itertools
import secrets
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

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


class AckId(NamedTuple):
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


class LeasedMessage(NamedTuple):
    """A message of the log, delivered for the `attempt`th time."""

    ack_id: AckId
    attempt: int
    ordering_key: str
    key: str
    data: bytes
    attributes: dict[str, str] | None
    published_at_us: int
    """In microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Deadline:
    ack_id: AckId
    seconds: int


@dataclass(frozen=True, slots=True)
class _Request:
    """What one call asks for. What came in time counts, however long the machine takes to write it down."""

    ack_ids: Sequence[AckId]
    received_at: float
    seconds: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.ack_ids)


# Which statement is to run for which subscription, and whether it may wait for claims.
_Work: TypeAlias = tuple[str, str, bool]


class Leases:
    """One process's view of all leases. What is asked for together is committed together.

    Acknowledgements and longer deadlines wait for no claim: they have connections of their own, and the SQL skips rows
    that somebody else has locked. Only for those it is asked again, and may wait.
    """

    def __init__(self, pool: Pool, settling_pool: Pool, wakeups: Wakeups) -> None:
        self._pool = pool
        self._settling_pool = settling_pool
        self._wakeups = wakeups
        self._batcher: Batcher[_Work, _Request, list[bool | None]] = Batcher(self._settle, len, MAX_ACKS_AT_ONCE)
        self._settling: dict[str, Counter[int]] = {}

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
        parameters = {
            "wanted": wanted,
            "max_bytes": max_bytes,
            "lease": lease,
            "lease_time": lease_time,
            "attempt_limit": attempt_limit,
            "settling": _array(self._settling.get(subscription.name, ())),
        }
        rows = await self._rows("claim", subscription.name, parameters, binary=True)
        return [LeasedMessage(AckId(subscription.id, offset, lease), *rest) for offset, *rest in rows]

    async def acknowledge(
        self, subscription: str, ack_ids: Sequence[AckId], received_at: float | None = None
    ) -> list[bool]:
        """Which of them are acknowledged, durably, when this returns. False only on exactly-once subscriptions.

        `received_at`: when the client's request came, by `time.monotonic`; None: now.
        """
        return await self._submit("acknowledge", subscription, _Request(ack_ids, received_at or time.monotonic()))

    async def modify(
        self, subscription: str, deadlines: Sequence[Deadline], received_at: float | None = None
    ) -> list[bool]:
        """Move the deadlines. Returns which of the leases were still held."""
        at = received_at or time.monotonic()
        results = [False] * len(deadlines)
        for query, wanted in (("extend", True), ("give_back", False)):
            places = [place for place, deadline in enumerate(deadlines) if bool(deadline.seconds) is wanted]
            ack_ids, seconds = [deadlines[n].ack_id for n in places], [deadlines[n].seconds for n in places]
            succeeded = await self._submit(query, subscription, _Request(ack_ids, at, seconds))
            for place, result in zip(places, succeeded, strict=True):
                results[place] = result
        return results

    async def release(self, subscription: str, held: Sequence[AckId]) -> None:
        """Give back those of `held` that nobody else has by now."""
        if not held:
            return
        await self._rows("release", subscription, _columns(held))
        self._wakeups.look_now()

    async def still_leased(self, subscription_id: int, held: Sequence[AckId]) -> set[AckId]:
        """Those of `held` whose leases have neither ended nor been settled."""
        rows = await self._rows("still_leased", "", {"id": subscription_id, **_columns(held)})
        return {AckId(subscription_id, offset, lease) for offset, lease in rows}

    async def finish(self) -> None:
        await self._batcher.finish()

    async def _submit(self, query: str, subscription: str, request: _Request) -> list[bool]:
        if not request.ack_ids:
            return []
        with self._noted(subscription, request.ack_ids):
            results = await self._batcher.submit((query, subscription, False), request)
            in_use = [nth for nth, result in enumerate(results) if result is None]
            if in_use:
                again = _Request(
                    [request.ack_ids[nth] for nth in in_use],
                    request.received_at,
                    [request.seconds[nth] for nth in in_use] if request.seconds else (),
                )
                for nth, result in zip(
                    in_use, await self._batcher.submit((query, subscription, True), again), strict=True
                ):
                    results[nth] = result
        return [bool(result) for result in results]

    @contextlib.contextmanager
    def _noted(self, subscription: str, ack_ids: Sequence[AckId]) -> Iterator[None]:
        """Meanwhile claims leave these messages where they are: their leases end only because we are slow."""
        offsets = [ack_id.offset for ack_id in ack_ids]
        noted = self._settling.setdefault(subscription, Counter())
        noted.update(offsets)
        try:
            yield
        finally:
            for offset in offsets:
                noted[offset] -= 1
                if noted[offset] <= 0:
                    del noted[offset]
            if not noted:
                self._settling.pop(subscription, None)

    async def _settle(self, work: _Work, requests: Sequence[_Request]) -> list[list[bool | None]]:
        query, subscription, patient = work
        ids = [ack_id for request in requests for ack_id in request.ack_ids]
        now = time.monotonic()
        parameters = {
            "ids": _array(ack_id.subscription_id for ack_id in ids),
            **_columns(ids),
            "ages": _array(now - request.received_at for request in requests for _ in request.ack_ids),
            "seconds": _array(seconds for request in requests for seconds in request.seconds),
            "patient": patient,
        }
        waits = patient or query == "give_back"
        rows = await self._rows(query, subscription, parameters, self._pool if waits else self._settling_pool)
        if query == "acknowledge":
            # The next of their ordering keys may be due now.
            self._wakeups.subscription_has_news(ids[0].subscription_id)
        elif query == "give_back":
            self._wakeups.look_now()
        return _by_request({nth: None if in_use else True for nth, in_use in rows}, requests)

    async def _rows(
        self,
        query: str,
        subscription: str,
        parameters: Mapping[str, Any],
        pool: Pool | None = None,
        *,
        binary: bool = False,
    ) -> list[tuple[Any, ...]]:
        async with (
            (pool or self._pool).connection() as connection,
            connection.cursor(row_factory=tuple_row, binary=binary) as cursor,
        ):
            with not_found_when_gone(subscription):
                await cursor.execute(QUERIES[query], {"name": subscription, **parameters})
            return await cursor.fetchall()


def _columns(ack_ids: Sequence[AckId]) -> dict[str, str]:
    return {
        "offsets": _array(ack_id.offset for ack_id in ack_ids),
        "leases": _array(ack_id.lease for ack_id in ack_ids),
    }


def _array(numbers: Iterable[float]) -> str:
    """As PostgreSQL reads an array. psycopg looks at each element, and takes ten times as long."""
    return f"{{{','.join(map(str, numbers))}}}"


def _by_request(results: Mapping[int, bool | None], requests: Sequence[_Request]) -> list[list[bool | None]]:
    """Positions, counted from 1 over all requests, as a list per request. None: to be asked again."""
    at = itertools.count(1)
    return [[results.get(next(at), False) for _ in request.ack_ids] for request in requests]
