"""What stands for a contact, a device or a push token once it is deleted: a hash that is of no use without our key.

Tenants' tables know deleted things, and the history of links and claims, by these hashes alone. So a late event can be
recognised, and nothing that was erased can be read. The migration `sql/tenant/0002_keyed_hashes.sql` computes the same.
"""

from collections.abc import Sequence

from clientmgr.base.errors import SettingsError
from clientmgr.base.hash_length import HASH_BYTES
from clientmgr.base.keyed_sha256 import KeyedSha256
from clientmgr.base.settings import Settings


class KeyedHashes:
    """Makes the hashes: HMAC-SHA256, with the customer in it, so that no two tenants' hashes can be compared."""

    def __init__(self, key: bytes) -> None:
        if not key:
            raise SettingsError("AUDIT_HASH_KEY: expected a secret of some length, got nothing")
        # Not the audit log's own key: a hash of the one must say nothing about the other.
        self._digest = KeyedSha256(KeyedSha256(key)(b"clientmgr:erased"))

    @classmethod
    def from_settings(cls, settings: Settings) -> "KeyedHashes":
        return cls(settings.audit_hash_key.get_secret_value().encode())

    def contact(self, customer_id: int, contact_id: int) -> bytes:
        return self._hash(b"contact\0%d\0%d" % (customer_id, contact_id))

    def device(self, customer_id: int, application_code: str, client_id: str) -> bytes:
        # No identifier holds a NUL: where one ends and the next begins is certain.
        return self._hash(b"device\0%d\0%b\0%b" % (customer_id, application_code.encode(), client_id.encode()))

    def token(self, customer_id: int, application_code: str, digest: bytes) -> bytes:
        return self._hash(b"token\0%d\0%b\0%b" % (customer_id, application_code.encode(), digest))

    def devices(self, customer_id: int, application_codes: Sequence[str], client_ids: Sequence[str]) -> list[bytes]:
        """`device` for many at once."""
        heads = {code: b"device\0%d\0%b\0" % (customer_id, code.encode()) for code in set(application_codes)}
        data = [heads[code] + client.encode() for code, client in zip(application_codes, client_ids, strict=True)]
        return [made[:HASH_BYTES] for made in self._digest.each(data)]

    def tokens(
        self, customer_id: int, application_codes: Sequence[str], digests: Sequence[bytes | None]
    ) -> list[bytes | None]:
        """`token` for many at once. None of none."""
        heads = {code: b"token\0%d\0%b\0" % (customer_id, code.encode()) for code in set(application_codes)}
        both = zip(application_codes, digests, strict=True)
        made = iter(self._digest.each(heads[code] + digest for code, digest in both if digest is not None))
        return [None if digest is None else next(made)[:HASH_BYTES] for digest in digests]

    def session_settings(self) -> dict[str, str]:
        """The key as `clientmgr.keyed_hash` in SQL needs it, for the session of a migration and no other."""
        return {
            "clientmgr.hash_inner": self._digest.inner_pad.hex(),
            "clientmgr.hash_outer": self._digest.outer_pad.hex(),
        }

    def _hash(self, data: bytes) -> bytes:
        return self._digest(data)[:HASH_BYTES]
