"""The messages that say a contact was deleted, decoded and checked; and what the audit log calls deletions. No I/O."""

from typing import Final

import msgspec
from msgspec import Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import ContactId, Identifier, Millis, check_occurred_at, checked_customer_id, decode

CONTACT_DELETED: Final = "contact.delete"
ORPHANS_DELETED: Final = "orphans.delete"
"""Actions in the audit log. `rows_affected` is how many devices went."""


class ContactDeletion(Struct, frozen=True, rename="camel"):
    """A message of `client-manager.contact-deletion`."""

    event_id: Identifier
    customer_id: int
    contact_id: ContactId
    deleted_at: Millis


_DECODER = msgspec.json.Decoder(ContactDeletion)


def decode_deletion(data: bytes) -> tuple[CustomerId, ContactDeletion]:
    deletion: ContactDeletion = decode(_DECODER, data)
    check_occurred_at(deletion.deleted_at, field="deletedAt")
    return checked_customer_id(deletion.customer_id), deletion
