"""Signs of life: each process says twice a minute who it is, where, since when, and when it last did something.

One statement a beat, from a thread with a connection of its own. /healthz finds a stuck event loop, this finds a gone
process. A server that is away delays no one.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from uuid import uuid4

import psycopg
from prometheus_client import Counter
from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import ClientManagerError
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.message_metrics import CONSUMED, PUBLISHED
from clientmgr.contracts import daemons

QUERIES: Final = named_queries("operations/queries/heartbeats.sql")
BEAT_EVERY_S: Final = 30.0
DEAD_AFTER_S: Final = 100.0
"""Three beats missed."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A process that runs, or the last that did."""

    process: str
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    last_work_at: datetime | None
    stopped_at: datetime | None

    @property
    def state(self) -> str:
        """`runs`, `stopped` (as it should) or `dead`."""
        if self.stopped_at is not None:
            return "stopped"
        return "dead" if (datetime.now(UTC) - self.beat_at).total_seconds() > DEAD_AFTER_S else "runs"


def signs(connection: Connection[Any]) -> list[Sign]:
    """Of each process all that run; where none does, the one that ran last."""
    with connection.cursor(row_factory=class_row(Sign)) as cursor:
        return cursor.execute(QUERIES["signs"], {"dead_after_s": DEAD_AFTER_S}).fetchall()


def instances_of(connection: Connection[Any], process: str) -> list[Sign]:
    """Its starts as far as they are kept, the newest first."""
    with connection.cursor(row_factory=class_row(Sign)) as cursor:
        return cursor.execute(QUERIES["instances"], {"process": process}).fetchall()


@contextlib.contextmanager
def beating(settings: Settings, *processes: str, every_s: float = BEAT_EVERY_S) -> Iterator[None]:
    """Give signs of life meanwhile, of all that share this process, and say at the end that it was one. After an
    exception nothing is said.
    """
    if not processes:
        yield
        return
    heart = _Heart(Database.from_settings(settings), processes)
    stop = threading.Event()
    thread = threading.Thread(target=heart.beat_until, args=(stop, every_s), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
        heart.is_stopping = True
    finally:
        stop.set()
        # A server that does not answer must not keep the process from ending.
        thread.join(2.0)


class _Heart:
    def __init__(self, database: Database, processes: Sequence[str]) -> None:
        self.is_stopping = False
        self._database = database
        self._connection: Connection[Any] | None = None
        self._reads = {process: _subscriptions_of(process) if len(processes) > 1 else None for process in processes}
        self._done = self._dealt_with()
        self._about = {
            "instances": [uuid4() for _ in processes],
            "processes": list(processes),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _own_version(),
        }

    def beat_until(self, stop: threading.Event, every_s: float) -> None:
        while True:
            ended = stop.wait(0.0)
            if not ended or self.is_stopping:
                self._beat()
            if ended:
                break
            stop.wait(every_s)
        if self._connection is not None:
            self._connection.close()

    def _beat(self) -> None:
        done = self._dealt_with()
        has_worked = [now > before for before, now in zip(self._done, done, strict=True)]
        values = {**self._about, "has_worked": has_worked, "is_stopping": self.is_stopping}
        try:
            if self._connection is None:
                self._connection = self._database.connect(Role.WRITER, autocommit=True)
            self._connection.execute(QUERIES["beat"], values)
            self._done = done
        except (psycopg.Error, OSError, ClientManagerError):
            # It is tried again at the next beat. Until then the sign is missing, which is the truth.
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _dealt_with(self) -> list[float]:
        return [
            _messages_dealt_with(subscriptions) + _counted_besides(process)
            for process, subscriptions in self._reads.items()
        ]


def _subscriptions_of(process: str) -> frozenset[str]:
    """What tells the work of one from that of others in the same process."""
    found = (one for entry in daemons.ALL for one in entry.processes if one.name == process)
    return frozenset(subscription.name for one in found for subscription in one.reads)


def _messages_dealt_with(subscriptions: frozenset[str] | None) -> float:
    """From these subscriptions; None: all that this process did, and what it published."""
    return sum(
        sample.value
        for counter in (CONSUMED, PUBLISHED)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
        and (subscriptions is None or sample.labels.get("subscription") in subscriptions)
    )


def _counted_besides(process: str) -> float:
    """Of a process that reads no messages: what its own modules count, once the process has imported them."""
    entries = [entry for entry in daemons.ALL if any(one.name == process for one in entry.processes)]
    modules = [sys.modules.get(name) for entry in entries if entry.streams for name in entry.metrics]
    counters = [one for module in modules for one in vars(module or object).values() if isinstance(one, Counter)]
    families = (family for counter in counters for family in counter.collect())
    return sum(sample.value for family in families for sample in family.samples if sample.name.endswith("_total"))


def _own_version() -> str:
    try:
        return version("clientmgr")
    except PackageNotFoundError:
        return ""
