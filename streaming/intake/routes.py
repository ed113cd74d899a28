"""Every operation of the intake, stated once. The server goes by these, and the OpenAPI document is made of them."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from clientmgr.contracts.decoding import ContactId, Identifier, Millis
from clientmgr.contracts.device_events import EventType, InfoPayload, WebPush
from clientmgr.contracts.providers import TOKEN_KINDS

if TYPE_CHECKING:
    DeviceTokenKind = str
else:
    DeviceTokenKind = Literal[tuple(kind for kind in TOKEN_KINDS if kind != "webpush")]

PREFIX: Final = "/v1"
EVENTS_PATH: Final = f"{PREFIX}/events"
DEVICES_PATH: Final = f"{PREFIX}/devices"
HEALTH_PATH: Final = "/healthz"
DOCUMENT_PATH: Final = "/openapi.json"
OPEN_TO_ALL: Final = (HEALTH_PATH, DOCUMENT_PATH)

Method = Literal["GET", "PUT", "POST", "PATCH", "DELETE"]


class Accepted(Struct, frozen=True, rename="camel"):
    """The events are in the log: whatever happens, they will be written."""

    accepted: int
    event_ids: list[str]
    """In the order of the events. Send the same again if an answer was lost: it changes nothing."""


class Route(Struct, frozen=True):
    """An operation on a device."""

    method: Method
    part: str
    """Of the device: what follows its id in the path. Empty: the device itself."""
    summary: str
    event_type: EventType
    bodies: tuple[type[Struct], ...] = ()
    """What the body may be: it becomes the event's payload. None: there is no body."""
    narrows: bool = False
    """Only what the body's type has is passed on, though the event's payload may hold more."""

    @property
    def path(self) -> str:
        return f"{DEVICES_PATH}/{{clientId}}" + (f"/{self.part}" if self.part else "")


class DeviceToken(Struct, frozen=True, rename="camel"):
    """The token of a device."""

    kind: DeviceTokenKind
    push_token: Annotated[str, Meta(min_length=1, max_length=8192)]


class BrowserToken(Struct, frozen=True, rename="camel"):
    """The push subscription of a browser, as `PushSubscription.toJSON()` gives it."""

    kind: Literal["webpush"]
    web_push: WebPush


class PushSettings(Struct, frozen=True, rename="camel"):
    """Whether the device wants messages, and which."""

    push_enabled: bool | UnsetType | None = UNSET
    push_settings: dict[str, Any] | UnsetType | None = UNSET


class Contact(Struct, frozen=True, rename="camel"):
    """Whose device it is."""

    contact_id: ContactId


DEVICE_ROUTES: Final = (
    Route("PUT", "", "Register a device.", "client.registered", (InfoPayload,)),
    Route(
        "PATCH",
        "",
        "Update what is known of a device. Absent: unchanged; null: cleared.",
        "client.updated",
        (InfoPayload,),
    ),
    Route("DELETE", "", "Delete a device.", "client.deleted"),
    Route("PUT", "push-token", "Set the push token.", "client.pushTokenSet", (DeviceToken, BrowserToken)),
    Route("DELETE", "push-token", "Remove the push token.", "client.pushTokenCleared"),
    Route(
        "PUT",
        "push-settings",
        "Set whether and what the device wants to be sent.",
        "client.updated",
        (PushSettings,),
        narrows=True,
    ),
    Route("PUT", "contact", "Link the device to a contact.", "client.contactLinked", (Contact,), narrows=True),
    Route("DELETE", "contact", "Unlink the device from its contact.", "client.contactUnlinked"),
    Route("POST", "seen", "A sign of life.", "client.updated"),
)

EVENT_BODIES: Final[dict[str, tuple[type[Struct], ...]]] = {
    route.event_type: route.bodies for route in DEVICE_ROUTES if route.part not in ("push-settings", "seen")
}
"""The payload of each event that an application may send."""


class Envelope(Struct, frozen=True, rename="camel"):
    """What all events share. What is absent is filled in; customer and application are the key's."""

    client_id: Identifier
    event_id: Identifier | UnsetType = UNSET
    occurred_at: Millis | UnsetType = UNSET
    customer_id: int | UnsetType = UNSET
    application_code: str | UnsetType = UNSET


def find_route(method: str, part: str) -> Route | None:
    return _BY_PLACE.get((method, part))


def methods_of(part: str) -> list[str]:
    return [route.method for route in DEVICE_ROUTES if route.part == part]


_BY_PLACE: Final[dict[tuple[str, str], Route]] = {(route.method, route.part): route for route in DEVICE_ROUTES}
