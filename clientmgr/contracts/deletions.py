"""The messages that say a contact was deleted, decoded and checked. No I/O."""

import msgspec
from msgspec import Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import ContactId, Identifier, Millis, check_occurred_at, checked_customer_id, decode


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
