"""A realistic, seeded stream of messages about devices, for demo, tests and benchmarks. Pure: the same for a config.

Devices live a life: registered, given a token, linked to a contact, updated many times, deleted at last, and now and
then back again. Shares of the stream are out of order, late, doubled or malformed, as the config says.
"""

import bisect
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.local.load.life import Device, Life
from clientmgr.local.load.malformed import malformed
from clientmgr.local.load.traits import traits_of

SHARES: Final = ("malformed", "duplicates", "late", "out_of_order", "verdicts", "contact_deletions")
OUT_OF_ORDER_MS: Final = (1, 5_000)
"""How long before one of its device that was sent already an event happened that is out of order."""
LATE_MS: Final = (3_600_000, 3 * 86_400_000)
"""The same for a late one: the device was offline for an hour to three days."""
REMEMBERED: Final = 512
"""Duplicates, verdicts and deletions take up again something of the last so many devices and events."""


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """What a stream is like. Shares are of all messages, from 0 to 1; what is left is devices' lives in order."""

    tenants: tuple[CustomerId, ...]
    start_at: int
    """When the first event happens, in epoch milliseconds."""
    seed: int = 1
    interval_ms: float = 1.0
    """Time from one event to the next."""
    devices: int = 1000
    """Devices of a tenant."""
    skew: float = 0.0
    """0: all tenants alike; 1: the second has half the traffic of the first, the third a third, and so on."""
    malformed: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    out_of_order: float = 0.0
    verdicts: float = 0.0
    contact_deletions: float = 0.0

    def __post_init__(self) -> None:
        if not self.tenants:
            raise InvalidInputError("tenants", "at least one customer id", "")
        if self.devices < 1:
            raise InvalidInputError("devices", "at least 1", self.devices)
        if not 0 <= self.skew < math.inf:
            raise InvalidInputError("skew", "0 or more", self.skew)
        shares = {name: float(getattr(self, name)) for name in SHARES}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise InvalidInputError(name.replace("_", "-"), "a share from 0 to 1", share)
        if sum(shares.values()) > 1 + 1e-9:
            raise InvalidInputError("shares", "at most 1 in all", round(sum(shares.values()), 6))

    def topics(self) -> list[str]:
        """Where its messages go."""
        verdicts = [topics.PUSH_TOKEN_STATUS, topics.WEB_PUSH_TOKEN_STATUS] if self.verdicts else []
        deletions = [topics.CONTACT_DELETION] if self.contact_deletions else []
        return [topics.WRITER, *verdicts, *deletions]


class LoadItem(NamedTuple):
    """A message and where it goes."""

    topic: str
    message: Message


def generate(config: LoadConfig) -> Iterator[LoadItem]:
    """The stream. It has no end."""
    return _Stream(config).items()


