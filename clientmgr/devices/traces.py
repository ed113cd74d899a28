"""What is left of devices, contacts and tokens once they are deleted, for support people: found by hash. Read only.

A hash can't be read backwards. So whoever asks names the client or the contact; nothing can list the deleted ones.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.lookup import EXPORT_ROWS_AT_ONCE, DeviceLookup, StoredDevice


@dataclass(frozen=True, slots=True)
class Link:
    """A contact that the device was linked to at some time, and when that contact was deleted, if it was."""

    contact_id: int | None
    """None: it is deleted."""
    linked_version: int
    contact_deleted_version: int | None


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """Which device claimed a token last."""

    client_id: str | None
    """None: it is deleted."""
    is_its_own: bool
    version: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Up to when the device is deleted, by each of the two reasons; 0: not by this one."""

    own_version: int
    contact_version: int
    """By the deletion of the contact that it belonged to."""
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """All that is left of a device: its row, if it has one, and what explains the row or its absence."""

    application_code: str
    client_id: str
    device: StoredDevice | None
    tombstone: Tombstone | None
    links: tuple[Link, ...]
    unlinked_versions: tuple[int, ...]
    claim: TokenClaim | None
    """Of the token that it set last."""

    @property
    def deleted_version(self) -> int | None:
        return None if self.tombstone is None else max(self.tombstone.own_version, self.tombstone.contact_version)


class DeviceTraces:
    """Answers questions about one tenant that only the holder of the key can ask."""

    def __init__(self, connection: Connection[Any], customer_id: CustomerId, hashes: KeyedHashes) -> None:
        self.lookup = DeviceLookup(connection, customer_id)
        self._customer_id = customer_id
        self._hashes = hashes

    def by_token(self, token: str, *, limit: int) -> list[StoredDevice]:
        """The devices (one of an application) that hold a push token or a web push endpoint."""
        digest = token_digest(token)
        tokens = [self._hashes.token(self._customer_id, one, digest) for one in self._applications()]
        return self.lookup.devices("by_token", tokens=tokens, limit=limit)

    def everything(self, client_id: str, application_code: str | None = None) -> list[KnownDevice]:
        """What is known of a client in one application, or in each that has devices; also of one that is deleted."""
        devices = {
            device.application_code: device for device in self.lookup.by_client(client_id, limit=EXPORT_ROWS_AT_ONCE)
        }
        applications = self._applications() if application_code is None else [application_code]
        known = (self._known(one, client_id, devices.get(one)) for one in applications)
        return [one for one in known if one.device is not None or one.deleted_version or one.links]

    def _known(self, application_code: str, client_id: str, device: StoredDevice | None) -> KnownDevice:
        device_hash = self._hashes.device(self._customer_id, application_code, client_id)
        tombstones = self.lookup.rows("tombstone_of_device", device=device_hash)
        return KnownDevice(
            application_code,
            client_id,
            device,
            Tombstone(*tombstones[0]) if tombstones else None,
            tuple(Link(*row) for row in self.lookup.rows("links_of_device", device=device_hash)),
            tuple(version for (version,) in self.lookup.rows("unlinks_of_device", device=device_hash)),
            self._claim(device, device_hash),
        )

    def _claim(self, device: StoredDevice | None, device_hash: bytes) -> TokenClaim | None:
        if device is None or device.push_token_hash is None:
            return None
        rows = self.lookup.rows("claim_of_token", token=device.push_token_hash)
        return next((TokenClaim(client, bytes(by) == device_hash, version) for by, client, version in rows), None)

    def _applications(self) -> list[str]:
        return [application for (application,) in self.lookup.rows("applications")]
