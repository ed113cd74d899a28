"""Topics, their subscriptions and how far behind these are."""

from datetime import datetime

from msgspec import Struct

from clientmgr.broker.postgres.lag import COUNT_AT_MOST, SubscriptionLag, subscription_lag
from clientmgr.broker.tailing import list_topics as topics_of
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import Page, PageNumber, PerPage, api_get, paged, row_of


class TopicsRequest(Struct, frozen=True, rename="camel"):
    page: PageNumber = 1
    per_page: PerPage = 200


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
    )


OPERATIONS = (api_get("/topics", "Topics, readers and lag.", list_topics),)
