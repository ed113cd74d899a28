"""The messages that ask for a customer's activation or deletion: topics, decoding, refusal by field. No I/O."""

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from clientmgr.devices.events import (
    Identifier,
    InvalidMessageError,
    Millis,
    check_occurred_at,
    checked_customer_id,
    decode,
)
from clientmgr.tenants.wishes import Request

ACTIVATE_CUSTOMER = "client-manager.activate-customer"
ACCOUNT_DELETION = "client-manager.account-deletion"


class ActivateCustomer(Struct, frozen=True, rename="camel"):
    """A message of `client-manager.activate-customer`."""

    event_id: Identifier
    customer_id: int
    occurred_at: Millis


class DeleteAccount(Struct, frozen=True, rename="camel"):
    """A message of `client-manager.account-deletion`."""

    event_id: Identifier
    customer_id: int
    requested_by: Identifier
    occurred_at: Millis


_ACTIVATION = msgspec.json.Decoder(ActivateCustomer)
_DELETION = msgspec.json.Decoder(DeleteAccount)


def decode_activation(data: bytes) -> Request:
    """What the message asks for, or `InvalidMessageError` that names the field."""
    message: ActivateCustomer = decode(_ACTIVATION, data)
    return _request(message, actor=ACTIVATE_CUSTOMER)


def decode_deletion(data: bytes) -> Request:
    """What the message asks for and who does, or `InvalidMessageError` that names the field."""
    message: DeleteAccount = decode(_DELETION, data)
    _check_text("requestedBy", message.requested_by)
    return _request(message, actor=message.requested_by)


def _request(message: ActivateCustomer | DeleteAccount, *, actor: str) -> Request:
    check_occurred_at(message.occurred_at)
    _check_text("eventId", message.event_id)
    return Request(
        checked_customer_id(message.customer_id),
        actor,
        datetime.fromtimestamp(message.occurred_at / 1000, UTC),
        message.event_id,
    )


def _check_text(field: str, value: str) -> None:
    """Refuse what no text column can hold: found in the database it would stop all that comes after it."""
    if "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(f"{field}: expected text that UTF-8 can express ({error.reason})") from None
