"""HMAC-SHA256 with one key, in half the time of `hmac.digest`: the key is taken in once, not at every call.

The writer makes more than one for each event, contact deletion five for each contact.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

_BLOCK: Final = 64
"""Of SHA-256, in bytes."""


class KeyedSha256:
    """`KeyedSha256(key)(data)` is `hmac.digest(key, data, "sha256")` (RFC 2104)."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self.inner_pad = bytes(byte ^ 0x36 for byte in padded)
        self.outer_pad = bytes(byte ^ 0x5C for byte in padded)
        self._inner = hashlib.sha256(self.inner_pad)
        self._outer = hashlib.sha256(self.outer_pad)

    def __reduce__(self) -> tuple[type["KeyedSha256"], tuple[bytes]]:
        """A hash that has begun can't be pickled, and Spark's tasks are sent the key."""
        return KeyedSha256, (self._key,)

    def __call__(self, data: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(data)
        outer.update(inner.digest())
        return outer.digest()

    def each(self, data: Iterable[bytes]) -> list[bytes]:
        """The same for many. Where hundreds of thousands are made, the calls are a third of the time."""
        begin, finish, made = self._inner.copy, self._outer.copy, []
        for one in data:
            inner, outer = begin(), finish()
            inner.update(one)
            outer.update(inner.digest())
            made.append(outer.digest())
        return made
