"""A device as whoever sends to a contact sees it, the same from PostgreSQL and from DynamoDB. Types only."""

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from clientmgr.contracts.device_fields import SENDERS_FIELDS, with_fields


@with_fields(SENDERS_FIELDS, lambda field: (field.name, Any, None))
class ContactDevice(Struct, frozen=True, gc=False):
    """A device of a contact, in one application: the fields that code names, and all others that senders may need.

    Times are epoch milliseconds. JSON is text, as the store has it: few ask for what is in it.
    """

    contact_id: int
    client_id: str
    platform: str | None = None
    provider: str = "none"
    push_enabled: bool | None = None
    push_token: str | None = None
    push_token_kind: str | None = None
    push_token_status: str = "none"  # noqa: S105  # a status
    web_push: str | None = None
    """A browser's subscription, as JSON."""
    language: str | None = None
    application_version: str | None = None
    last_seen_at: int | None = None
    attributes: str | None = None

    @property
    def token_text(self) -> str | None:
        """What its push token is known by: the token, or a web push subscription's endpoint."""
        if self.push_token_kind is None or self.web_push is None:
            return self.push_token if self.push_token_kind is not None else None
        endpoint = msgspec.json.decode(self.web_push).get("endpoint")
        return endpoint if isinstance(endpoint, str) else None


ADDRESS_FIELDS: Final = ContactDevice.__struct_fields__[: ContactDevice.__struct_fields__.index("language") + 1]
"""What every message needs to know of a device: whose it is, how it is reached, and what it reads."""

DevicesByContact = dict[int, list[ContactDevice]]
"""Contacts without a device are not in it."""


class Reported(Struct, frozen=True):
    """What events have reported to PostgreSQL about a device that another store has too."""

    knows_contact: bool
    """Whether they reported whose it is: a contact's, nobody's since it was unlinked, or that it was deleted."""
    fields: dict[str, Any] = field(default_factory=dict)
    """If they did not: the fields of a `ContactDevice` that they reported."""
