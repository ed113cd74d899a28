"""A request to erase a contact: the deletion message for the worker, and the audit row that says who asked.

On the PostgreSQL log both commit together. On Pub/Sub the message is sent first: a crash in between leaves a deletion
without a row, and whoever repeats the request makes up for it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from clientmgr.audit.log import AuditEntry, AuditLogger
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.interface import Broker, Message
from clientmgr.contact_deletions.publishing import deletion_message
from clientmgr.contracts import publishers
from clientmgr.contracts.decoding import FUTURE_TOLERANCE_MS
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr.tenants.registry import ensure_usable, find_tenant

_QUERIES = named_queries("tenant/queries/subject.sql")

ACTION: Final = "contact.erase_requested"
LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Requested:
    """A deletion that is published, or was done before."""

    customer_id: CustomerId
    contact_id: int
    deleted_at: datetime
    is_published: bool
    """False: the very same deletion is done already."""


async def request_erasure(
    broker: Broker,
    database: Database,
    settings: Settings,
    customer_id: CustomerId,
    contact_id: int,
    *,
    actor: str,
    deleted_at: datetime | None = None,
) -> Requested:
    """Publish the deletion of a contact. `deleted_at`: when the customer deleted it; None: now."""
    moment = deleted_at or datetime.now(UTC)
    millis = int(moment.timestamp() * 1000)
    if millis > time.time() * 1000 + FUTURE_TOLERANCE_MS:
        raise InvalidInputError("--deleted-at", "a time that is not in the future", moment.isoformat())
    requested = Requested(customer_id, contact_id, datetime.fromtimestamp(millis / 1000, UTC), is_published=True)
    if erased_at(database, settings, requested) is not None:
        return Requested(customer_id, contact_id, requested.deleted_at, is_published=False)
    entry = AuditEntry(
        customer_id, actor, ACTION, "published", contact_id, details={"deletedAt": requested.deleted_at.isoformat()}
    )
    await broker.ensure_topic(CONTACT_DELETION)
    async with await database.connect_async(Role.WRITER) as connection, connection.transaction():
        await AuditLogger.from_settings(settings).append_async(connection, [entry])
        # Last: from here on the transaction holds up everyone else who publishes to the topic.
        message = deletion_message(customer_id, contact_id, requested.deleted_at)
        stamped = Message(message.data, message.tenant, message.key, publishers.stamp(CONTACT_DELETION, actor))
        await broker.publish(CONTACT_DELETION, [stamped], connection=connection)
    return requested


def erased_at(database: Database, settings: Settings, requested: Requested) -> datetime | None:
    """When the worker carried this deletion out; None: not yet. Raises where the customer is none of ours."""
    version = int(requested.deleted_at.timestamp() * 1000)
    with database.connect(Role.READER) as connection:
        tenant = find_tenant(connection, requested.customer_id)
        ensure_usable(requested.customer_id, None if tenant is None else tenant.status)
        query = in_schema(_QUERIES["deletions"], requested.customer_id).encode()
        contact_hash = KeyedHashes.from_settings(settings).contact(requested.customer_id, requested.contact_id)
        done = dict(connection.execute(query, {"contact_hash": contact_hash}).fetchall())
    return done.get(version)


def wait_until_erased(
    database: Database,
    settings: Settings,
    requested: Requested,
    *,
    timeout_s: float,
    pause: Callable[[float], None] = time.sleep,
) -> datetime | None:
    """When the worker carried it out; None: it has not within the time."""
    deadline = time.monotonic() + timeout_s
    while (done := erased_at(database, settings, requested)) is None and time.monotonic() < deadline:
        pause(LOOK_EVERY_S)
    return done
