"""Our web servers as tests run them: on a free port, in a thread, gone at the end."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from clientmgr.base.settings import Settings
from tests.waiting import eventually

Serve = Callable[[Settings, asyncio.Event, Callable[[int], None]], Awaitable[None]]
"""Serves until the event is set, and tells its port as soon as it listens."""


@contextmanager
def served_in_thread(serve: Serve, settings: Settings, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[str]:
    """Gives the server's address. What it fails with is raised here."""
    loop = loop or asyncio.new_event_loop()
    stop = asyncio.Event()
    ports: list[int] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(serve(settings, stop, ports.append))
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            failures.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name=getattr(serve, "__name__", "web server"))
    thread.start()
    try:
        eventually(lambda: ports or failures, "the server listens")
        if failures:
            raise failures[0]
        yield f"{'https' if settings.dashboard_tls_certificate else 'http'}://127.0.0.1:{ports[0]}"
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(60)
    assert not failures, failures
