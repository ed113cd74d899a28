"""The one loop that all daemons share: start, consume, settle, drain. The registry says what a daemon reads."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from clientmgr.base.backoff import backoff_s
from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.database import Database
from clientmgr.base.errors import is_permanent, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Broker, ConsumerOptions, ConsumeStats, Handler
from clientmgr.broker.message_metrics import expect_published
from clientmgr.contracts.daemon_entry import Process
from clientmgr.tenants.directory import TenantDirectory

log = get_logger(__name__)

LONGEST_PAUSE_S = 5.0
FORGIVEN_AFTER_S = 60.0
"""A failure after this much work is a new one, not one more of the last."""


@dataclass(frozen=True)
class Services:
    """What handlers are made with."""

    settings: Settings
    database: Database
    tenants: TenantDirectory
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What a handler holds open until the end."""


@dataclass(frozen=True)
class Source:
    """A subscription that a daemon reads."""

    topic: str
    handler: Handler
    options: ConsumerOptions
    subscription: str = ""
    """Its topic's name where this is empty."""

    @property
    def subscription_name(self) -> str:
        return self.subscription or self.topic


@dataclass(frozen=True)
class Daemon:
    """What a daemon is: its name, what it reads, and the topics it writes to."""

    name: str
    sources: Callable[[Services], Sequence[Source]]
    publishes_to: tuple[str, ...] = ()
    check: Callable[[Settings], Awaitable[None]] | None = None
    """Raises at the start where something besides the broker is set up wrongly."""

    @classmethod
    def of(
        cls,
        process: Process,
        handler: Callable[[Services], Handler],
        options: Callable[[Settings], ConsumerOptions],
        check: Callable[[Settings], Awaitable[None]] | None = None,
    ) -> "Daemon":
        """The daemon that the registry (clientmgr/contracts/daemons.py) describes, with a handler for each topic."""

        def sources(services: Services) -> list[Source]:
            return [
                Source(read.topic, handler(services), options(services.settings), read.name) for read in process.reads
            ]

        return cls(process.name, sources, process.publishes, check)

    def work(self, settings: Settings, *, burst: bool = False) -> DaemonWork:
        """What it does in a process of its own, or beside others."""
        return DaemonWork(self.name, lambda stop: consume_until_stopped(self, settings, stop, burst=burst))


async def consume_until_stopped(daemon: Daemon, settings: Settings, stop: asyncio.Event, *, burst: bool = False) -> int:
    """Consume until `stop` is set or, in burst mode, until nothing is left. Returns an exit code."""
    async with open_broker(settings, Database.from_settings(settings)) as broker:
        log.info("daemon started", daemon=daemon.name, burst=burst)
        totals = await consume_on(broker, daemon, settings, stop, burst=burst)
    log.info("daemon stopped", daemon=daemon.name, done=totals.done, retried=totals.retried, dead=totals.dead)
    return 0


async def consume_on(
    broker: Broker, daemon: Daemon, settings: Settings, stop: asyncio.Event, *, burst: bool = False
) -> ConsumeStats:
    """Consume all that the daemon reads on an open broker, and count what became of it."""
    tenants = TenantDirectory(settings)
    services = Services(settings, Database.from_settings(settings), tenants)
    expect_published(daemon.publishes_to)
    try:
        if daemon.check is not None:
            await daemon.check(settings)
        with services.closing:
            sources = daemon.sources(services)
            await _prepare(broker, daemon, sources, stop, patient=not burst)
            return await _consume_all(broker, sources, settings, stop, burst=burst)
    finally:
        await tenants.close()


async def _prepare(
    broker: Broker, daemon: Daemon, sources: Sequence[Source], stop: asyncio.Event, *, patient: bool
) -> None:
    """Make topics and subscriptions. While the server is away, a patient daemon waits for it, or for `stop`."""
    for failures in itertools.count(1):
        try:
            topics = sorted({source.topic for source in sources} | set(daemon.publishes_to))
            await broker.ensure(topics, {source.subscription_name: source.topic for source in sources})
        except Exception as error:
            if not patient or not is_transient(error):
                raise
            log.warning("the server is away, trying again", daemon=daemon.name, error=str(error).strip())
        else:
            return
        if await _stopped_within(stop, failures):
            return


async def _consume_all(
    broker: Broker, sources: Sequence[Source], settings: Settings, stop: asyncio.Event, *, burst: bool
) -> ConsumeStats:
    """All sources at once. When `stop` is set they have a while to finish what is in hand; then it is rolled back."""
    attempts = 1 if burst else settings.broker_max_attempts
    tasks = [asyncio.create_task(_consume(broker, source, stop, burst=burst, attempts=attempts)) for source in sources]
    deadline = asyncio.create_task(_cancel_after_stop(stop, settings.shutdown_timeout_s, tasks))
    try:
        return _sum(await asyncio.gather(*tasks))
    except asyncio.CancelledError:
        if not deadline.done():
            raise
        log.warning("not drained in time: what was in hand is rolled back", seconds=settings.shutdown_timeout_s)
        return ConsumeStats()
    finally:
        for task in (deadline, *tasks):
            task.cancel()
        await asyncio.gather(deadline, *tasks, return_exceptions=True)


async def _consume(broker: Broker, source: Source, stop: asyncio.Event, *, burst: bool, attempts: int) -> ConsumeStats:
    """One source. The broker survives the errors it knows; others (a read-only database) may pass as well."""
    failures = 0
    while True:
        started = time.monotonic()
        try:
            return await broker.consume(
                source.subscription_name, source.handler, options=source.options, stop=stop, burst=burst
            )
        except Exception as error:
            failures = 1 if time.monotonic() - started > FORGIVEN_AFTER_S else failures + 1
            if is_permanent(error) or failures >= attempts:
                raise
            log.warning("consuming failed, trying again", subscription=source.subscription_name, exc_info=error)
        if await _stopped_within(stop, failures):
            return ConsumeStats()


async def _stopped_within(stop: asyncio.Event, failures: int) -> bool:
    """Pause after the last of so many failures. Returns whether `stop` was set meanwhile."""
    return await wait_for_stop(stop, min(backoff_s(failures), LONGEST_PAUSE_S))


async def _cancel_after_stop(stop: asyncio.Event, seconds: float, tasks: Sequence[asyncio.Task[ConsumeStats]]) -> None:
    await stop.wait()
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()


def _sum(parts: Sequence[ConsumeStats]) -> ConsumeStats:
    return ConsumeStats(
        done=sum(part.done for part in parts),
        retried=sum(part.retried for part in parts),
        dead=sum(part.dead for part in parts),
        batches=sum(part.batches for part in parts),
    )
