"""Pausing a subscription and resuming it, each with a row in the audit log.

Nobody claims anything of a paused subscription. A batch in hand is finished; all else waits where it is and loses none
of its attempts. The log keeps what a paused subscription has not read, however long that takes.
"""

from typing import Any

from psycopg import Connection

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger
from clientmgr.base.errors import PermanentError
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.postgres.topic_administration import UnknownSubscriptionError

_QUERIES = named_queries("broker/queries/pauses.sql")


def pause(connection: Connection[Any], subscription: str, audit: AuditLogger, *, reason: str, actor: str) -> bool:
    """False: it was paused already, and nothing is recorded. The connection is in autocommit mode."""
    topic = _topic(connection, subscription)
    wanted = {"group_id": subscription, "reason": reason, "paused_by": actor}
    with connection.transaction():
        if connection.execute(_QUERIES["pause"], wanted).fetchone() is None:
            return False
        details = {"topic": topic, "subscription": subscription, "reason": reason}
        audit.append(connection, [AuditEntry(PLATFORM, actor, "subscription.pause", "paused", details=details)])
    return True


def resume(connection: Connection[Any], subscription: str, audit: AuditLogger, *, actor: str) -> bool:
    """False: it was not paused. Its consumers go on at once."""
    topic = _topic(connection, subscription)
    with connection.transaction():
        if connection.execute(_QUERIES["resume"], {"group_id": subscription}).fetchone() is None:
            return False
        details = {"topic": topic, "subscription": subscription}
        audit.append(connection, [AuditEntry(PLATFORM, actor, "subscription.resume", "resumed", details=details)])
        connection.execute(_QUERIES["wake"], {"topic": topic})
    return True


def _topic(connection: Connection[Any], subscription: str) -> str:
    if subscription.startswith("projects/"):
        raise PermanentError("a subscription of the Pub/Sub gateway is paused by its own clients: they stop pulling")
    row = connection.execute(_QUERIES["topic_of"], {"group_id": subscription}).fetchone()
    if row is None:
        raise UnknownSubscriptionError(subscription)
    return str(row[0])
