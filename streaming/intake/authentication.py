"""Whose request it is: a key in the Authorization header, or a signature made with one. No I/O."""

import hmac
from typing import Final

from msgspec import Struct

from clientmgr.contracts.intake_keys import (
    SCHEME,
    WINDOW_MS,
    KeyKind,
    SignedBy,
    parse_key,
    parse_signed,
    secret_hash,
    signature,
    text_to_sign,
)
from clientmgr.tenants.live_intake_keys import LiveKey
from streaming.intake.keyring import Keyring
from streaming.intake.problems import RefusedError

_CHALLENGE: Final = (("www-authenticate", f'Bearer realm="intake", {SCHEME} realm="intake"'),)
_UNKNOWN: Final = "this key is not known, or it was revoked or has expired"


class SignedRequest(Struct, frozen=True):
    """What a signature covers."""

    method: str
    target: str
    idempotency_key: str
    body: bytes


class Caller(Struct, frozen=True):
    """Who asks, once that is proven."""

    key: LiveKey
    signed: SignedBy | None = None


def refused(detail: str) -> RefusedError:
    return RefusedError(401, detail, headers=_CHALLENGE)


def claimed_key(keyring: Keyring, header: str) -> tuple[LiveKey, str | SignedBy]:
    """The key that the header names, and what is to prove it: a secret or a signature."""
    if not header:
        raise refused(f"send a key in the Authorization header: `Bearer cmk_…`, or a signature (`{SCHEME} …`)")
    scheme, _, rest = header.partition(" ")
    proof: str | SignedBy
    if scheme.lower() == "bearer":
        parsed = parse_key(rest.strip())
        if parsed is None:
            raise refused("Authorization: expected `Bearer cmk_<id>_<secret>`")
        key_id, proof = parsed
    else:
        signed = parse_signed(header)
        if signed is None:
            raise refused(f"Authorization: expected `{SCHEME} Key=<id>, Timestamp=<ms>, Signature=<hex>`")
        key_id, proof = signed.key_id, signed
    key = keyring.find(key_id)
    if key is None:
        raise refused(_UNKNOWN)
    return key, proof


def prove(keyring: Keyring, key: LiveKey, proof: str | SignedBy, request: SignedRequest, now_ms: int) -> Caller:
    """The caller, or RefusedError."""
    if isinstance(proof, str):
        if key.kind != KeyKind.SERVER:
            raise refused("this is the key of an app: sign with it, and never send it")
        if not hmac.compare_digest(secret_hash(proof), key.secret_hash):
            raise refused(_UNKNOWN)
        return Caller(key)
    if key.kind != KeyKind.APP:
        raise refused("this is the key of a server: send it as `Bearer cmk_…`")
    if abs(proof.timestamp_ms - now_ms) > WINDOW_MS:
        raise refused(
            f"Timestamp: expected within {WINDOW_MS // 60_000} minutes of our clock, {now_ms}, got {proof.timestamp_ms}"
        )
    secret = keyring.secret_of(key)
    text = text_to_sign(request.method, request.target, proof.timestamp_ms, request.idempotency_key, request.body)
    if secret is None or not hmac.compare_digest(signature(secret, text), proof.signature):
        raise refused("Signature: it is not that of this request by this key")
    return Caller(key, proof)
