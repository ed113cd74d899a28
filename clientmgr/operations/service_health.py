"""Whether the programs that read no messages are well: those that answer on a port, and the writer of positions."""

import asyncio
import contextlib
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from clientmgr.base.listening import in_url
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.live.redis_stream import REDIS_ERRORS, open_redis
from clientmgr.operations.dagster_addresses import trusting_own_certificate, ui_url

SPARK: Final = "spark"
"""No process of ours: others' server, which `up` may start."""
ANSWER_WITHIN_S: Final = 2.0
LATE_FROM: Final = 10_000
"""Positions that the durable writer has not read: some seconds' worth of a large fleet."""
_PROBED: Final = tuple(
    entry for entry in (*daemons.ALL, *daemons.DAGSTER) if entry.judged_by in ("its answer", "unread positions")
)


@dataclass(frozen=True, slots=True)
class ServiceState:
    name: str
    state: str
    is_well: bool
    detail: str


async def probe_services(settings: Settings) -> list[ServiceState]:
    probes = [_probe(entry, settings) for entry in _PROBED]
    if settings.spark_connect_url:
        probes.append(_listens(SPARK, settings.spark_connect_url))
    return list(await asyncio.gather(*probes))


async def readers_of_positions(settings: Settings) -> list[ServiceState]:
    """Those that `up` starts, by their groups on the stream: that can be seen from any machine."""
    entries = [entry for entry in daemons.ALL if entry.streams and entry.starts == "always"]
    return list(await asyncio.gather(*(_reads_positions(entry, settings) for entry in entries)))


async def _probe(entry: DaemonEntry, settings: Settings) -> ServiceState:
    if entry.listens is None:
        return await _reads_positions(entry, settings)
    host: str = getattr(settings, entry.listens.host_setting.lower())
    port: int = getattr(settings, entry.listens.port_setting.lower())
    address = ui_url(settings) if entry in daemons.DAGSTER else f"http://{in_url(host)}:{port}"
    return await _answers(entry.name, f"{address}{entry.listens.health_path}", settings)


async def _listens(name: str, url: str) -> ServiceState:
    """A Spark Connect server has no address for health. `up` starts its own only when a run connects, by gRPC."""
    where = urlsplit(url)
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            _, writer = await asyncio.open_connection(where.hostname, where.port or 15002)
        writer.close()
    except (OSError, ValueError) as error:
        return ServiceState(name, "does not answer", False, str(error) or "no answer in time")
    return ServiceState(name, "answers", True, "Spark Connect, for the runs of Dagster")


async def _answers(name: str, url: str, settings: Settings) -> ServiceState:
    problem = await asyncio.to_thread(_problem_of, url, settings)
    return ServiceState(name, "does not answer" if problem else "answers", not problem, problem)


def _problem_of(url: str, settings: Settings) -> str:
    try:
        with _opener(settings).open(url, timeout=ANSWER_WITHIN_S):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}: {error.read(200).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    """Our own services are not reached through a proxy, whatever the environment says."""
    https = urllib.request.HTTPSHandler(context=trusting_own_certificate(settings))
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https)


async def _reads_positions(entry: DaemonEntry, settings: Settings) -> ServiceState:
    name = entry.name
    if not settings.redis_url:
        return ServiceState(name, "unknown", False, "REDIS_URL is not set")
    client = open_redis(settings)
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            if not await client.exists(settings.redis_telemetry_stream):
                return ServiceState(name, "nothing to do", True, "no positions yet")
            groups = await client.xinfo_groups(settings.redis_telemetry_stream)
    except (*REDIS_ERRORS, TimeoutError) as error:
        return ServiceState(name, "unknown", False, f"Redis: {error}")
    finally:
        with contextlib.suppress(*REDIS_ERRORS):
            await client.aclose()
    own = [group["lag"] for group in groups if _is_of(entry, _text(group["name"]), settings)]
    if not own:
        return ServiceState(name, "never started", False, "its group does not exist")
    # Of several instances with a group each, one that reads is enough; a dead one's group is removed by the others.
    lag = min((one for one in own if one is not None), default=None)
    if lag is None:
        # After entries were deleted, or where the group began in the middle, until it has read to the end.
        return ServiceState(name, "unknown", False, "Redis can't tell how much is unread")
    return ServiceState(name, "late" if lag > LATE_FROM else "keeps up", lag <= LATE_FROM, f"{lag:,} unread")


def _is_of(entry: DaemonEntry, group: str, settings: Settings) -> bool:
    return any(
        group == one.group if one.group else group.startswith(f"{settings.live_broadcast_group_prefix}-")
        for one in entry.streams
    )


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")
