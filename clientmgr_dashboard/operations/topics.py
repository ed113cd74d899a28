"""Topics, their subscriptions and how far behind these are."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.masking import masked, masked_text
from clientmgr.broker.erased import is_erased
from clientmgr.broker.pauses import pause, resume
from clientmgr.broker.postgres.lag import COUNT_AT_MOST, SubscriptionLag, subscription_lag
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError
from clientmgr.broker.tailing import StoredMessage, browse
from clientmgr.broker.tailing import list_topics as topics_of
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Changed,
    Moment,
    Newest,
    NotFoundError,
    Page,
    PageNumber,
    PerPage,
    Reason,
    RowNumber,
    SearchText,
    api_get,
    api_post,
    newest,
    paged,
    row_of,
)


class TopicsRequest(Struct, frozen=True, rename="camel"):
    page: PageNumber = 1
    per_page: PerPage = 200


class MessagesRequest(Struct, frozen=True, rename="camel"):
    topic: SearchText
    tenant: SearchText | None = None
    """Of this tenant alone, among the newest."""
    until: Moment | None = None
    """Published before this time."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    before: RowNumber | None = None
    """Below this offset."""


class TopicMessage(Struct, frozen=True, rename="camel"):
    """A message of a topic. Secrets in it are masked."""

    offset: int
    partition: int
    published_at: datetime
    tenant: str
    key: str
    attributes: dict[str, str]
    bytes: int
    payload: str | None
    """Null: it is too large to be shown."""
    is_erased: bool


class PauseRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    subscription: SearchText
    reason: Reason


class ResumeRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    subscription: SearchText


class TopicReader(Struct, frozen=True, rename="camel"):
    """A subscription of a topic."""

    subscription: str
    is_gone: bool
    """It left dead letters and nothing else."""
    unread: int
    is_at_least: bool
    oldest_unread_s: float
    retries: int
    dead_letters: int
    paused_by: str | None
    """Who has paused it; null: it is not paused."""
    paused_at: datetime | None
    pause_reason: str


class TopicRow(Struct, frozen=True, rename="camel"):
    """A topic of the log."""

    topic: str
    partitions: int
    last_offset: int
    """How many messages it has had in all time."""
    messages_per_second: float | None
    created_at: datetime
    readers: list[TopicReader]


async def list_topics(context: Context, _visitor: Visitor, request: TopicsRequest) -> Page[TopicRow]:
    async with context.reading() as connection:
        found = await topics_of(connection)
        readers: dict[str, list[TopicReader]] = {}
        for lag in await subscription_lag(connection, at_most=COUNT_AT_MOST):
            readers.setdefault(lag.topic, []).append(_reader(lag))
    rows = [
        row_of(
            TopicRow,
            topic,
            messages_per_second=context.sampler.rate(topic.topic),
            readers=readers.get(topic.topic, []),
        )
        for topic in found
    ]
    return paged(rows, request.page, request.per_page)


def _reader(lag: SubscriptionLag) -> TopicReader:
    return TopicReader(
        subscription=lag.subscription,
        is_gone=not lag.partitions,
        unread=lag.messages,
        is_at_least=any(partition.messages >= COUNT_AT_MOST for partition in lag.partitions),
        oldest_unread_s=round(lag.seconds(), 1),
        retries=lag.waiting,
        dead_letters=lag.dead,
        paused_by=None if lag.pause is None else lag.pause.paused_by,
        paused_at=None if lag.pause is None else lag.pause.paused_at,
        pause_reason="" if lag.pause is None else lag.pause.reason,
    )


async def browse_topic(context: Context, _visitor: Visitor, request: MessagesRequest) -> Newest[TopicMessage]:
    """What a topic has, the newest first. It reads along: nobody gets less for it."""
    async with context.reading() as connection:
        try:
            found = await browse(
                connection,
                request.topic,
                limit=request.limit + 1,
                before=request.before,
                until=request.until,
                tenant=request.tenant,
            )
        except UnknownTopicError as error:
            raise NotFoundError(str(error)) from None
    return newest([_message(one) for one in found], request.limit, lambda message: message.offset)


def _message(one: StoredMessage) -> TopicMessage:
    return TopicMessage(
        one.c_offset,
        one.partition,
        one.published_at,
        one.tenant,
        one.key,
        masked(dict(one.attributes)),
        one.size,
        None if one.data is None else masked_text(one.data),
        one.data is not None and is_erased(one.attributes, one.data),
    )


async def pause_subscription(context: Context, visitor: Visitor, request: PauseRequest) -> Changed:
    """Nobody claims anything of it any more. A batch in hand is finished."""

    def change(connection: Connection[Any]) -> bool:
        return pause(connection, request.subscription, context.audit, reason=request.reason, actor=visitor.actor)

    return await _changed(context, change)


async def resume_subscription(context: Context, visitor: Visitor, request: ResumeRequest) -> Changed:
    def change(connection: Connection[Any]) -> bool:
        return resume(connection, request.subscription, context.audit, actor=visitor.actor)

    return await _changed(context, change)


async def _changed(context: Context, change: Callable[[Connection[Any]], bool]) -> Changed:
    try:
        return Changed(await context.write(change))
    except UnknownSubscriptionError as error:
        raise NotFoundError(str(error)) from None


OPERATIONS = (
    api_get("/topics", "Topics, readers and lag.", list_topics),
    api_get("/topics/messages", "Messages of a topic, the newest first, secrets masked.", browse_topic),
    api_post("/subscriptions/pause", "Keep everybody from reading as a subscription.", pause_subscription),
    api_post("/subscriptions/resume", "Let a paused subscription go on.", resume_subscription),
)
