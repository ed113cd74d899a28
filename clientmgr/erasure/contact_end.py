"""When a contact was deleted, and by what: its tombstones and the audit rows about it, for whoever looks for it."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from psycopg import Connection

from clientmgr.audit.log import AuditRecord
from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.deletions import CONTACT_DELETED
from clientmgr.devices.explanation import time_of
from clientmgr.erasure.requests import ACTION as REQUESTED
from clientmgr.erasure.subject import Keys

_TENANT = named_queries("tenant/queries/subject.sql")
_AUDIT = named_queries("erasure/queries/places.sql")


class ContactEnd(Struct, frozen=True, rename="camel"):
    """The newest deletion of a contact."""

    deleted_at: datetime
    """By whoever deleted it."""
    recorded_at: datetime
    """When it was carried out here."""
    by: str
    """In words: who asked, who published it, who carried it out, as far as the audit log has it."""

    def sentence(self, contact_id: int) -> str:
        return (
            f"contact {contact_id} was deleted at {self.deleted_at:%Y-%m-%d %H:%M:%S} UTC, {self.by}"
            f" at {self.recorded_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        )


def end_of_contact(
    connection: Connection[Any], customer_id: CustomerId, contact_id: int, keys: Keys
) -> ContactEnd | None:
    """None: no deletion of it is kept."""
    wanted = {"contact_hash": keys.hashes.contact(customer_id, contact_id)}
    deletions = connection.execute(in_schema(_TENANT["deletions"], customer_id).encode(), wanted).fetchall()
    if not deletions:
        return None
    version, recorded_at = deletions[-1]
    about = {"customer_id": customer_id, "contact_hash": keys.audit.contact_hash(customer_id, contact_id)}
    rows = [AuditRecord(*row) for row in connection.execute(_AUDIT["audit_rows"], about)]
    deleted_at = time_of(version)
    return None if deleted_at is None else ContactEnd(deleted_at, recorded_at, _by(rows))


def _by(rows: list[AuditRecord]) -> str:
    asked = [row for row in rows if row.action == REQUESTED]
    done = [row for row in rows if row.action == CONTACT_DELETED]
    said = [f"asked for by {asked[-1].actor}"] if asked else []
    if done:
        publisher = done[-1].details.get("published_by")
        said += [f"published by {publisher}"] if publisher and not asked else []
        said += [f"carried out by {done[-1].actor} (audit row {done[-1].seq})"]
    return ", ".join(said) or "by whom the audit log does not say"
