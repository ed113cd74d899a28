"""The Publisher service: topics, and Publish."""

import json
from typing import Any

from psycopg.rows import tuple_row

from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway import paging
from clientmgr.broker.gateway.configuration import (
    changed_topic,
    normalised_topic,
    topic_columns,
    topic_proto,
)
from clientmgr.broker.gateway.names import Names, project_of, topic_parts
from clientmgr.broker.gateway.pool import Pool
from clientmgr.broker.gateway.protos import (
    Empty,
    ListTopicsResponse,
    ListTopicSubscriptionsResponse,
    Proto,
    PublishResponse,
)
from clientmgr.broker.gateway.publishing import Publishing, messages_of
from clientmgr.broker.gateway.refusals import already_exists, not_found

QUERIES = named_queries("gateway/queries/topics.sql")


class PublisherService:
    """One method per call of google.pubsub.v1.Publisher."""

    def __init__(self, pool: Pool, names: Names, publishing: Publishing, total_partitions: int) -> None:
        self._pool = pool
        self._names = names
        self._publishing = publishing
        self._total_partitions = total_partitions

    async def create_topic(self, request: Proto, _context: Any) -> Proto:
        topic = normalised_topic(request)
        columns = {"log_topic": self._names.log_topic(topic.name), "name": topic.name, **topic_columns(topic)}
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            added = {**columns, "total_partitions": self._total_partitions}
            row = await (await cursor.execute(QUERIES["add_to_log"], added)).fetchone()
            if row is None:
                row = await (await cursor.execute(QUERIES["revive"], columns)).fetchone()
                if row is None:
                    raise already_exists(topic.name)
            await self._describe(cursor, row[0], topic.name, columns)
        return topic_proto(topic.name, json.loads(columns["config"]))

    async def get_topic(self, request: Proto, _context: Any) -> Proto:
        _, config = await self._find(request.topic)
        return topic_proto(request.topic, config)

    async def update_topic(self, request: Proto, _context: Any) -> Proto:
        name = request.topic.name
        topic_id, config = await self._find(name)
        topic = changed_topic(topic_proto(name, config), request.topic, request.update_mask)
        columns = topic_columns(topic)
        async with self._pool.connection() as connection, connection.transaction():
            await self._describe(connection.cursor(row_factory=tuple_row), topic_id, name, columns)
        return topic_proto(name, json.loads(columns["config"]))

    async def list_topics(self, request: Proto, _context: Any) -> Proto:
        project = project_of(request.project)
        limit, after = paging.page_of(request)
        own = project == self._names.own_project
        parameters = {"own": own, "prefix": f"projects/{project}/topics/", "after": after, "limit": limit + 1}
        rows = await self._rows("list", parameters)
        response = ListTopicsResponse()
        for log_topic, config in rows[:limit]:
            name = self._names.topic_of_log(log_topic)
            if name is not None:
                response.topics.append(topic_proto(name, config))
        response.next_page_token = paging.token_after([row[0] for row in rows], limit)
        return response

    async def list_topic_subscriptions(self, request: Proto, _context: Any) -> Proto:
        await self._find(request.topic)
        limit, after = paging.page_of(request)
        rows = await self._rows("subscriptions_of", {"topic": request.topic, "after": after, "limit": limit + 1})
        names = [row[0] for row in rows]
        return ListTopicSubscriptionsResponse(
            subscriptions=names[:limit], next_page_token=paging.token_after(names, limit)
        )

    async def delete_topic(self, request: Proto, _context: Any) -> Proto:
        topic_id, _ = await self._find(request.topic)
        parameters = {"name": request.topic, "topic_id": topic_id}
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            # While the counter is locked nobody publishes: the log ends here.
            row = await (await cursor.execute(QUERIES["lock"], parameters)).fetchone()
            await cursor.execute(QUERIES["mark_deleted"], parameters)
            await cursor.execute(QUERIES["orphan_subscriptions"], {**parameters, "next_offset": row and row[1]})
            await cursor.execute(QUERIES["drop_retention_group"], parameters)
        return Empty()

    async def publish(self, request: Proto, _context: Any) -> Proto:
        topic_parts(request.topic)
        offsets = await self._publishing.publish(request.topic, messages_of(request))
        return PublishResponse(message_ids=[str(offset) for offset in offsets])

    async def _find(self, name: str) -> tuple[int, dict[str, Any] | None]:
        rows = await self._rows("find", {"log_topic": self._names.log_topic(name)})
        if not rows:
            raise not_found(name)
        topic_id, config = rows[0]
        return topic_id, config

    async def _describe(self, cursor: Any, topic_id: int, name: str, columns: dict[str, Any]) -> None:
        parameters = {"topic_id": topic_id, "name": name, **columns}
        await cursor.execute(QUERIES["describe"], parameters)
        await cursor.execute(
            QUERIES["hold_retention_group" if columns["retention"] else "drop_retention_group"], parameters
        )

    async def _rows(self, query: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES[query], parameters)
            return await cursor.fetchall()
