"""`clientmgr publish` and `clientmgr tail`: messages in, messages out."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.errors import ClientManagerError, InvalidInputError, PermanentError, SettingsError
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Broker, Message
from clientmgr.broker.postgres.publish import UnknownTopicError
from clientmgr.broker.tailing import tail_topic
from clientmgr.cli.message_input import MessageForm, opened, parse_attributes
from clientmgr.cli.message_output import json_line, text_line
from clientmgr.cli.output import JsonOption, actor, console, open_database, print_json, progress_bar
from clientmgr.contracts import daemons, topics
from clientmgr.contracts.publishers import stamp

MESSAGES_A_CHUNK = 1000
BYTES_A_CHUNK = 8 * 1024 * 1024
JSON_HELP = "Print one JSON object a line, with the message as it was published: nothing is masked."


def register(app: typer.Typer) -> None:
    app.command()(publish)
    app.command()(tail)


def publish(
    topic: Annotated[str, typer.Argument(help="The topic, for example client-manager.writer.")],
    message: Annotated[
        str | None, typer.Argument(metavar="[JSON|-]", help="One message; - reads one a line from standard input.")
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read one JSON document a line; - is standard input.")
    ] = None,
    attributes: Annotated[
        list[str] | None, typer.Option("--attr", "-a", metavar="NAME=VALUE", help="An attribute; repeat it for more.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="The ordering key. Default: the message's own customerId, else none.")
    ] = None,
    key: Annotated[str, typer.Option(help="The contact or device that the message is about.")] = "",
    create: Annotated[bool, typer.Option("--create", help="Make the topic if it does not exist.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a message, or one for each line of a file. All are checked before the first is published."""
    if (message is None) == (file is None):
        raise InvalidInputError("JSON", "a message, - or --file, and one of them", message or "")
    database, settings = open_database()
    stamped = parse_attributes(attributes or []) | stamp(topic, actor())
    form = MessageForm(topic, settings.broker_max_message_bytes, tenant, key, stamped)
    broker = open_broker(settings, database)
    # Its reader would make it at its start: whoever publishes first need not wait for that.
    create = create or (settings.broker == "postgres" and topic in well_known_topics())
    if message is not None and message != "-":
        single = form.message(message.encode(errors="surrogateescape"))
        published = asyncio.run(_publish(broker, settings, topic, [single], total=1, create=create))
    else:
        with opened(file or Path("-")) as source:
            total = sum(1 for _ in form.messages(source))
            source.seek(0)
            published = asyncio.run(
                _publish(broker, settings, topic, form.messages(source), total=total, create=create)
            )
    if as_json:
        print_json({"topic": topic, "published": published})
    else:
        console.print(f"published {published} to {topic}", markup=False, highlight=False)


def tail(
    topic: Annotated[str, typer.Argument()],
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest message that is kept, not with the next one.")
    ] = False,
    burst: Annotated[bool, typer.Option("--burst", help="Stop at the end instead of waiting for more.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Print the messages of a topic as they come. Looking on takes nothing away from anybody. Ctrl-C stops it.

    Push tokens and web push keys are masked, but not with --json.
    """
    database, settings = open_database()
    if settings.broker != "postgres":
        raise SettingsError(
            "tail reads the PostgreSQL log, and with BROKER=pubsub the messages are at Google: "
            "copy a subscription with `clientmgr bridge` and set BROKER=postgres to look at the copy"
        )
    write = json_line if as_json else text_line

    async def main(stop: asyncio.Event) -> None:
        left = sys.maxsize if limit is None else limit
        batches = tail_topic(
            database,
            topic,
            stop,
            from_start=from_start,
            burst=burst,
            wait_period_s=settings.broker_wait_period_ms / 1000,
        )
        async with aclosing(batches):
            async for batch in batches:
                sys.stdout.write("".join(write(message) + "\n" for message in batch[:left]))
                sys.stdout.flush()
                left -= len(batch)
                if left <= 0:
                    return

    raise typer.Exit(run_until_stopped(main))


def well_known_topics() -> frozenset[str]:
    """Those that daemons and Dagster's sensors read."""
    read = (one.topic for entry in daemons.ALL for process in entry.processes for one in process.reads)
    return frozenset({*read, topics.ACTIVATE_CUSTOMER, topics.ACCOUNT_DELETION})


async def _publish(
    broker: Broker, settings: Settings, topic: str, messages: Iterable[Message], *, total: int, create: bool
) -> int:
    published = 0
    with progress_bar("publishing", total) as progress:
        async with broker:
            if create:
                await broker.ensure_topic(topic)
            for chunk in _chunks(iter(messages)):
                # On the log what is published together dies together, so here each is published alone; those that wait
                # at the same time share a commit. Pub/Sub knows no such bond, and requests at the same time no order.
                portions = [[message] for message in chunk] if settings.broker == "postgres" else [chunk]
                results = await asyncio.gather(
                    *(broker.publish(topic, portion) for portion in portions), return_exceptions=True
                )
                published += sum(
                    len(portion) for portion, result in zip(portions, results, strict=True) if result is None
                )
                for result in results:
                    if result is not None:
                        raise _explained(topic, result, published, total)
                progress.advance(progress.task_ids[0], len(chunk))
    return published


def _explained(topic: str, error: BaseException, published: int, total: int) -> BaseException:
    if isinstance(error, UnknownTopicError):
        return PermanentError(f"topic {topic} does not exist: check its name, or make it with --create")
    if published:
        return ClientManagerError(f"{published} of {total} messages are published, the others are not: {error}")
    return error


def _chunks(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Messages in the order given, as many at a time as are reasonably held in memory."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message.data)
        if len(chunk) >= MESSAGES_A_CHUNK or size >= BYTES_A_CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
