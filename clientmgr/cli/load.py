"""`clientmgr load`: publishes a realistic, seeded stream of device events, or prints it."""

import asyncio
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from clientmgr.base.async_main import run_until_stopped
from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.database import Role
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.base.logs import get_logger, logs_as_json
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Broker, Message
from clientmgr.cli.output import JsonOption, console, log_failures, open_database, print_json, progress_bar
from clientmgr.local.load.traffic import LoadConfig, LoadItem, generate
from clientmgr.tenants.registry import TenantStatus, list_tenants

log = get_logger(__name__)

AT_ONCE = 1000
"""Most messages of a publication: as much as a writer likes to take, and no more than a moment's worth to lose."""
TICK_S = 0.05
UNLIMITED_INTERVAL_MS = 0.02
"""Without a rate, time in the events passes no faster than messages can be published: none is from the future."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is published, and how quickly."""

    total: int | None
    rate: float
    head_start: int

    def due(self, published: int, elapsed_s: float) -> int:
        """How many may be published now."""
        most = AT_ONCE if self.total is None else min(AT_ONCE, self.total - published)
        if not self.rate:
            return most
        return max(0, min(most, self.head_start + int(elapsed_s * self.rate) + 1 - published))

    def is_over(self, published: int) -> bool:
        return self.total is not None and published >= self.total


def register(app: typer.Typer) -> None:
    app.command()(load)


def load(
    *,
    tenants: Annotated[
        str, typer.Option(metavar="ID,ID,…", help="Whose devices; nobody checks that they exist. Default: all active.")
    ] = "",
    events: Annotated[int | None, typer.Option(min=1, help="Publish so many messages.", show_default=False)] = None,
    forever: Annotated[bool, typer.Option("--forever", help="Publish until told to stop.")] = False,
    rate: Annotated[float, typer.Option(min=0.0, help="Messages a second; 0: as fast as possible.")] = 0.0,
    head_start: Annotated[int, typer.Option(min=0, help="So many at once, before the rate holds.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed and start give the same messages.")] = 1,
    start_at: Annotated[
        int | None, typer.Option(min=1, help="When the first event happens, in epoch milliseconds. Default: now.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices of each tenant.")] = 1000,
    skew: Annotated[
        float, typer.Option(min=0.0, help="0: all tenants alike; 1: the nth has 1/n of the first's.")
    ] = 0.0,
    out_of_order: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share that is out of order.")] = 0.05,
    duplicates: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share that comes again.")] = 0.02,
    late: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share that is hours late.")] = 0.01,
    malformed: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share that no worker can read.")] = 0.0,
    verdicts: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share that are verdicts on push tokens.")] = 0.0,
    contact_deletions: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share that are deletions of contacts.")
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the messages, one a line; publish none.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing; what was published is in the log.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish what devices tell in their lives, with shares out of order, twice, late, malformed. Ctrl-C stops it."""
    if (events is None) != forever:
        raise InvalidInputError("--events", "a number, or --forever, and one of them", events)
    chosen = [parse_customer_id(text, field="--tenants") for text in tenants.split(",")] if tenants else []
    interval_ms = max(1000 / rate, UNLIMITED_INTERVAL_MS) if rate else UNLIMITED_INTERVAL_MS
    config = LoadConfig(
        tenants=tuple(chosen or _active_tenants()),
        start_at=start_at or time.time_ns() // 1_000_000 - int(head_start * interval_ms),
        seed=seed,
        interval_ms=interval_ms,
        devices=devices,
        skew=skew,
        malformed=malformed,
        duplicates=duplicates,
        late=late,
        out_of_order=out_of_order,
        verdicts=verdicts,
        contact_deletions=contact_deletions,
    )
    if dry_run:
        _print(itertools.islice(generate(config), events))
        return
    database, settings = open_database(with_key=False)
    if quiet and logs_as_json(settings, sys.stderr):
        log_failures()
    published: Counter[str] = Counter()

    async def main(stop: asyncio.Event) -> None:
        async with open_broker(settings, database) as broker:
            for topic in config.topics():
                await broker.ensure_topic(topic)
            await _publish(broker, generate(config), Pace(events, rate, head_start), published, stop)

    begun = time.monotonic()
    run_until_stopped(main)
    if quiet:
        log.info("load published", messages=published.total(), topics=dict(published))
    else:
        _report(published, time.monotonic() - begun, as_json=as_json)


async def _publish(
    broker: Broker, items: Iterator[LoadItem], pace: Pace, published: Counter[str], stop: asyncio.Event
) -> None:
    """Publish what is due, a batch at a time, so that messages of a tenant keep the order they were made in."""
    begun = time.monotonic()
    with progress_bar("publishing", pace.total) as progress:
        while not stop.is_set() and not pace.is_over(published.total()):
            elapsed_s = time.monotonic() - begun
            due = pace.due(published.total(), elapsed_s)
            for topic, messages in _by_topic(itertools.islice(items, due)).items():
                await broker.publish(topic, messages)
                published[topic] += len(messages)
            speed = published.total() / (elapsed_s or 1)
            progress.update(
                progress.task_ids[0], completed=published.total(), description=f"publishing, {speed:,.0f}/s"
            )
            if due < AT_ONCE and not pace.is_over(published.total()):
                await wait_for_stop(stop, TICK_S)


def _by_topic(items: Iterator[LoadItem]) -> dict[str, list[Message]]:
    messages: dict[str, list[Message]] = {}
    for topic, message in items:
        messages.setdefault(topic, []).append(message)
    return messages


def _print(items: Iterator[LoadItem]) -> None:
    for topic, message in items:
        line = msgspec.json.encode({"topic": topic, "message": msgspec.Raw(message.data)})
        sys.stdout.write(line.decode() + "\n")


def _report(published: Counter[str], seconds: float, *, as_json: bool) -> None:
    if as_json:
        print_json({"published": published.total(), "topics": dict(published), "seconds": round(seconds, 3)})
    else:
        speed = published.total() / seconds
        console.print(f"published {published.total()} in {seconds:.1f} s ({speed:,.0f}/s)", highlight=False)
        for topic, count in sorted(published.items()):
            console.print(f"  {topic}: {count}", markup=False, highlight=False)


def _active_tenants() -> list[CustomerId]:
    database, _ = open_database(with_key=False)
    with database.connect(Role.READER) as connection:
        tenants = [tenant.customer_id for tenant in list_tenants(connection, TenantStatus.ACTIVE)]
    if not tenants:
        raise ClientManagerError("there is no active tenant: clientmgr tenants activate CUSTOMER_ID, or use --tenants")
    return tenants
