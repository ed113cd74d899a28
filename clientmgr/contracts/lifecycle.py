"""The messages that ask for a customer's activation or deletion: decoding, refusal by field. No I/O."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from clientmgr.base.customer_ids import CustomerId
from clientmgr.contracts.decoding import (
    Identifier,
    InvalidMessageError,
    Millis,
    check_occurred_at,
    checked_customer_id,
    decode,
)
from clientmgr.contracts.publishers import UNAUTHENTICATED


@dataclass(frozen=True, slots=True)
class TenantRequest:
    """Somebody asks for a customer's activation or deletion."""

    customer_id: CustomerId
    actor: str
    asked_at: datetime | None = None
    """When it was asked, as the message says. None: a person asks now, and overrules what was asked before."""
    event_id: str = ""
    claimed_by: str = ""
    """Who asks, as the message itself says: anybody can write anything there."""


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


def decode_activation(data: bytes, actor: str = UNAUTHENTICATED) -> TenantRequest:
    """What the message asks for, or `InvalidMessageError` that names the field. `actor`: see `publishers.actor_of`."""
    message: ActivateCustomer = decode(_ACTIVATION, data)
    return _request(message, actor)


def decode_deletion(data: bytes, actor: str = UNAUTHENTICATED) -> TenantRequest:
    """What the message asks for, or `InvalidMessageError` that names the field. `actor`: see `publishers.actor_of`."""
    message: DeleteAccount = decode(_DELETION, data)
    _check_text("requestedBy", message.requested_by)
    return _request(message, actor, claimed_by=message.requested_by)


def _request(message: ActivateCustomer | DeleteAccount, actor: str, *, claimed_by: str = "") -> TenantRequest:
    check_occurred_at(message.occurred_at)
    _check_text("eventId", message.event_id)
    return TenantRequest(
        checked_customer_id(message.customer_id),
        actor,
        datetime.fromtimestamp(message.occurred_at / 1000, UTC),
        message.event_id,
        claimed_by,
    )


def _check_text(field: str, value: str) -> None:
    """Refuse what no text column can hold: found in the database it would stop all that comes after it."""
    if "\0" in value:
        raise InvalidMessageError(f"{field}: expected text without NUL characters, got one")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(f"{field}: expected text that UTF-8 can express ({error.reason})") from None
