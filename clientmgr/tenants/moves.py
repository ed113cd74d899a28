"""Moves a tenant to another node of a Citus cluster while it is written to.

Citus copies the schema by logical replication. Only at the end do the tenant's writes wait, for the moment in which the
new place takes over; what is committed is at either place, never at none. A move that is stopped, that fails or whose
process dies has changed nothing: the tenant stays where it was, and what was copied is removed. It can't be resumed,
only begun anew.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import Connection

from clientmgr.audit.log import AuditEntry, AuditLogger, Detail
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError, TransientError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.tenants.placement import QUERIES, Node, Place, find_nodes, find_places, require_cluster
from clientmgr.tenants.registry import TenantStatus, ensure_usable, find_tenant
from clientmgr.tenants.results import explain

log = get_logger(__name__)

ACTION: Final = "tenant.move"
LOOK_EVERY_S: Final = 0.25
# Should the process that asked for a move die, the server notices and undoes the move, as if somebody had stopped it.
NOTICE_A_DEAD_CLIENT: Final = "SET client_connection_check_interval = '2s'"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a move is."""

    phase: str
    """In Citus' words: Setting Up, Copying Data, Catching Up, Creating Constraints, Final Catchup, …"""
    bytes: int
    copied: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome of a move."""

    customer_id: CustomerId
    source: str
    target: str
    seconds: float
    changed: bool = True
    """False: it was there already."""


class MoveFailedError(TransientError):
    """The tenant is where it was."""


def move_tenant(
    database: Database,
    settings: Settings,
    customer_id: CustomerId,
    target: str,
    *,
    actor: str,
    on_progress: OnProgress = lambda _: None,
) -> Moved:
    """Move a tenant to the node `target`, host:port. Ctrl-C stops it: the tenant stays where it was."""
    with mover_connection(database, settings) as connection:
        require_cluster(connection, settings)
        nodes = find_nodes(connection)
        node = _target_of(nodes, target)
        place = _place_of(connection, customer_id)
        source = next((one.address for one in nodes if one.group == place.group), "")
        if place.group == node.group:
            return Moved(customer_id, source, node.address, 0.0, changed=False)
        record = _Record(AuditLogger.from_settings(settings), customer_id, actor, source, node.address)
        record.append(connection, "intended")
        started = time.monotonic()
        work = _Work(connection, place, node)
        try:
            with database.connect(Role.DDL, autocommit=True) as watching:
                work.watch(watching, on_progress)
        except BaseException:
            # Ctrl-C, or the watch itself is lost: either way nobody follows the move any more.
            work.stop()
            if not work.is_done:
                _end(database, settings, record, "stopped")
                raise
        if work.error is not None:
            why = explain(work.error)
            _end(database, settings, record, "failed", error=why)
            raise MoveFailedError(f"customer {customer_id} stays on {source}: {why}") from work.error
        seconds = time.monotonic() - started
        record.append(connection, "moved")
        return Moved(customer_id, source, node.address, seconds)


def mover_connection(database: Database, settings: Settings) -> Connection[Any]:
    """A connection of the tenants' owner: nobody else may move them."""
    connection = database.connect(Role.DDL, autocommit=True, lock_timeout_ms=settings.tenant_lock_timeout_ms)
    connection.execute(NOTICE_A_DEAD_CLIENT)
    return connection


class _Work:
    """The move, on a thread of its own."""

    def __init__(self, connection: Connection[Any], place: Place, node: Node) -> None:
        self.is_done = False
        self.error: Exception | None = None
        self._connection = connection
        self._place = place
        self._node = node
        self._session = connection.info.backend_pid
        # Not the thread's own join(): a Ctrl-C in it makes Python 3.11 take the thread for ended.
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="move")

    def watch(self, watching: Connection[Any], on_progress: OnProgress) -> None:
        """Begin, and tell how far it is until it has ended."""
        self._thread.start()
        while not self._ended.wait(LOOK_EVERY_S):
            for found, *progress in watching.execute(QUERIES["progress"]):
                if found == self._session:
                    on_progress(Progress(*progress))

    def stop(self) -> None:
        """End it, and wait until it has ended: it is undone, or was complete already."""
        if self._thread.ident is None:
            return
        self._connection.cancel_safe()
        self._ended.wait()

    def _run(self) -> None:
        wanted = {"customer_id": self._place.customer_id, "host": self._node.host, "port": self._node.port}
        try:
            self._connection.execute(QUERIES["move"], wanted)
            self.is_done = True
        except Exception as error:  # noqa: BLE001  # whoever waits for the thread judges it
            self.error = error
        finally:
            self._ended.set()


def _target_of(nodes: list[Node], target: str) -> Node:
    able = {node.address: node for node in nodes if node.is_active and node.takes_tenants}
    if target not in able:
        raise InvalidInputError("--to", f"one of the nodes that take tenants ({', '.join(able) or 'none'})", target)
    return able[target]


def _place_of(connection: Connection[Any], customer_id: CustomerId) -> Place:
    tenant = find_tenant(connection, customer_id)
    ensure_usable(customer_id, None if tenant is None else TenantStatus(tenant.status))
    for place in find_places(connection, [customer_id]):
        if place.is_distributed:
            return place
    raise InvalidInputError("CUSTOMER_ID", "a tenant whose schema is distributed (docs/citus.md)", customer_id)


@dataclass(frozen=True, slots=True)
class _Record:
    """What the audit log hears of a move."""

    audit: AuditLogger
    customer_id: CustomerId
    actor: str
    source: str
    target: str

    def append(self, connection: Connection[Any], outcome: str, **more: Detail) -> None:
        details = {"from": self.source, "to": self.target, **more}
        with connection.transaction():
            self.audit.append(connection, [AuditEntry(self.customer_id, self.actor, ACTION, outcome, details=details)])


def _end(database: Database, settings: Settings, record: _Record, outcome: str, **more: Detail) -> None:
    """Clean up and record: by a new connection, for the move's own may be the cause."""
    try:
        with mover_connection(database, settings) as connection:
            # Citus does it by itself within a minute. Whoever begins anew need not wait for it.
            connection.execute(QUERIES["remove_leftovers"])
            record.append(connection, outcome, **more)
    except psycopg.Error as unrecorded:
        # The caller needs the failure itself, not this one.
        error = explain(unrecorded)
        log.error("a move's end is not in the audit log", customer_id=record.customer_id, outcome=outcome, error=error)
