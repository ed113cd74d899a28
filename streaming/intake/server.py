"""The intake as a process: transport, keys and listener, started and stopped in order."""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from clientmgr.base.backoff import backoff_s
from clientmgr.base.connection_places import Places
from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.database import Database
from clientmgr.base.errors import SettingsError, is_transient
from clientmgr.base.exposure import is_loopback
from clientmgr.base.forwarded import trusted_networks
from clientmgr.base.listening import allow_open_files, listening, service_url
from clientmgr.base.logs import get_logger
from clientmgr.base.server_tls import server_tls
from clientmgr.base.settings import Settings
from clientmgr.base.waiting import wait_for_stop
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Broker
from clientmgr.broker.message_metrics import expect_published
from clientmgr.contracts import topics
from clientmgr.tenants.live_intake_keys import signing_key
from streaming.intake.connection import House, protocol
from streaming.intake.handling import Desk
from streaming.intake.intake_metrics import TURNED_AWAY
from streaming.intake.keyring import Keyring

log = get_logger(__name__)

NAME: Final = "intake"
BACKLOG: Final = 1024
CHECK_EVERY_S: Final = 1.0
KEYS_WITHIN_S: Final = 5.0
OTHER_FILES: Final = 128
"""For PostgreSQL, logs, and what libraries open."""

Ready = Callable[[int], None]


def intake(settings: Settings) -> DaemonWork:
    """What it does in a process of its own."""
    tls = ensure_encrypted(settings)

    async def main(stop: asyncio.Event) -> None:
        async with open_broker(settings, Database.from_settings(settings)) as broker:
            await serve_until_stopped(settings, broker, stop, tls=tls)

    return DaemonWork(NAME, main)


def ensure_encrypted(settings: Settings) -> ssl.SSLContext | None:
    """The certificate. Refuses an address that others can reach where nobody does TLS: they would send keys to it."""
    tls = server_tls(
        "INTAKE_TLS_CERTIFICATE", settings.intake_tls_certificate, "INTAKE_TLS_KEY", settings.intake_tls_key
    )
    if tls is None and not settings.intake_tls_by_proxy and not is_loopback(settings.intake_host):
        raise SettingsError(
            f"INTAKE_HOST: {settings.intake_host or 'every address'} can be reached by others, and whoever is between "
            "them and the intake could read keys and events; set INTAKE_TLS_CERTIFICATE and INTAKE_TLS_KEY, "
            "INTAKE_TLS_BY_PROXY=true where a proxy does TLS, or listen on 127.0.0.1"
        )
    return tls


async def serve_until_stopped(
    settings: Settings,
    broker: Broker,
    stop: asyncio.Event,
    on_ready: Ready = lambda _: None,
    *,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve on an open broker until `stop` is set; requests that have begun are answered. `on_ready` gets the port."""
    proxies = trusted_networks("INTAKE_TRUSTED_PROXIES", settings.intake_trusted_proxies)
    places = Places(
        settings.intake_max_connections,
        settings.intake_max_connections_per_address,
        proxies,
        lambda why: TURNED_AWAY.labels(why).inc(),
    )
    allow_open_files(settings.intake_max_connections + BACKLOG + OTHER_FILES, setting="INTAKE_MAX_CONNECTIONS")
    expect_published([topics.WRITER])
    host, names = settings.intake_host, "INTAKE_HOST, INTAKE_PORT"
    with listening(host, settings.intake_port, settings=names, backlog=BACKLOG) as listener:
        keyring = Keyring(Database.from_settings(settings), signing_key(settings))
        house = House(Desk(settings, broker, keyring, proxies), places, settings.intake_max_body_bytes)
        async with _running(keyring.run()), _running(_check(house)):
            await _ensure_topic(broker, stop)
            # Whoever asks before the keys are known is told to try again, not that its key is wrong.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEYS_WITHIN_S):
                    await keyring.loaded.wait()
            server = await asyncio.get_running_loop().create_server(
                protocol(house), sock=listener, backlog=BACKLOG, ssl=tls
            )
            port = listener.getsockname()[1]
            log.info("daemon started", daemon=NAME, url=service_url("", host, port, tls=tls is not None))
            on_ready(port)
            try:
                await stop.wait()
            finally:
                server.close()
                house.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.shutdown_timeout_s):
                        await house.everybody_left.wait()
    log.info("daemon stopped", daemon=NAME)


async def _ensure_topic(broker: Broker, stop: asyncio.Event) -> None:
    """Wait for a server that is away: a process may start before it does."""
    for failures in itertools.count(1):
        try:
            await broker.ensure_topic(topics.WRITER)
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("the server is away, trying again", daemon=NAME, error=str(error).strip())
        else:
            return
        if await wait_for_stop(stop, min(backoff_s(failures), KEYS_WITHIN_S)):
            return


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something at the same time. If it fails, the block fails too."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


async def _check(house: House) -> None:
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        house.check()
