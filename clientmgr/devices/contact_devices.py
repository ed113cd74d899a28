"""A device as whoever sends to a contact sees it, the same from PostgreSQL and from DynamoDB. Types only."""

from typing import Any

from msgspec import Struct, field


class ContactDevice(Struct, frozen=True, gc=False):
    """A device of a contact, in one application. The order of the fields is the order of the query's columns."""

    contact_id: int
    client_id: str
    platform: str | None = None
    provider: str = "none"
    push_enabled: bool | None = None
    push_token: str | None = None
    push_token_kind: str | None = None
    push_token_status: str = "none"  # noqa: S105  # a status
    web_push: str | None = None
    """A browser's subscription as JSON, as the store has it."""
    language: str | None = None
    application_version: str | None = None
    os_version: str | None = None
    sdk_version: str | None = None
    device_model: str | None = None
    hardware_id: str | None = None
    timezone: str | None = None
    last_seen_at: int | None = None
    """Epoch milliseconds, like the two below."""
    created_at: int | None = None
    updated_at: int | None = None
    push_settings: str | None = None
    """JSON, like the attributes: hardly anybody asks for what is in them."""
    attributes: str | None = None


DevicesByContact = dict[int, list[ContactDevice]]
"""Contacts without a device are not in it."""


class Told(Struct, frozen=True):
    """What events have told PostgreSQL of a device that another store has too."""

    whose: bool
    """Whether they told whose it is: a contact's, nobody's since it was unlinked, or that it was deleted."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Else those fields of a `ContactDevice` that they did tell."""
