"""Keys of the HTTP intake: how they are spelled, hashed and derived, and what a signature covers. No I/O.

A `server` key's secret is random, and only its hash is kept. An `app` key is used to sign: whoever checks a signature
needs the secret itself, so it is derived from INTAKE_SIGNING_KEY and the key's id, and kept nowhere. docs/intake.md has
test vectors.
"""

import enum
import hashlib
import hmac
import re
import secrets
from typing import Final

from msgspec import Struct

SCHEME: Final = "CMK1-HMAC-SHA256"
"""How a signed request authenticates itself. Its number changes with what is signed."""
WINDOW_MS: Final = 5 * 60 * 1000
"""How far the time of a signature may be from ours, in either direction."""

_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"cmk_([0-9a-f]{12})_([0-9a-f]{64})")
_SIGNED: Final = re.compile(
    SCHEME + r" +Key=(?:cmk_)?([0-9a-f]{12}), *Timestamp=([1-9][0-9]{0,15}), *Signature=([0-9a-f]{64})"
)


class KeyKind(enum.StrEnum):
    """Who holds the key, and so how it is shown."""

    SERVER = "server"
    """A back end: it keeps a secret, and sends the key itself over TLS."""
    APP = "app"
    """An app or a web page: it signs its requests, so that the key is never sent."""


class SignedBy(Struct, frozen=True):
    """What the Authorization header of a signed request says."""

    key_id: str
    timestamp_ms: int
    signature: str


def new_key_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def random_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


def derived_secret(signing_key: bytes, key_id: str) -> str:
    """Of an `app` key. Whoever has the database, but not INTAKE_SIGNING_KEY, can't make it."""
    return hmac.digest(signing_key, b"clientmgr:intake:" + key_id.encode(), "sha256").hex()


def secret_hash(secret: str) -> bytes:
    """What is kept. The secret has 256 random bits: nobody finds it by trying, so a quick hash will do."""
    return hashlib.sha256(secret.encode()).digest()


def key_text(key_id: str, secret: str) -> str:
    return f"cmk_{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Id and secret, or None where it is no key."""
    match = _KEY.fullmatch(text)
    return (match[1], match[2]) if match else None


def parse_signed(authorization: str) -> SignedBy | None:
    match = _SIGNED.fullmatch(authorization)
    return SignedBy(match[1], int(match[2]), match[3]) if match else None


def text_to_sign(method: str, target: str, timestamp_ms: int, idempotency_key: str, body: bytes) -> str:
    """Six lines without a line end after the last. `target`: path and query exactly as they are sent."""
    digest = hashlib.sha256(body).hexdigest()
    return f"{SCHEME}\n{method}\n{target}\n{timestamp_ms}\n{idempotency_key}\n{digest}"


def signature(secret: str, text: str) -> str:
    return hmac.digest(secret.encode(), text.encode("utf-8", "surrogateescape"), "sha256").hex()


def authorization(
    key: str, method: str, target: str, timestamp_ms: int, *, idempotency_key: str = "", body: bytes = b""
) -> str:
    """The header of a request signed with an `app` key: what an SDK does."""
    parsed = parse_key(key)
    if parsed is None:
        raise ValueError("expected a key like cmk_<id>_<secret>")
    key_id, secret = parsed
    signed = signature(secret, text_to_sign(method, target, timestamp_ms, idempotency_key, body))
    return f"{SCHEME} Key={key_id}, Timestamp={timestamp_ms}, Signature={signed}"
