"""`clientmgr topics`: topics, their subscriptions and how far behind these are; resizing, trimming, dropping.

`seek`, `pause` and `resume` have files of their own.
"""

import asyncio
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from clientmgr.base.database import Database, Role
from clientmgr.base.wording import plural
from clientmgr.broker.postgres.lag import COUNT_AT_MOST, SubscriptionLag, subscription_lag
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.postgres.retention import trim as trim_log
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError, drop_group, resize_topic
from clientmgr.broker.tailing import Topic, list_topics
from clientmgr.cli import pause, seek
from clientmgr.cli.output import JsonOption, YesOption, console, open_database, print_json, show_rows

app = typer.Typer(
    help="Topics, their subscriptions and how far behind these are; resize, trim, seek, pause, drop subscriptions.",
    invoke_without_command=True,
)

app.command()(seek.seek)
pause.register(app)

TopicArgument = Annotated[str, typer.Argument(show_default=False)]


@dataclass(frozen=True, slots=True)
class Overview:
    """A topic and its subscriptions."""

    topic: Topic
    subscriptions: list[SubscriptionLag]


@app.callback()
def topics(context: typer.Context, as_json: JsonOption = False) -> None:
    """List topics with their subscriptions: unread messages, the oldest one's age, retries, dead letters."""
    if context.invoked_subcommand is not None:
        return
    database, _ = open_database()
    overview = asyncio.run(_overview(database))
    if as_json:
        print_json([_as_object(item) for item in overview])
        return
    columns = ["topic", "partitions", "subscription", "unread", "oldest_unread", "retries", "dead_letters"]
    rows = [row for item in overview for row in _as_rows(item)]
    show_rows(rows, columns, as_json=False, empty="no topics yet")


@app.command()
def resize(topic: TopicArgument, partitions: Annotated[int, typer.Argument(min=1, max=1024)]) -> None:
    """Change a topic's number of partitions. Refused until every subscription has read it to its end."""
    database, _ = open_database()

    async def run() -> None:
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            await resize_topic(connection, topic, partitions)

    asyncio.run(run())
    console.print(f"topic {topic} has {partitions} partitions", markup=False, highlight=False)


@app.command()
def trim(
    topic: Annotated[str | None, typer.Argument(show_default=False, help="Only this topic.")] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Keep what is younger. Default: BROKER_RETENTION_HOURS. With less than that, topics that nobody "
            "reads, such as error topics, are left out unless named.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Delete messages that every subscription has passed and that are older than the retention. Dead letters stay."""
    database, settings = open_database()
    retention_hours = settings.broker_retention_hours if hours is None else hours

    async def run() -> int:
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            if topic is not None and not await list_topics(connection, topic):
                raise UnknownTopicError(topic)
            # Less means "what has been read may go": where nobody reads, nothing has been.
            only_read = topic is None and retention_hours < settings.broker_retention_hours
            return await trim_log(connection, retention_hours=retention_hours, topic=topic, only_read=only_read)

    deleted = asyncio.run(run())
    if as_json:
        print_json({"deleted": deleted})
    else:
        console.print(f"{plural(deleted, 'message')} deleted", highlight=False)


@app.command("drop-subscription")
def drop_subscription(subscription: Annotated[str, typer.Argument(show_default=False)], yes: YesOption = False) -> None:
    """Forget a subscription that nobody reads any more: the log keeps no messages for it. Its dead letters stay."""
    database, _ = open_database()

    async def run() -> None:
        async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
            found = [lag for lag in await subscription_lag(connection, subscription=subscription) if lag.partitions]
            if not found:
                raise UnknownSubscriptionError(subscription)
            if not yes:
                typer.confirm(f"Drop {subscription}, with {_count(found[0])} unread messages?", abort=True, err=True)
            await _drop(connection, subscription)

    asyncio.run(run())
    console.print(f"subscription {subscription} is dropped", markup=False, highlight=False)


async def _drop(connection: AsyncConnection[Any], subscription: str) -> None:
    if not subscription.startswith("projects/"):
        await drop_group(connection, subscription)
        return
    # Here, since the gateway brings Google's packages along: other commands need not wait for them to load.
    from clientmgr.broker.gateway.subscriptions import forget_subscription

    await forget_subscription(connection, subscription)


async def _overview(database: Database) -> list[Overview]:
    async with await database.connect_async(Role.READER, autocommit=True) as connection:
        found = await list_topics(connection)
        subscriptions: dict[str, list[SubscriptionLag]] = {}
        for lag in await subscription_lag(connection):
            subscriptions.setdefault(lag.topic, []).append(lag)
    return [Overview(topic, subscriptions.get(topic.topic, [])) for topic in found]


def _as_object(item: Overview) -> dict[str, Any]:
    return {
        "topic": item.topic.topic,
        "partitions": item.topic.partitions,
        "last_offset": item.topic.last_offset,
        "subscriptions": [
            {
                "subscription": lag.subscription,
                "unread": lag.messages,
                "oldest_unread": lag.oldest_unread,
                "oldest_unread_s": round(lag.seconds(), 3),
                "retries": lag.waiting,
                "dead_letters": lag.dead,
                "pause": None if lag.pause is None else asdict(lag.pause),
                "partitions": [
                    {
                        "partition": partition.partition_id,
                        "next_offset": partition.next_offset,
                        "unread": partition.messages,
                        "failed_attempts": partition.attempts,
                        "retry_at": partition.retry_at,
                    }
                    for partition in lag.partitions
                ],
            }
            for lag in item.subscriptions
        ],
    }


def _as_rows(item: Overview) -> list[dict[str, Any]]:
    head = {"topic": item.topic.topic, "partitions": item.topic.partitions}
    if not item.subscriptions:
        return [{**head, **dict.fromkeys(("subscription", "unread", "oldest_unread", "retries", "dead_letters"))}]
    return [
        {
            **head,
            "subscription": lag.subscription + _remark(lag),
            "unread": _count(lag),
            "oldest_unread": None if lag.oldest_unread is None else _age(datetime.now(UTC) - lag.oldest_unread),
            "retries": lag.waiting,
            "dead_letters": lag.dead,
        }
        for lag in item.subscriptions
    ]


def _remark(lag: SubscriptionLag) -> str:
    if not lag.partitions:
        return " (gone)"
    return "" if lag.pause is None else f" (paused by {lag.pause.paused_by}: {lag.pause.reason})"


def _count(lag: SubscriptionLag) -> str:
    at_least = any(partition.messages >= COUNT_AT_MOST for partition in lag.partitions)
    return f"{'at least ' if at_least else ''}{lag.messages}"


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
