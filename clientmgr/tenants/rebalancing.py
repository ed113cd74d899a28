"""Evens out a Citus cluster by Citus' own means: it plans, and moves tenants one after the other as a job of its own.

Whoever starts it need not stay: the job goes on in the coordinator until it has ended or is stopped. Stopped, it keeps
what it has moved; the tenant in hand stays where it was. Started again, it plans anew what is left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from psycopg import Connection

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger, Detail
from clientmgr.base.customer_ids import CustomerId
from clientmgr.tenants.placement import QUERIES, Rebalance, find_rebalance

ACTION: Final = "placement.rebalance"
LOOK_EVERY_S: Final = 0.5

Measure = Literal["size", "tenants"]
STRATEGIES: Final[dict[Measure, str]] = {"size": "by_disk_size", "tenants": "by_shard_count"}
"""In Citus' words. A tenant is one group of shards, so by their number is by that of tenants."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """What a rebalancing would do with one tenant."""

    customer_id: CustomerId
    source: str
    target: str


def plan(connection: Connection[Any], by: Measure) -> list[PlannedMove]:
    found = connection.execute(QUERIES["plan"], {"strategy": STRATEGIES[by]})
    return [PlannedMove(CustomerId(one), f"{source}:{a}", f"{target}:{b}") for one, source, a, target, b in found]


def start(connection: Connection[Any], audit: AuditLogger, by: Measure, *, actor: str) -> int | None:
    """Citus' number of the job; None: nothing is to be moved. As the tenants' owner: nobody else may move them."""
    with connection.transaction():
        row = connection.execute(QUERIES["start_rebalance"], {"strategy": STRATEGIES[by]}).fetchone()
        job = None if row is None else row[0]
        if job is not None:
            _record(connection, audit, actor, "started", {"job": job, "by": by})
    return job


def follow(
    connection: Connection[Any], audit: AuditLogger, *, actor: str, on_progress: Callable[[Rebalance], None]
) -> Rebalance:
    """Wait until the newest rebalancing has ended, and record how."""
    while True:
        found = find_rebalance(connection)
        if found is None:
            raise LookupError("no rebalancing was ever started")
        on_progress(found)
        if not found.is_under_way:
            details: dict[str, Detail] = {"job": found.job_id, "moved": found.moved, "moves": found.moves}
            with connection.transaction():
                _record(connection, audit, actor, found.state, details)
            return found
        time.sleep(LOOK_EVERY_S)


def stop(connection: Connection[Any], audit: AuditLogger, *, actor: str) -> Rebalance | None:
    """End the rebalancing that is under way, and wait for its end; None: there is none."""
    found = find_rebalance(connection)
    if found is None or not found.is_under_way:
        return None
    with connection.transaction():
        connection.execute(QUERIES["stop_rebalance"])
        _record(connection, audit, actor, "stop requested", {"job": found.job_id})
    ended = follow(connection, audit, actor=actor, on_progress=lambda _: None)
    # Citus does it by itself within a minute. Whoever begins anew need not wait for it.
    connection.execute(QUERIES["remove_leftovers"])
    return ended


def _record(
    connection: Connection[Any], audit: AuditLogger, actor: str, outcome: str, details: dict[str, Detail]
) -> None:
    audit.append(connection, [AuditEntry(PLATFORM, actor, ACTION, outcome, details=details)])
