"""The Publisher service: topics, and Publish."""

import json
from typing import Any

from psycopg.rows import tuple_row

from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.gateway import paging
from clientmgr.broker.gateway.configuration import (
    changed_topic,
    normalised_topic,
    note_without_effect,
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
from clientmgr.broker.gateway.refusals import already_exists, exhausted, not_found
from clientmgr.broker.gateway.rpc import Call

QUERIES = named_queries("gateway/queries/topics.sql")


class PublisherService:
    """One method per call of google.pubsub.v1.Publisher."""

    def __init__(self, pool: Pool, names: Names, publishing: Publishing, settings: Settings) -> None:
        self._pool = pool
        self._names = names
        self._publishing = publishing
        self._total_partitions = settings.broker_total_partitions
        self._max_topics = settings.pubsub_gateway_max_topics

    async def create_topic(self, request: Proto, call: Call) -> Proto:
        topic = normalised_topic(request)
        call.caller.ensure_may_administer(topic.name)
        made_by = call.caller.identity.name
        columns = {
            "log_topic": self._names.log_topic(topic.name),
            "name": topic.name,
            "made_by": made_by,
            **topic_columns(topic),
        }
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            row = await (await cursor.execute(QUERIES["made_by"], {"made_by": made_by})).fetchone()
            if row is not None and row[0] >= self._max_topics:
                raise exhausted(f"{made_by} has made {row[0]} topics already; {self._max_topics} are allowed.")
            added = {**columns, "total_partitions": self._total_partitions}
            row = await (await cursor.execute(QUERIES["add_to_log"], added)).fetchone()
            if row is None:
                row = await (await cursor.execute(QUERIES["revive"], columns)).fetchone()
                if row is None:
                    raise already_exists(topic.name)
            await self._describe(cursor, row[0], topic.name, columns)
        note_without_effect(topic, [field.name for field, _ in topic.ListFields()])
        return topic_proto(topic.name, json.loads(columns["config"]))

    async def get_topic(self, request: Proto, call: Call) -> Proto:
        topic_parts(request.topic)
        call.caller.ensure_may_see_topic(request.topic)
        _, config = await self._find(request.topic)
        return topic_proto(request.topic, config)

    async def update_topic(self, request: Proto, call: Call) -> Proto:
        name = request.topic.name
        topic_parts(name)
        call.caller.ensure_may_administer(name)
        topic_id, config = await self._find(name)
        topic = changed_topic(topic_proto(name, config), request.topic, request.update_mask)
        columns = topic_columns(topic)
        async with self._pool.connection() as connection, connection.transaction():
            await self._describe(connection.cursor(row_factory=tuple_row), topic_id, name, columns)
        note_without_effect(topic, request.update_mask.paths)
        return topic_proto(name, json.loads(columns["config"]))

    async def list_topics(self, request: Proto, call: Call) -> Proto:
        project = project_of(request.project)
        limit, after = paging.page_of(request)
        own = project == self._names.own_project
        parameters = {"own": own, "prefix": f"projects/{project}/topics/", "after": after, "limit": limit + 1}
        rows = await self._rows("list", parameters)
        response = ListTopicsResponse()
        for log_topic, config in rows[:limit]:
            name = self._names.topic_of_log(log_topic)
            if name is not None and call.caller.sees_topic(name):
                response.topics.append(topic_proto(name, config))
        response.next_page_token = paging.token_after([row[0] for row in rows], limit)
        return response

    async def list_topic_subscriptions(self, request: Proto, call: Call) -> Proto:
        topic_parts(request.topic)
        call.caller.ensure_may_see_topic(request.topic)
        await self._find(request.topic)
        limit, after = paging.page_of(request)
        rows = await self._rows("subscriptions_of", {"topic": request.topic, "after": after, "limit": limit + 1})
        names = [row[0] for row in rows]
        return ListTopicSubscriptionsResponse(
            subscriptions=[name for name in names[:limit] if call.caller.sees_subscription(name)],
            next_page_token=paging.token_after(names, limit),
        )

    async def delete_topic(self, request: Proto, call: Call) -> Proto:
        topic_parts(request.topic)
        call.caller.ensure_may_administer(request.topic)
        topic_id, _ = await self._find(request.topic)
        parameters = {"name": request.topic, "topic_id": topic_id}
        async with self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            # While the counter is locked nobody publishes: the log ends here.
            row = await (await cursor.execute(QUERIES["lock"], parameters)).fetchone()
            await cursor.execute(QUERIES["mark_deleted"], parameters)
            await cursor.execute(QUERIES["orphan_subscriptions"], {**parameters, "next_offset": row and row[1]})
            await cursor.execute(QUERIES["orphan_snapshots"], parameters)
            await cursor.execute(QUERIES["drop_retention_group"], parameters)
        return Empty()

    async def publish(self, request: Proto, call: Call) -> Proto:
        topic_parts(request.topic)
        caller = call.caller
        caller.ensure_may_publish(request.topic)
        messages = messages_of(request, caller.stamp(self._names.log_topic(request.topic)))
        caller.ensure_may_publish_about(messages)
        offsets = await self._publishing.publish(request.topic, messages)
        return PublishResponse(message_ids=[str(offset) for offset in offsets])

    async def _find(self, name: str) -> tuple[int, dict[str, Any] | None]:
        rows = await self._rows("find", {"log_topic": self._names.log_topic(name)})
        if not rows:
            raise not_found(name)
        topic_id, config = rows[0]
        return topic_id, config

    async def _describe(self, cursor: Any, topic_id: int, name: str, columns: dict[str, Any]) -> None:
        parameters = {"made_by": "", "topic_id": topic_id, "name": name, **columns}
        await cursor.execute(QUERIES["describe"], parameters)
        await cursor.execute(
            QUERIES["hold_retention_group" if columns["retention"] else "drop_retention_group"], parameters
        )

    async def _rows(self, query: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(QUERIES[query], parameters)
            return await cursor.fetchall()
