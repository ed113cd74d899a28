"""Links and merges without the ids of deleted contacts: the keyed hash takes an id's place. Pure.

Nobody may have read the message yet, and it decides which devices go with a contact. So it has to say the same as
before: as an unlink, or erased, it would leave a deleted contact's device where it is.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from clientmgr.base.customer_ids import CustomerId
from clientmgr.broker.error_topics import ERROR_ATTRIBUTES
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.device_events import ContactMergePayload, ContactPayload, decode_event

EVENT_TYPES: Final = frozenset({"client.contactLinked", "client.contactMerged"})

OWN_ATTRIBUTES: Final = ERROR_ATTRIBUTES - {"error"}
"""Counts, times and classes. The text of an error may quote the message, and other attributes are their publisher's."""

_HASH_OF: Final = {
    "contact_id": "contact_hash",
    "from_contact_id": "from_contact_hash",
    "into_contact_id": "into_contact_hash",
}
_ANY_TIME: Final = 2**53
"""A message whose time has not come yet is refused now, and may be replayed later."""


def with_hashes(payload: bytes, deleted: Mapping[tuple[CustomerId, int], bytes]) -> tuple[bytes, str] | None:
    """The event with hashes for these contacts, and its client id. None: the writer would refuse it anyway."""
    try:
        decoded = decode_event(payload, now_ms=_ANY_TIME)
    except InvalidMessageError:
        return None
    contacts = decoded.payload
    if not isinstance(contacts, ContactPayload | ContactMergePayload):
        return None
    hashed = {
        field: value
        for id_field, hash_field in _HASH_OF.items()
        if (known := deleted.get((decoded.customer_id, getattr(contacts, id_field, 0)))) is not None
        for field, value in ((id_field, UNSET), (hash_field, known.hex()))
    }
    # Encoded from what was decoded: a field that the contract does not know is not in there.
    named = msgspec.Raw(msgspec.json.encode(replace(contacts, **hashed)))
    return msgspec.json.encode(replace(decoded.event, payload=named)), decoded.event.client_id