class _Stream:
    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        # The start is part of the seed: two runs have their devices in common, never an event id.
        self._chance = random.Random(f"{config.seed}/{config.start_at}")  # noqa: S311  # to be repeated, not secret
        self._life = Life(self._chance)
        self._tenant_bounds = list(
            itertools.accumulate(1 / rank**config.skew for rank in range(1, len(config.tenants) + 1))
        )
        self._devices: dict[tuple[int, int], Device] = {}
        self._recent_devices: list[Device] = []
        self._recent_items: list[LoadItem] = []
        self._now = config.start_at

    def items(self) -> Iterator[LoadItem]:
        config = self._config
        bounds = list(itertools.accumulate(getattr(config, name) for name in SHARES))
        makers: list[Callable[[], LoadItem | None]] = [
            self._malformed,
            self._duplicate,
            lambda: self._from_the_past(LATE_MS),
            lambda: self._from_the_past(OUT_OF_ORDER_MS),
            self._verdict,
            self._contact_deletion,
            self._in_order,
        ]
        draw = self._chance.random
        for position in itertools.count():
            self._now = config.start_at + int(position * config.interval_ms)
            # None: it takes up something that has happened, and nothing of the kind has yet.
            yield makers[bisect.bisect_right(bounds, draw())]() or self._in_order()

    def _in_order(self) -> LoadItem:
        device = self._any_device()
        device.newest = max(self._now, device.newest + 1)
        kind, payload = self._life.next_of(device, self._recent_devices)
        item = _item(topics.WRITER, device, self._event(device, kind, device.newest, payload))
        if len(self._recent_items) < REMEMBERED:
            self._recent_devices.append(device)
            self._recent_items.append(item)
        else:
            place = int(self._chance.random() * REMEMBERED)
            self._recent_devices[place] = device
            self._recent_items[place] = item
        return item

    def _malformed(self) -> LoadItem:
        device = self._any_device()
        sound = self._event(device, "client.updated", self._now, {"language": "en"})
        return _item(topics.WRITER, device, malformed(sound, self._chance))

    def _duplicate(self) -> LoadItem | None:
        return self._chance.choice(self._recent_items) if self._recent_items else None

    def _from_the_past(self, behind_ms: tuple[int, int]) -> LoadItem | None:
        if not self._recent_devices:
            return None
        device = self._chance.choice(self._recent_devices)
        kind, payload = self._life.earlier_of(device)
        at = device.newest - self._chance.randint(*behind_ms)
        return _item(topics.WRITER, device, self._event(device, kind, at, payload))

    def _verdict(self) -> LoadItem | None:
        device = self._recent_device(lambda device: device.token is not None)
        if device is None:
            return None
        is_web = device.traits.token_kind == "webpush"  # noqa: S105  # a kind
        invalid = self._chance.random() < 0.7
        verdict = {
            "eventId": self._event_id(),
            "customerId": device.tenant,
            "applicationCode": device.traits.key.application_code,
            "clientId": device.traits.key.client_id,
            "endpoint" if is_web else "pushToken": device.token,
            "status": "invalid" if invalid else "valid",
            "reason": "Unregistered" if invalid else None,
            "occurredAt": max(self._now, device.newest),
        }
        return _item(topics.WEB_PUSH_TOKEN_STATUS if is_web else topics.PUSH_TOKEN_STATUS, device, verdict)

    def _contact_deletion(self) -> LoadItem | None:
        device = self._recent_device(lambda device: device.contact_id is not None)
        if device is None:
            return None
        # What the device does next comes after this, or the deletion would swallow it.
        device.newest = max(self._now, device.newest)
        deletion = {
            "eventId": self._event_id(),
            "customerId": device.tenant,
            "contactId": device.contact_id,
            "deletedAt": device.newest,
        }
        device.forget()
        return _item(topics.CONTACT_DELETION, device, deletion)

    def _any_device(self) -> Device:
        draw = self._chance.random
        bounds = self._tenant_bounds
        tenant = self._config.tenants[bisect.bisect_right(bounds, draw() * bounds[-1], hi=len(bounds) - 1)]
        return self._device_of(tenant)

    def _device_of(self, tenant: CustomerId) -> Device:
        number = int(self._chance.random() * self._config.devices)
        device = self._devices.get((tenant, number))
        if device is None:
            device = Device(tenant, traits_of(self._config.seed, tenant, number))
            self._devices[tenant, number] = device
        return device

    def _recent_device(self, suits: Callable[[Device], bool]) -> Device | None:
        """One of the last, by chance; None where a few tries find none that suits."""
        for _ in range(10 if self._recent_devices else 0):
            device = self._chance.choice(self._recent_devices)
            if suits(device):
                return device
        return None

    def _event(self, device: Device, kind: str, at: int, payload: dict[str, Any]) -> dict[str, Any]:
        return {
            "eventId": self._event_id(),
            "eventType": kind,
            "customerId": device.tenant,
            "applicationCode": device.traits.key.application_code,
            "clientId": device.traits.key.client_id,
            "occurredAt": at,
            "payload": payload,
        }

    def _event_id(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"


def _item(topic: str, device: Device, content: Any) -> LoadItem:
    return LoadItem(topic, Message(msgspec.json.encode(content), str(device.tenant), device.traits.key.client_id))
