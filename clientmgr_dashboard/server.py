"""The dashboard as a process: the listener, the web server on it, started and stopped in order.

Dagster's UI (dagster_ui/) is served the same way.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from clientmgr.base.connection_places import Places
from clientmgr.base.daemon_process import DaemonWork
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.exposure import is_loopback
from clientmgr.base.forwarded import trusted_networks
from clientmgr.base.listening import allow_open_files, listening, service_url
from clientmgr.base.logs import get_logger
from clientmgr.base.server_tls import server_tls
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.exposure import ensure_not_open_to_others
from clientmgr_dashboard.app import dashboard
from clientmgr_dashboard.metrics import TURNED_AWAY
from clientmgr_dashboard.web.limits import BACKLOG, limited

log = get_logger(__name__)

NAME = "dashboard"
OTHER_FILES = 128
"""For PostgreSQL, logs, and what libraries open."""


class _Server(uvicorn.Server):
    """Sets `ready` when it serves. It leaves signals alone: `run_until_stopped` handles them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Service:
    """An application and where it is served. Its certificate is the dashboard's."""

    name: str
    host_setting: str
    port_setting: str
    url_setting: str
    application: Callable[[Settings, int], ASGIApp]
    """For the settings and the port that it is served on."""


DASHBOARD = Service(NAME, "DASHBOARD_HOST", "DASHBOARD_PORT", "DASHBOARD_URL", dashboard)


def dashboard_work(settings: Settings) -> DaemonWork:
    """What the dashboard does in a process of its own."""
    ensure_not_open_to_others(settings)
    return DaemonWork(NAME, lambda stop: serve_until_stopped(settings, stop), use_uvloop=False)


async def serve_until_stopped(
    settings: Settings, stop: asyncio.Event, on_ready: Callable[[int], None] = lambda _: None
) -> None:
    """Serve until `stop` is set; requests that have begun are answered. `on_ready` gets the port."""
    ensure_not_open_to_others(settings)
    await serve(DASHBOARD, settings, stop, on_ready)


async def serve(
    service: Service, settings: Settings, stop: asyncio.Event, on_ready: Callable[[int], None] = lambda _: None
) -> None:
    """Serve an application until `stop` is set. Whether others may reach it, the caller has checked."""
    host: str = getattr(settings, service.host_setting.lower())
    wanted_port: int = getattr(settings, service.port_setting.lower())
    tls = server_tls(
        "DASHBOARD_TLS_CERTIFICATE",
        settings.dashboard_tls_certificate,
        "DASHBOARD_TLS_KEY",
        settings.dashboard_tls_key,
    )
    if tls is None and not is_loopback(host):
        log.warning("plain HTTP: put a proxy with TLS in front, browsers keep no session without", daemon=service.name)
    proxies = trusted_networks("DASHBOARD_TRUSTED_PROXIES", settings.dashboard_trusted_proxies)
    places = Places(
        settings.dashboard_max_connections,
        settings.dashboard_max_connections_per_address,
        proxies,
        lambda why: TURNED_AWAY.labels(why).inc(),
    )
    # The system may have accepted a whole backlog before we can close the first of it.
    allow_open_files(settings.dashboard_max_connections + BACKLOG + OTHER_FILES, setting="DASHBOARD_MAX_CONNECTIONS")
    names = f"{service.host_setting}, {service.port_setting}"
    with listening(host, wanted_port, settings=names, backlog=BACKLOG) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            _calm(service.application(settings, port)),
            log_config=None,
            log_level="warning",  # we log start and stop ourselves
            access_log=False,
            server_header=False,
            lifespan="on",
            **limited(places, proxies, tls),
            timeout_graceful_shutdown=max(1, int(settings.shutdown_timeout_s)),
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            if not await _first(server.ready.wait(), serving):
                raise ClientManagerError(f"{service.name} could not be started; the log says why")
            url = service_url(getattr(settings, service.url_setting.lower()), host, port, tls=tls is not None)
            log.info("daemon started", daemon=service.name, url=url)
            on_ready(port)
            await _first(stop.wait(), serving)
        finally:
            server.should_exit = True
            await serving
    log.info("daemon stopped", daemon=service.name)


def _calm(application: ASGIApp) -> ASGIApp:
    """A client that is gone before its request was read is no error: nobody is left to answer."""

    async def calm(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            await application(scope, receive, send)

    return calm


async def _first(event: Coroutine[Any, Any, Any], serving: asyncio.Task[None]) -> bool:
    """Wait for the event; False: the server ended first."""
    waiting = asyncio.create_task(event)
    try:
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        waiting.cancel()
