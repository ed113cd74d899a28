"""Snapshots: a subscription's state kept under a name, and going back to it.

The log keeps what a snapshot needs: to its retention a snapshot is a group that stands still.
"""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway import paging
from clientmgr.broker.gateway.configuration import masked_fields
from clientmgr.broker.gateway.labels import check_labels
from clientmgr.broker.gateway.names import SNAPSHOT, check_snapshot, check_subscription, project_of, topic_parts
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.protos import (
    Empty,
    ListSnapshotsResponse,
    ListTopicSnapshotsResponse,
    Proto,
    Snapshot,
)
from clientmgr.broker.gateway.refusals import (
    already_exists,
    exhausted,
    invalid,
    not_found,
    not_found_when_gone,
    not_possible_now,
)
from clientmgr.broker.gateway.rpc import Call
from clientmgr.broker.gateway.subscriptions import Subscriptions

QUERIES = named_queries("gateway/queries/snapshots.sql")
# Google's: a snapshot ends a week after the oldest message in it, and one that would end within the hour is refused.
LIFETIME: Final = timedelta(days=7)
LEAST_LIFETIME: Final = timedelta(hours=1)
TOO_OLD: Final = "CM412"  # SQLSTATE of clientmgr.gateway_take_snapshot


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """The columns of gateway_snapshots that our code needs."""

    name: str
    topic: str
    labels: dict[str, str]
    expires_at: datetime
    created_at: datetime
    tenants: list[str] | None
    """The customers whose messages it keeps. None: all."""

    def proto(self) -> Proto:
        message = Snapshot(name=self.name, topic=self.topic, labels=self.labels)
        message.expire_time.FromDatetime(self.expires_at)
        return message


