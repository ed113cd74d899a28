"""The whole system as one foreground command: servers, control schema, programs; supervised, and stopped in order."""

import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Database
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.logins import made_logins
from clientmgr.base.logs import get_logger, logs_as_json
from clientmgr.base.settings import Settings
from clientmgr.contracts import daemons
from clientmgr.local.embedded.server import ensure_port_is_free, free_port, port_is_free
from clientmgr.local.embedded.stack import EmbeddedStack
from clientmgr.local.processes.programs import OwnCommand, all_programs
from clientmgr.local.processes.supervisor import Program, Supervised, Supervisor
from clientmgr.operations.dagster_addresses import ensure_dagster_login, trusting_own_certificate, ui_url
from clientmgr.operations.migrations import migrate_database

log = get_logger(__name__)

UI_TIMEOUT_S = 180.0
SHOW_CURSOR = b"\x1b[?25h"
"""To a terminal whose live line hid it."""
LISTENING_PORTS = [
    entry.listens.port_setting.lower()
    for entry in (*daemons.DAGSTER, *daemons.ALL)
    if entry.listens is not None and entry.starts == "always"
]
"""Settings of the ports that our programs listen on."""


def run_system(
    settings: Settings,
    on_ready: Callable[[Settings], None],
    stop: threading.Event,
    *,
    prepare: Callable[[Settings], None] = lambda _: None,
    more: Sequence[OwnCommand] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start everything, call `on_ready` when it answers, and keep it running until `stop` is set.

    `prepare` is called when the servers are there and no program is yet; `more` are commands to run with the system's,
    and `environment` is what all programs are given besides the settings.
    """
    with EmbeddedStack(settings) as stack:
        ready = _prepared(stack.settings, prepare, stop)
        if ready is not None:
            log_format = "json" if logs_as_json(ready, sys.stderr) else "console"
            programs = all_programs(ready, log_format=log_format, more=more, environment=environment)
            with running(programs):
                _watch([*stack.servers, *programs], ready, on_ready, stop)
        else:
            log.info("stopping")
    log.info("stopped")


def _prepared(settings: Settings, prepare: Callable[[Settings], None], stop: threading.Event) -> Settings | None:
    """The settings with everybody's logins, when all is ready for the programs. None: told to stop meanwhile."""
    if stop.is_set():
        return None
    settings = choose_ports(settings)
    database = Database.from_settings(settings)
    migrate_database(database, audit=AuditLogger.from_settings(settings), citus=settings.citus)
    settings = made_logins(settings)
    ensure_dagster_login(settings)
    if stop.is_set():
        return None
    prepare(settings)
    return None if stop.is_set() else settings


def _watch(
    watched: Sequence[Supervised], settings: Settings, on_ready: Callable[[Settings], None], stop: threading.Event
) -> None:
    """Keep them running until `stop` is set."""
    supervisor = Supervisor(watched)
    watcher = threading.Thread(target=supervisor.run, args=(stop,), name="supervisor")
    watcher.start()
    try:
        if wait_for_ui(settings, stop):
            on_ready(settings)
        stop.wait()
    finally:
        stop.set()
        watcher.join()
        log.info("stopping")


@contextmanager
def running(programs: list[Program]) -> Iterator[None]:
    """Start the programs in order; at the end stop them all, the last started first."""
    started: list[Program] = []
    try:
        for program in programs:
            program.start()
            started.append(program)
            log.info("program started", name=program.name)
        yield
    finally:
        for program in reversed(started):
            # They do not need each other to stop: ask all, then wait for each.
            program.request_stop()
        for program in reversed(started):
            program.stop()
            log.info("program stopped", name=program.name)


def choose_ports(settings: Settings) -> Settings:
    """Free ports where 0 is set or where a default happens to be taken; a port that was asked for must be free."""
    chosen: dict[str, int] = {}
    for name in LISTENING_PORTS:
        port = getattr(settings, name)
        if name in settings.model_fields_set and port:
            ensure_port_is_free(port, name.upper())
        elif not port or not port_is_free(port):
            chosen[name] = free_port()
            if port:
                log.warning("port is in use, taking another", setting=name.upper(), port=port, chosen=chosen[name])
    return settings.model_copy(update=chosen)


def wait_for_ui(settings: Settings, stop: threading.Event) -> bool:
    """Wait until the Dagster UI answers. False: told to stop meanwhile."""
    tries_left = int(UI_TIMEOUT_S / 0.5)
    while not stop.wait(0.5):
        try:
            with urllib.request.urlopen(  # noqa: S310  # our own URL
                f"{ui_url(settings)}/server_info", timeout=5, context=trusting_own_certificate(settings)
            ):
                return True
        except (urllib.error.URLError, OSError):
            tries_left -= 1
            if not tries_left:
                raise ClientManagerError(f"the Dagster UI did not answer within {UI_TIMEOUT_S:.0f} s") from None
    return False


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set. The second signal ends us at once; our guardians then end the rest."""
    stop = threading.Event()
    received: SimpleQueue[int] = SimpleQueue()
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), SHOW_CURSOR)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked = True
        received.put(number)

    def relay() -> None:
        if received.get():
            stop.set()

    # `stop.set()` in the handler could find the event's lock held by the very code that it interrupts, and wait for
    # ever. A SimpleQueue may be used there.
    relaying = threading.Thread(target=relay, name="signals", daemon=True)
    relaying.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(0)
        relaying.join()
