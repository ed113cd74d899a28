"""The life of a device in a generated load: what happens to it next, and what its application then tells us."""

import random
from collections.abc import Sequence
from typing import Any, Final

from clientmgr.base.customer_ids import CustomerId
from clientmgr.local.load.traits import Traits, language, timezone

Happening = tuple[str, dict[str, Any]]
"""Event type and payload."""

SDK_VERSIONS: Final = ("3.14.0", "3.15.2", "3.16.0", "4.0.1")
GETS_TOKEN: Final = 0.8
GETS_CONTACT: Final = 0.7
TAKEN_OVER: Final = 0.05
"""Of the tokens that are set, so many were another device's before."""


class Device:
    """A device as its own application knows it."""

    __slots__ = ("contact_id", "newest", "patch", "registered", "tenant", "token", "traits")

    def __init__(self, tenant: CustomerId, traits: Traits) -> None:
        self.tenant = tenant
        self.traits = traits
        self.patch = 0
        self.newest = 0
        """When the newest event happened that we have made of it."""
        self.forget()

    def forget(self) -> None:
        """Its application is gone from it; what it does next is to register."""
        self.registered = False
        self.token: str | None = None
        self.contact_id: int | None = None


class Life:
    """Decides what happens. All chance comes from the one generator it is given."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._draw = chance.random

    def next_of(self, device: Device, others: Sequence[Device]) -> Happening:
        """What happens to the device next. `others`: whose tokens it may have taken over."""
        if not device.registered:
            device.registered = True
            return "client.registered", self._registration(device)
        if device.token is None and self._draw() < GETS_TOKEN:
            return self._token_set(device, others)
        if device.contact_id is None and self._draw() < GETS_CONTACT:
            return self._linked(device, device.traits.contact_id)
        return self._next_of_settled(device, others)

    def _next_of_settled(self, device: Device, others: Sequence[Device]) -> Happening:
        draw = self._draw() * 100
        if draw < 6:
            return self._token_set(device, others)
        if draw < 8:
            device.token = None
            return "client.pushTokenCleared", {}
        if draw < 11:
            return self._linked(device, device.traits.contact_id + int(self._draw() * 3))
        if draw < 14:
            device.contact_id = None
            return "client.contactUnlinked", {}
        if draw < 16:
            device.forget()
            return "client.deleted", {}
        return "client.updated", self._changes(device)

    def earlier_of(self, device: Device) -> Happening:
        """What may have happened to a device some time ago. It leaves the device as it is."""
        draw = self._draw()
        if draw < 0.2:
            return "client.pushTokenSet", self._token_payload(device, self._new_token(device))
        if draw < 0.4:
            return "client.contactLinked", {"contactId": device.traits.contact_id + int(draw * 10)}
        return "client.updated", self._changes(device)

    def _linked(self, device: Device, contact_id: int) -> Happening:
        device.contact_id = contact_id
        return "client.contactLinked", {"contactId": contact_id}

    def _token_set(self, device: Device, others: Sequence[Device]) -> Happening:
        device.token = self._new_token(device)
        if others and self._draw() < TAKEN_OVER:
            other = others[int(self._draw() * len(others))]
            if other.token is not None and other.traits.takes_tokens_of(device.traits):
                device.token = other.token
        return "client.pushTokenSet", self._token_payload(device, device.token)

    def _registration(self, device: Device) -> dict[str, Any]:
        return {
            **device.traits.info,
            "applicationVersion": self._version(device),
            "sdkVersion": SDK_VERSIONS[int(self._draw() * len(SDK_VERSIONS))],
            "pushSettings": {"channels": ["news", "orders"], "quiet": self._draw() < 0.1},
        }

    def _changes(self, device: Device) -> dict[str, Any]:
        draw = self._draw()
        number = int(draw * 1000)
        if draw < 0.5:
            device.patch += 1
            return {"applicationVersion": self._version(device)}
        if draw < 0.65:
            return {"attributes": {"loyalty": number % 5, "city": timezone(number), "visits": number}}
        if draw < 0.75:
            return {"language": language(number), "timezone": timezone(number)}
        if draw < 0.85:
            return {"pushEnabled": number % 3 != 0}
        if draw < 0.9:
            return {"pushSettings": {"channels": ["orders"], "quiet": number % 2 == 0}}
        # Opened, and nothing new to tell; or a value taken back.
        return {} if draw < 0.97 else {"timezone": None, "attributes": None}

    def _version(self, device: Device) -> str:
        return f"4.{device.traits.contact_id % 12}.{device.patch}"

    def _new_token(self, device: Device) -> str:
        match device.traits.token_kind:
            case "apns":
                return self._hex(64)
            case "fcm_fid":
                return self._hex(22)
            case "webpush":
                return f"https://push.example.com/wpush/v2/{self._hex(86)}"
            case _:
                return f"{self._hex(22)}:APA91b{self._hex(134)}"

    def _token_payload(self, device: Device, token: str) -> dict[str, Any]:
        kind = device.traits.token_kind
        if kind != "webpush":
            return {"kind": kind, "pushToken": token}
        return {"kind": kind, "webPush": {"endpoint": token, "keys": {"p256dh": self._hex(87), "auth": self._hex(22)}}}

    def _hex(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"
