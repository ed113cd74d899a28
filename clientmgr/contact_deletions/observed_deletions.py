"""What was deleted of each customer since somebody last looked: the audit log says so, in the transaction that deletes.

Whoever shows it elsewhere calls `observed` afterwards: killed in between, the same is shown again, and nothing is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from clientmgr.base.arrays import bigint_array
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.deletions import CONTACT_DELETED, ORPHANS_DELETED
from clientmgr.tenants import account_deletion

_QUERIES = named_queries("contact_deletions/queries/observed_deletions.sql")


@dataclass(frozen=True, slots=True)
class DeletionsSince:
    """News of one customer's audit chain. Counts only: whoever shows them keeps them longer than we may keep names."""

    customer_id: CustomerId
    seen_seq: int
    head_seq: int
    head_hash: str
    """Of the chain's end: it stands for every row up to there."""
    contacts: int
    """Deletions of contacts that were carried out; also of contacts without a device."""
    devices_of_contacts: int
    devices: int
    """All that went, orphans too."""
    deleted_at: datetime | None
    """None: the chain is longer, by something else than a deletion."""


def unobserved(connection: Connection[Any], *, most: int) -> list[DeletionsSince]:
    """Customers whose chain is longer than when last looked at, at most so many of them."""
    actions = {
        "contact_action": CONTACT_DELETED,
        "account_action": account_deletion.ACTION,
        "actions": [CONTACT_DELETED, ORPHANS_DELETED],
    }
    with connection.cursor(row_factory=class_row(DeletionsSince)) as cursor:
        return cursor.execute(_QUERIES["unobserved"], {"most": most, **actions}).fetchall()


def observed(connection: Connection[Any], seen: Sequence[DeletionsSince]) -> None:
    """Up to here they are shown."""
    columns = {
        "customers": bigint_array(one.customer_id for one in seen),
        "seqs": bigint_array(one.head_seq for one in seen),
    }
    connection.execute(_QUERIES["observed"], columns)
