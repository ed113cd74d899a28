"""Requests for activation and deletion as soon as they are in the message log, before a sensor has recorded them.

A daemon that meets a customer it does not know looks here. It reads each message once: from where the sensor stands,
and then only what is new. What the sensor has recorded is forgotten here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts import topics
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.lifecycle import TenantRequest, decode_activation, decode_deletion
from clientmgr.tenants.registry import TenantStatus
from clientmgr.tenants.requested_states import RequestedState

_QUERIES = named_queries("tenants/queries/requests_in_log.sql")

MESSAGES_A_READ = 1000

_TOPICS: Final[dict[str, tuple[RequestedState, Callable[[bytes], TenantRequest]]]] = {
    topics.ACTIVATE_CUSTOMER: (RequestedState.ACTIVE, decode_activation),
    topics.ACCOUNT_DELETION: (RequestedState.DELETED, decode_deletion),
}

Request = tuple[datetime, RequestedState]
"""As `tenant_wishes` compares them: the newest counts, and of two at the same moment the deletion."""


@dataclass
class _Topic:
    """What is known of one topic's unread messages."""

    topic_id: int
    unread_from: int = 1
    next_offset: int = 1
    newest: dict[CustomerId, tuple[datetime, int]] = field(default_factory=dict)
    """When the customer's newest request was made, and its offset."""

    def pass_recorded(self, unread_from: int) -> None:
        if unread_from > self.unread_from:
            self.unread_from = unread_from
            self.next_offset = max(self.next_offset, unread_from)
            self.newest = {customer: known for customer, known in self.newest.items() if known[1] >= unread_from}

    def add(self, offset: int, request: TenantRequest | None) -> None:
        # Batches in hand at once may read the same messages: the slower one must not turn back.
        self.next_offset = max(self.next_offset, offset + 1)
        if request is None or request.asked_at is None:
            return
        known = self.newest.get(request.customer_id)
        if known is None or request.asked_at >= known[0]:
            self.newest[request.customer_id] = (request.asked_at, offset)


class RequestsInLog:
    """One per daemon: it remembers how far it has read."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}

    async def statuses(
        self, connection: AsyncConnection[Any], customer_ids: Sequence[CustomerId]
    ) -> dict[CustomerId, str | None]:
        """The registry's statuses. A customer whose activation is requested and has not begun counts as activating."""
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_QUERIES["unread_from"], {"topics": list(_TOPICS)})
            for topic, topic_id, unread_from in await cursor.fetchall():
                await self._read(connection, topic, topic_id, unread_from)
            await cursor.execute(_QUERIES["recorded"], {"customer_ids": list(customer_ids)})
            rows = await cursor.fetchall()
        return {
            customer_id: self._status(customer_id, status, (asked_at, RequestedState(wish)) if wish else None)
            for customer_id, status, wish, asked_at in rows
        }

    def _status(self, customer_id: CustomerId, status: str | None, recorded: Request | None) -> str | None:
        if status in (TenantStatus.ACTIVE, TenantStatus.ACTIVATING):
            return status
        requests = [] if recorded is None else [recorded]
        for name, topic in self._topics.items():
            if customer_id in topic.newest:
                requests.append((topic.newest[customer_id][0], _TOPICS[name][0]))
        if requests and max(requests)[1] is RequestedState.ACTIVE:
            return TenantStatus.ACTIVATING
        return status

    async def _read(self, connection: AsyncConnection[Any], name: str, topic_id: int, unread_from: int) -> None:
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            topic = self._topics[name] = _Topic(topic_id)
        topic.pass_recorded(unread_from)
        while True:
            wanted = {"topic": name, "topic_id": topic_id, "from_offset": topic.next_offset, "limit": MESSAGES_A_READ}
            async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
                await cursor.execute(_QUERIES["read"], wanted)
                rows = await cursor.fetchall()
            for offset, payload in rows:
                topic.add(offset, _decoded(name, payload))
            if len(rows) < MESSAGES_A_READ:
                return


def _decoded(topic: str, payload: bytes) -> TenantRequest | None:
    """None: nobody can act on the message. The sensor sets it aside."""
    try:
        return _TOPICS[topic][1](payload)
    except InvalidMessageError:
        return None
