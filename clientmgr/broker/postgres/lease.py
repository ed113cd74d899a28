"""How long a consumer may hold a partition without a sign of life. The server enforces it: it ends sessions that leave
their transaction alone for longer, so that whoever froze can commit nothing any more.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import PipelineStatus, TransactionStatus

# Signs of life within a lease.
BEATS_A_LEASE = 3


async def grant_lease(connection: AsyncConnection[Any], lease_s: float) -> None:
    """Have the server end the session once the client is silent for `lease_s`.

    Frozen: its transaction is idle. Gone without a word: probes are not answered. Stuck while it is sent something:
    that is not acknowledged, or not taken.
    """
    milliseconds, beat_s = int(lease_s * 1000), max(1, int(lease_s / BEATS_A_LEASE))
    settings = {
        "idle_in_transaction_session_timeout": milliseconds,
        "tcp_user_timeout": milliseconds,
        "tcp_keepalives_idle": beat_s,
        "tcp_keepalives_interval": beat_s,
        "tcp_keepalives_count": BEATS_A_LEASE - 1,
        "client_connection_check_interval": milliseconds // BEATS_A_LEASE,
    }
    await set_for_the_log(connection, settings)


async def set_for_the_log(connection: AsyncConnection[Any], settings: Mapping[str, object]) -> None:
    """Settings of a session that claims or appends. Whatever the database's default is, it sees what is committed by
    the time of each statement: an older snapshot could neither take turns at a lock nor see the log as a prefix."""
    chosen = {"default_transaction_isolation": "read committed", **settings}
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in chosen.items())
    await connection.execute(f"SELECT {calls}".encode())


@contextlib.asynccontextmanager
async def kept_lease(connection: AsyncConnection[Any], lease_s: float) -> AsyncIterator[None]:
    """Give signs of life while a handler waits for something else. Short work costs a timer and no statement."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    beats: set[asyncio.Task[None]] = set()

    def beat() -> None:
        task = asyncio.create_task(_give_sign_of_life(connection))
        beats.add(task)
        task.add_done_callback(beats.discard)
        timers[0] = loop.call_later(lease_s / BEATS_A_LEASE, beat)

    timers.append(loop.call_later(lease_s / BEATS_A_LEASE, beat))
    try:
        yield
    finally:
        timers[0].cancel()
        # Never cancelled half-way: that would cancel a statement, and with it the transaction.
        if beats:
            await asyncio.wait(beats)


# Sessions that a handler's thread uses too, and what is held by whoever talks to the server.
_shared: WeakKeyDictionary[AsyncConnection[Any], threading.Lock] = WeakKeyDictionary()


def share_session(connection: AsyncConnection[Any], in_use: threading.Lock) -> None:
    """From now on signs of life are given only while nobody else holds `in_use`."""
    _shared[connection] = in_use


def share_no_longer(connection: AsyncConnection[Any]) -> None:
    _shared.pop(connection, None)


async def _give_sign_of_life(connection: AsyncConnection[Any]) -> None:
    """A statement, if nobody else is at one: who uses the connection needs no other sign."""
    in_use = _shared.get(connection)
    if in_use is not None and not in_use.acquire(blocking=False):
        return
    try:
        if (
            not connection.closed
            and not connection.lock.locked()
            and connection.pgconn.pipeline_status == PipelineStatus.OFF
            and connection.info.transaction_status is TransactionStatus.INTRANS
        ):
            with contextlib.suppress(psycopg.Error):
                await connection.execute("SELECT")
    finally:
        if in_use is not None:
            in_use.release()
