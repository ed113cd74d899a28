"""Reconciliation: contacts that are deleted in BigQuery and still have devices here are published, and counted.

The hourly fetch reads BigQuery from a watermark on and never sees a row that came later than its overlap. The search
that finds those is Spark's (`clientmgr_dagster/spark/contact_deletion_reconciliation.py`); here is what becomes of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.sqlfiles import named_queries
from clientmgr.base.stopping import StillWanted, always_wanted, ensure_wanted
from clientmgr.broker.interface import Broker
from clientmgr.contact_deletions.publishing import MESSAGES_A_TRANSACTION, deletion_message
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr.tenants.results import explain

_QUERIES = named_queries("contact_deletions/queries/reconciliation.sql")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one search found of a customer, and what became of it."""

    customer_id: CustomerId
    found: int
    """Contacts with devices that BigQuery says are deleted."""
    missed: int
    """Those among them that the hourly fetch is not on its way to."""
    published: int
    """Messages: one for each time that a contact was deleted."""


@dataclass(frozen=True, slots=True)
class MissedNights:
    """A customer whose deletions are missed, or published and not carried out."""

    customer_id: CustomerId
    missed: int
    since: datetime


@dataclass(slots=True)
class Publishing:
    """How many messages were published by customer, and why customers failed."""

    published: dict[CustomerId, int] = field(default_factory=dict)
    failures: dict[CustomerId, str] = field(default_factory=dict)


def record_search(
    connection: Connection[Any],
    customers: Sequence[CustomerId],
    *,
    run_id: str,
    searched_at: datetime,
    overlap: timedelta,
) -> None:
    """Count what a search left in `unerased_contacts`, before any of it is published. Again: nothing is added up."""
    scope = {"customers": list(customers)}
    search = {"run_id": run_id, "searched_at": searched_at, "overlap_seconds": overlap.total_seconds()}
    connection.execute(_QUERIES["record"], scope | search)
    connection.execute(_QUERIES["forget_old"], scope)


async def publish_unerased(
    broker: Broker,
    database: Database,
    customers: Sequence[CustomerId],
    *,
    run_id: str,
    batch_size: int = MESSAGES_A_TRANSACTION,
    still_wanted: StillWanted = always_wanted,
) -> Publishing:
    """Publish what was found. A row goes in the transaction that publishes it; a customer that fails costs only itself.

    The watermark stays: there may be deletions behind these that the hourly fetch has yet to come to. Stopped, it
    raises before the next batch.
    """
    done = Publishing()
    await broker.ensure_topic(CONTACT_DELETION)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        waiting = await connection.execute(_QUERIES["customers_with_unerased"], {"customers": list(customers)})
        for (customer_id,) in await waiting.fetchall():
            try:
                while True:
                    ensure_wanted(still_wanted, f"{sum(done.published.values())} deletions are published")
                    count = await _publish_batch(broker, connection, customer_id, run_id, batch_size)
                    if not count:
                        break
                    done.published[customer_id] = done.published.get(customer_id, 0) + count
            except psycopg.Error as error:
                if connection.broken:
                    raise  # not this customer's fault
                done.failures[customer_id] = explain(error)
    return done


def results_of(connection: Connection[Any], customers: Sequence[CustomerId], *, run_id: str) -> list[Reconciled]:
    rows = connection.execute(_QUERIES["results"], {"run_id": run_id, "customers": list(customers)})
    return [Reconciled(*row) for row in rows]


def missed_two_nights(connection: Connection[Any]) -> list[MissedNights]:
    """Customers of whom every search has missed contacts for two nights, up to the newest."""
    return [MissedNights(*row) for row in connection.execute(_QUERIES["missed_two_nights"])]


async def _publish_batch(
    broker: Broker, connection: AsyncConnection[Any], customer_id: CustomerId, run_id: str, limit: int
) -> int:
    async with connection.transaction():
        taken = await connection.execute(_QUERIES["take"], {"customer_id": customer_id, "limit": limit})
        rows = await taken.fetchall()
        if not rows:
            return 0
        counted = {"customer_id": customer_id, "run_id": run_id, "published": len(rows)}
        await connection.execute(_QUERIES["count_published"], counted)
        # Last: from here on the transaction holds up everyone else who publishes to the topic.
        messages = [deletion_message(customer_id, contact_id, deleted_at) for contact_id, deleted_at in rows]
        await broker.publish(CONTACT_DELETION, messages, connection=connection)
    return len(rows)
