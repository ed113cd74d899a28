"""The one loop that all daemons share: start, consume, settle, drain. A daemon says what it reads and what to do."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Broker, ConsumerOptions, ConsumeStats, Handler
from clientmgr.database import Database
from clientmgr.logs import configure_logging, get_logger
from clientmgr.metrics import serve_metrics
from clientmgr.processes.async_main import run_until_stopped
from clientmgr.settings import Settings
from clientmgr.tenants.directory import TenantDirectory

log = get_logger(__name__)

STUCK_AFTER_S = 30.0


@dataclass(frozen=True)
class Services:
    """What handlers are made with."""

    settings: Settings
    database: Database
    tenants: TenantDirectory


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


def run_daemon(daemon: Daemon, settings: Settings, *, burst: bool = False) -> int:
    """Run a daemon as a process of its own. SIGTERM and Ctrl-C drain it; the second one ends it at once."""
    configure_logging(settings, process=daemon.name)
    return run_until_stopped(lambda stop: consume_until_stopped(daemon, settings, stop, burst=burst))


async def consume_until_stopped(daemon: Daemon, settings: Settings, stop: asyncio.Event, *, burst: bool = False) -> int:
    """Consume all sources until `stop` is set or, in burst mode, until they are empty. Returns an exit code."""
    database = Database.from_settings(settings)
    tenants = TenantDirectory(settings)
    heartbeat = Heartbeat()
    beating = asyncio.create_task(heartbeat.beat())
    try:
        async with open_broker(settings, database) as broker:
            sources = daemon.sources(Services(settings, database, tenants))
            await _prepare(broker, daemon, sources)
            with serve_metrics(settings, heartbeat.problem):
                log.info("daemon started", daemon=daemon.name, burst=burst)
                totals = await _consume_all(broker, sources, stop, burst=burst, drain_s=settings.shutdown_timeout_s)
    finally:
        beating.cancel()
        await tenants.close()
    log.info("daemon stopped", daemon=daemon.name, done=totals.done, retried=totals.retried, dead=totals.dead)
    return 0


async def _prepare(broker: Broker, daemon: Daemon, sources: Sequence[Source]) -> None:
    for topic in sorted({source.topic for source in sources} | set(daemon.publishes_to)):
        await broker.ensure_topic(topic)
    for source in sources:
        await broker.ensure_subscription(source.subscription_name, source.topic)


async def _consume_all(
    broker: Broker, sources: Sequence[Source], stop: asyncio.Event, *, burst: bool, drain_s: float
) -> ConsumeStats:
    """All sources at once. Told to stop, they have `drain_s` to finish what is in hand; then it is rolled back."""
    tasks = [
        asyncio.create_task(
            broker.consume(source.subscription_name, source.handler, options=source.options, stop=stop, burst=burst)
        )
        for source in sources
    ]
    deadline = asyncio.create_task(_cancel_after_stop(stop, drain_s, tasks))
    try:
        return _sum(await asyncio.gather(*tasks))
    except asyncio.CancelledError:
        if not deadline.done():
            raise
        log.warning("not drained in time: what was in hand is rolled back", seconds=drain_s)
        return ConsumeStats()
    finally:
        for task in (deadline, *tasks):
            task.cancel()
        await asyncio.gather(deadline, *tasks, return_exceptions=True)


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


class Heartbeat:
    """Health as `/healthz` tells it, from another thread: whether the event loop still turns."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def problem(self) -> str:
        silent_s = time.monotonic() - self._last
        return f"the event loop has not turned for {silent_s:.0f} s" if silent_s > STUCK_AFTER_S else ""

    async def beat(self) -> None:
        while True:
            self._last = time.monotonic()
            await asyncio.sleep(1.0)