class Snapshots:
    """The calls about snapshots, of both services."""

    def __init__(self, pool: Pool, subscriptions: Subscriptions, most: int) -> None:
        """`most`: snapshots that a caller may have."""
        self._pool = pool
        self._subscriptions = subscriptions
        self._most = most

    async def create_snapshot(self, request: Proto, call: Call) -> Proto:
        source = check_subscription(request.subscription)
        project = source.split("/")[1]
        name = check_snapshot(request.name or f"projects/{project}/{SNAPSHOT}/snapshot-{uuid.uuid4().hex}")
        check_labels(request.labels)
        caller = call.caller
        caller.ensure_may_administer(name)
        caller.ensure_may_administer(source)
        caller.ensure_may_change(await self._subscriptions.find_attached(source))
        made_by = caller.identity.name
        parameters = {
            "subscription": source,
            "name": name,
            "labels": json.dumps(dict(request.labels)),
            "made_by": made_by,
            "lifetime": LIFETIME,
            "least_lifetime": LEAST_LIFETIME,
        }
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            made = await (await cursor.execute(QUERIES["made_by"], parameters)).fetchone()
            if made is not None and made[0] >= self._most:
                raise exhausted(f"{made_by} has made {made[0]} snapshots; {self._most} are allowed.")
            taken = await self._take(cursor, parameters)
        if not taken:
            raise already_exists(name)
        return (await self._find(name)).proto()

    async def get_snapshot(self, request: Proto, call: Call) -> Proto:
        call.caller.ensure_may_see_subscription(check_snapshot(request.snapshot))
        return (await self._find(request.snapshot)).proto()

    async def update_snapshot(self, request: Proto, call: Call) -> Proto:
        name = check_snapshot(request.snapshot.name)
        call.caller.ensure_may_administer(name)
        current = await self._find(name)
        call.caller.ensure_may_change(current)
        wanted = masked_fields(current.proto(), request.snapshot, request.update_mask, {"labels", "expire_time"})
        check_labels(wanted.labels)
        parameters = {
            "name": name,
            "labels": json.dumps(dict(wanted.labels)),
            "expires_at": _checked_end(wanted.expire_time, current),
        }
        async with self._pool.connection() as connection:
            await connection.execute(QUERIES["change"], parameters)
        return (await self._find(name)).proto()

    async def delete_snapshot(self, request: Proto, call: Call) -> Proto:
        name = check_snapshot(request.snapshot)
        call.caller.ensure_may_administer(name)
        call.caller.ensure_may_change(await self._find(name))
        if not await self._rows("forget", {"name": name}):
            raise not_found(name)
        return Empty()

    async def list_snapshots(self, request: Proto, call: Call) -> Proto:
        prefix = f"projects/{project_of(request.project)}/{SNAPSHOT}/"
        limit, after = paging.page_of(request)
        rows = [
            SnapshotRow(*row)
            for row in await self._rows("list", {"prefix": prefix, "after": after, "limit": limit + 1})
        ]
        return ListSnapshotsResponse(
            snapshots=[row.proto() for row in rows[:limit] if call.caller.sees_subscription(row.name)],
            next_page_token=paging.token_after([row.name for row in rows], limit),
        )

    async def list_topic_snapshots(self, request: Proto, call: Call) -> Proto:
        topic_parts(request.topic)
        call.caller.ensure_may_see_topic(request.topic)
        await self._subscriptions.ensure_topic_exists(request.topic)
        limit, after = paging.page_of(request)
        rows = await self._rows("of_topic", {"topic": request.topic, "after": after, "limit": limit + 1})
        names = [row[0] for row in rows]
        return ListTopicSnapshotsResponse(
            snapshots=[name for name in names[:limit] if call.caller.sees_subscription(name)],
            next_page_token=paging.token_after(names, limit),
        )

    async def seek(self, request: Proto, call: Call) -> Proto:
        """Seek to a snapshot here, to a time there."""
        if request.WhichOneof("target") != "snapshot":
            return await self._subscriptions.seek(request, call)
        name = check_subscription(request.subscription)
        call.caller.ensure_may_administer(name)
        subscription = await self._subscriptions.find_attached(name)
        call.caller.ensure_may_change(subscription)
        snapshot = check_snapshot(request.snapshot)
        call.caller.ensure_may_administer(snapshot)
        call.caller.ensure_may_change(await self._find(snapshot))
        with not_found_when_gone(name):
            found = await self._rows("seek", {"subscription": name, "name": snapshot})
        if found != [(True,)]:
            raise invalid(f"{snapshot} is no snapshot of the subscription's topic, {subscription.topic}.")
        return self._subscriptions.sought(subscription)

    async def _take(self, cursor: psycopg.AsyncCursor[Any], parameters: dict[str, Any]) -> bool:
        source = parameters["subscription"]
        try:
            with not_found_when_gone(source):
                row: Any = await (await cursor.execute(QUERIES["take"], parameters)).fetchone()
        except psycopg.DatabaseError as error:
            if error.sqlstate != TOO_OLD:
                raise
            raise not_possible_now(
                f"{source} has a message that is so old that a snapshot would end within an hour: a snapshot lives for "
                f"{LIFETIME.days} days from its oldest message. Acknowledge it, or seek past it, and try again."
            ) from None
        return bool(row[0])

    async def _find(self, name: str) -> SnapshotRow:
        rows = await self._rows("find", {"name": name})
        if not rows:
            raise not_found(name)
        return SnapshotRow(*rows[0])

    async def _rows(self, query: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES[query], parameters)
            return await cursor.fetchall()


def _checked_end(wanted: Proto, current: SnapshotRow) -> datetime:
    """When the snapshot is to end: still to come, and within its lifetime."""
    latest = current.created_at + LIFETIME
    try:
        moment: datetime = wanted.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise invalid("Invalid expire_time: out of range.") from None
    if not datetime.now(UTC) < moment <= latest:
        raise invalid(f"Invalid expire_time: {moment:%FT%TZ} given, from now to {latest:%FT%TZ} allowed.")
    return moment
